package journal

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Recording is the records of a run in a session's log, as of the run's end there or,
// if it is open, as of now.
type Recording struct {
	// ClaimResult is the result of a hypothetical claim right before the run ended
	// there. Its State is Running; its Session is the newest one.
	*ClaimResult
	// LogState is the state of the run by this log, which is decisive in the
	// run's home log.
	LogState run.State
	// Ended is set in the log that holds the run's end.
	Ended *Ended
	// EndedBy is the commit with Ended.
	EndedBy commitlog.Position
	// FanOuts are the run's fan-outs, in order.
	FanOuts []FanOut
}

// Recording reads the records of a run in a session's log. It includes the steps of a
// run that has ended, which the fold no longer keeps. It reads the whole log. It
// returns ErrUnknownRun if the log does not hold the run.
func (v *Values) Recording(ctx context.Context, k session.Key, id run.ID) (*Recording, error) {
	w := NewStateMachine(k, "", v.Resolver(context.WithoutCancel(ctx)))
	w.state.whole = true
	var h Recording
	for e, err := range v.log.Read(ctx, k, commitlog.Position{}) {
		if err != nil {
			return nil, fmt.Errorf("journal: read %s: %w", k, err)
		}
		for _, ev := range e.Commit.Events {
			switch ev.Kind {
			case KindFanOut:
				if f, err := Decode[FanOut](ev); err != nil {
					return nil, err
				} else if f.Run == id {
					h.FanOuts = append(h.FanOuts, f)
				}
			case KindEnded:
				end, err := Decode[Ended](ev)
				if err != nil {
					return nil, err
				}
				if r := w.state.Run(id); end.Run == id && r != nil && !r.State.Terminal() {
					h.ClaimResult, h.Ended, h.EndedBy = w.grant(r, run.Running), &end, e.At
				}
			}
		}
		if err := w.Fold(e); err != nil {
			return nil, err
		}
	}
	r := w.state.Run(id)
	if r == nil {
		return nil, fmt.Errorf("journal: %s is not in the log of %s: %w", id, k, run.ErrUnknownRun)
	}
	h.LogState = r.State
	if h.ClaimResult == nil {
		h.ClaimResult = w.grant(r, run.Running)
	}
	h.Session = w.value
	return &h, nil
}

// Recorded returns the steps of the journal in the order of their paths.
func (j *Journal) Recorded() []*Step {
	r := Record{steps: j.steps}
	return r.Steps()
}
