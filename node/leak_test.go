package node

import (
	"log/slog"
	"testing"
)

// TestLeaksDrain: a node drains when more functions of workflows than its bound were given up
// and have not returned.
func TestLeaksDrain(t *testing.T) {
	n := &Instance{drained: make(chan struct{})}
	n.o.Logger = slog.New(slog.DiscardHandler)
	drains := func() bool {
		select {
		case <-n.Drained():
			return true
		default:
			return false
		}
	}
	for _, tc := range []struct {
		leaked int
		want   bool
	}{{1, false}, {maxLeaked, false}, {maxLeaked + 1, true}, {maxLeaked, true}, {maxLeaked + 1, true}} {
		if n.leaks(tc.leaked); drains() != tc.want {
			t.Errorf("with %d leaked the node drains: %v", tc.leaked, drains())
		}
	}
}
