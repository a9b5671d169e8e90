package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Quarantined records the quarantine of a session or, with Released, its end. The
// current step ends and is recorded; no further step follows.
type Quarantined struct {
	By       string `json:"by,omitempty"`   // see Named
	ID       string `json:"id,omitempty"`   // of the signal, see SignalReceived
	Next     *Offer `json:"next,omitempty"` // the run that continues, with Released
	Reason   string `json:"reason"`
	Released bool   `json:"released,omitempty"`
	Says     string `json:"says,omitempty"`
}

// Rebudgeted records a change of the budget of a run.
type Rebudgeted struct {
	Budget run.Budget `json:"budget"`
	By     string     `json:"by,omitempty"` // see Named
	ID     string     `json:"id,omitempty"` // of the signal, see SignalReceived
	Reason string     `json:"reason,omitempty"`
	Run    run.ID     `json:"run"`
	Says   string     `json:"says,omitempty"`
}

// Quarantine returns why the session is quarantined, nil if it is not.
func (b *RunState) Quarantine() *Quarantined { return b.quarantine }

// quarantine decides about quarantining the session or releasing it.
func (w *StateMachine) quarantine(q Quarantined, now time.Time) error {
	switch set := w.state.quarantine != nil; {
	case w.at.Seq == 0:
		return fmt.Errorf("journal: session %s: %w", w.key, session.ErrNotFound)
	case set == !q.Released:
		return fmt.Errorf("journal: session %s: %w: it is quarantined: %v", w.key, run.ErrState, set)
	}
	if q.Released {
		r := w.state.runs[w.state.Active]
		switch {
		case r == nil:
			q.Next = w.next("", now)
		// A run of another activation has stopped, and was not claimed again.
		case r.State == run.Queued, r.State == run.Running && r.Home == w.key && r.Epoch != w.Epoch():
			q.Next = &Offer{Revision: r.Task.Revision, Run: r.ID, Workflow: r.Task.Workflow}
		}
	}
	return w.stage(now, event(KindQuarantined, q))
}

// rebudget decides about a new budget of a run.
func (w *StateMachine) rebudget(r *Record, b Rebudgeted, now time.Time) error {
	if r.Home != w.key {
		return fmt.Errorf("journal: the budget of %s is in the log of %s, not of %s: %w", r.ID, r.Home, w.key, run.ErrState)
	}
	b.Run = r.ID
	return w.stage(now, event(KindRebudgeted, b))
}

// Quarantined returns the current quarantine of a session, nil if there is none.
func (v *Values) Quarantined(ctx context.Context, k session.Key) (*Quarantined, error) {
	w, err := LoadStateMachine(ctx, v.log, v, k, "")
	if err != nil {
		return nil, err
	}
	return w.state.quarantine, nil
}
