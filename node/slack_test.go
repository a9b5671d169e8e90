package node

import "testing"

// TestSlack: memory is given back after a node was busy, at three moments of its rest,
// and not between two busy times nor for what an idle node allocates in a moment.
func TestSlack(t *testing.T) {
	const mib = 1 << 20
	var s slack
	allocated := uint64(0)
	look := func(more uint64, want bool) {
		t.Helper()
		allocated += more
		if got := s.due(allocated); got != want {
			t.Errorf("after %d MiB, %d MiB more: due %v", allocated/mib, more/mib, got)
		}
	}
	look(20*mib, false) // it starts
	look(1*mib, false)
	look(1*mib, false)
	look(1*mib, false) // not worth it
	look(500*mib, false)
	look(1*mib, false)
	look(400*mib, false) // busy again
	look(2*mib, false)
	look(2*mib, true) // the second quiet look
	for n := 3; n <= 50; n++ {
		look(2*mib, n == 7 || n == 13)
	}
	look(20*mib, false) // 112 MiB since
	look(1*mib, false)
	look(1*mib, true)
	look(20*mib, false)
	for range 20 {
		look(1*mib, false) // not worth it
	}
	look(500*mib, false)
	look(0, false)
	look(0, true)
}
