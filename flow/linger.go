package flow

import (
	"slices"

	"github.com/rathcluster/rath/run"
)

// linger stays where the run has just begun to wait, if the store lets it, and
// returns what it received once all has come: the execution goes on as the attempt
// that was claimed with the last of it. Otherwise it ends with why, which is
// run.ErrSuspended. Meanwhile the execution holds its memory and no sandbox.
func (ex *Execution) linger(why error) ([]run.Received, error) {
	l, ok := ex.rt.Store.(run.Lingerer)
	if !ok || !ex.alone() {
		return nil, ex.failed(why)
	}
	ex.closeLeases()
	g, err := l.Linger(ex.ctx, run.Claim{
		Session: ex.home, Home: ex.home, Run: ex.id, Attempt: ex.attempt, Revision: ex.reg.Revision,
	})
	switch {
	case err != nil:
		return nil, ex.failed(err)
	case g == nil:
		return nil, ex.failed(why)
	}
	ex.mu.Lock()
	ex.attempt, ex.escrow = g.Attempt, g.Record.Escrow()
	ex.account = ex.account.Holding(&ex.escrow)
	ex.saw(g.Session)
	ex.mu.Unlock()
	ex.receive(g.Record.Inbox()...)
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return slices.Clone(ex.inbox), nil
}

// alone reports whether the run writes to its home only. Other sessions are
// claimed by an attempt, and would have to be claimed by the next one too.
func (ex *Execution) alone() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	for k, h := range ex.held {
		if k != ex.home && !h.outer && !h.disposed && h.closed == "" {
			return false
		}
	}
	return true
}
