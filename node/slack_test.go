package node

import "testing"

// TestSlack: memory is returned after a node was busy, at each check in the minutes in
// which the server and sessions release it, however much a resting node allocates then,
// and not afterwards.
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
	for range 20 {
		look(1*mib, false) // not worth it
	}
	look(500*mib, false)
	look(1*mib, true)
	look(400*mib, false) // busy again
	for n := 1; n <= 50; n++ {
		more := uint64(2 * mib)
		if n%3 == 2 {
			more = 32 * mib // the server writes the state of four streams
		}
		look(more, n <= slackTimes)
		if want := n > slackKept; s.long() != want {
			t.Errorf("at look %d of its rest: long %v", n, s.long())
		}
	}
	look(500*mib, false)
	look(0, true)
	if s.long() {
		t.Error("after it was busy again: long")
	}
}
