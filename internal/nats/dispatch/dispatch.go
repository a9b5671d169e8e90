package dispatch

import (
	"sync"
	"sync/atomic"

	"github.com/rathcluster/rath/internal/nats/archive"
)

// Dispatch takes tasks in, gives runs to nodes, and takes those that this process is
// given. It is safe for concurrent use.
type Dispatch struct {
	*archive.Archive
	// host takes what is dispatched to this process; nil while it takes nothing.
	host atomic.Pointer[gateway]
	// deadLetters counts the dead letters that this process stored.
	deadLetters atomic.Uint64

	relaysMu sync.Mutex
	relays   map[uint32]*dispatcher // of the partitions that this process relays
}

// NewDispatch returns the dispatch of runs whose logs are in a.
func NewDispatch(a *archive.Archive) *Dispatch {
	return &Dispatch{Archive: a, relays: map[uint32]*dispatcher{}}
}
