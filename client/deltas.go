package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Deltas yields the pieces of model output of a run, and the starts of its steps, as they
// are published from now on. They are provisional and not stored. A Delta without a run
// marks a place where deltas may be missing: the beginning, as soon as the subscription is
// in effect, and a lost connection. [Runs.Live] has the text up to there.
//
// The sequence ends with ctx, whose error it yields, or with an error that a retry would
// not change.
func (rs *Runs) Deltas(ctx context.Context, id run.ID) iter.Seq2[messages.Delta, error] {
	return func(yield func(messages.Delta, error) bool) {
		fail := func(err error) { yield(messages.Delta{}, fmt.Errorf("deltas of run %s: %w", id, err)) }
		if err := session.ValidID("run", string(id)); err != nil {
			fail(err)
			return
		}
		w, err := rs.c.requests.Watch(ctx, messages.RunSubject(rs.c.tenant, id, messages.OnDelta))
		if err != nil {
			fail(err)
			return
		}
		defer w.Close()
		for d := (messages.Delta{}); yield(d, nil); {
			if d, err = nextDelta(ctx, w, id); err != nil {
				fail(err)
				return
			}
		}
	}
}

// nextDelta returns the next delta of a run, or a zero one for a gap. It skips messages that
// do not decode, which a later release or another program sent, and those of other runs: a
// user who queries a node chooses the subject of the answer.
func nextDelta(ctx context.Context, w *requests.Watch, id run.ID) (messages.Delta, error) {
	for {
		live, err := w.Next(ctx)
		if err != nil || live.Gap {
			return messages.Delta{}, err
		}
		if d, err := messages.DecodeDelta(live.Data); err == nil && d.Run == id {
			return d, nil
		}
	}
}
