package fleet

import (
	"slices"
	"testing"
)

// TestFreePorts wants ports that no outgoing connection gets before a node of a
// fleet listens there: 32768 is the first one that Linux gives to such.
func TestFreePorts(t *testing.T) {
	for range 20 {
		ports, err := freePorts(MaxNodes)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(ports)
		if n := len(slices.Compact(slices.Clone(ports))); n != MaxNodes || ports[0] < 1024 || ports[n-1] >= 32768 {
			t.Fatalf("%d ports of %d: %v", n, MaxNodes, ports)
		}
	}
}
