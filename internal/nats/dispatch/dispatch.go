package dispatch

import (
	"sync/atomic"

	"github.com/rathcluster/rath/internal/nats/archive"
)

// Dispatch takes tasks in, gives runs to nodes, and takes those that this process is
// given. It is safe for concurrent use.
type Dispatch struct {
	*archive.Archive
	// host takes what is dispatched to this process; nil while it takes nothing.
	host atomic.Pointer[gateway]
}

// NewDispatch returns the dispatch of runs whose logs are in a.
func NewDispatch(a *archive.Archive) *Dispatch { return &Dispatch{Archive: a} }
