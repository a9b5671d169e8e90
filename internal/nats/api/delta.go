package api

import (
	"sync"

	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Deltas publishes the pieces of model output to the clients that watch their run,
// and keeps none: without a listener a piece is gone. It is safe for concurrent
// use.
type Deltas struct {
	c  *Conn
	mu sync.Mutex
	// Two generations of counts: a call does not say when it ends, so that a
	// count is forgotten when it was not used for some time.
	young, old map[deltaKey]uint64
}

type deltaKey struct {
	session session.Key
	run     run.ID
	path    run.Path
	attempt uint64
}

// maxDeltaCalls bounds the counts of one generation.
const maxDeltaCalls = 4096

// Deltas returns a publisher of deltas.
func (c *Conn) Deltas() *Deltas { return &Deltas{c: c, young: map[deltaKey]uint64{}} }

// Publish is what engine.Runtime.OnDelta wants: it does not block and reports
// nothing.
func (d *Deltas) Publish(p engine.Delta) {
	out := messages.Delta{
		Run: p.Run, Session: p.Session.ID, Step: p.Path, Attempt: p.Attempt, Agent: p.Agent,
		Text: p.Text, Reasoning: p.Reasoning,
	}
	if p.Call != nil {
		out.Call = &messages.CallDelta{Index: p.Index, ID: p.Call.ID, Name: p.Call.Name, Args: p.Call.Args}
	}
	out.N = d.count(deltaKey{p.Session, p.Run, p.Path, p.Attempt})
	data, err := messages.Encode(out)
	if err != nil {
		return // too large for a message: the chunk that is committed has it
	}
	_ = d.c.NC.Publish(messages.RunSubject(p.Session.Tenant, p.Run, messages.OnDelta), data)
}

func (d *Deltas) count(k deltaKey) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, known := d.young[k]
	if !known {
		n = d.old[k]
		if len(d.young) >= maxDeltaCalls {
			d.old, d.young = d.young, map[deltaKey]uint64{}
		}
	}
	d.young[k] = n + 1
	return n + 1
}
