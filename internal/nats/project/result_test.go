package project

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestResultIsSigned: a process with a key stores no result without its signature, so that
// a process that ends between the end of a run and its signature leaves the result to the
// next one. A signed result does not change.
func TestResultIsSigned(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Projections, _ *natstest.Wire) {
		r := messages.Result{
			Schema: messages.Schema, Run: "r1", State: run.Succeeded, Session: "r1", Version: 3, Output: "done", EndedMS: time.Now().UnixMilli(),
			Chain: &messages.Chain{Hash: "5be1", Seq: 4, Session: "r1"},
		}
		broken := errors.New("the key is away")
		c.streams.O.Sign = func(string) (string, error) { return "", broken }
		if err := c.PutResult(t.Context(), "default", r, false); !errors.Is(err, broken) {
			t.Fatalf("error %v, want that of the key", err)
		}
		if _, there, err := c.Stored(t.Context(), "default", "r1"); there || err != nil {
			t.Fatalf("a result is stored without its signature (%v)", err)
		}
		for _, key := range []string{"one", "two"} { // the second one finds the result there
			c.streams.O.Sign = func(statement string) (string, error) { return key + " signed " + statement, nil }
			must.Do(t, c.PutResult(t.Context(), "default", r, true))
		}
		got, there, err := c.Stored(t.Context(), "default", "r1")
		if err != nil || !there || got.Statement != r.Say("default") || got.Signature != "one signed "+got.Statement {
			t.Errorf("stored is %+v (%v)", got, err)
		}

		// A restored result keeps its signature.
		r.Run, r.Statement, r.Signature = "r2", "said", "signed before"
		must.Do(t, c.PutResult(t.Context(), "default", r, true))
		if got, _, err := c.Stored(t.Context(), "default", "r2"); err != nil || got.Signature != "signed before" {
			t.Errorf("stored is %+v (%v)", got, err)
		}

		// A refused task is in no log.
		refused := translate.RefusedResult("r3", "fix", wire.Error{Code: run.CodeError, Text: "no"}, time.Now())
		must.Do(t, c.PutResult(t.Context(), "default", refused, true))
		if got, _, err := c.Stored(t.Context(), "default", "r3"); err != nil || got.Signature != "" {
			t.Errorf("stored is %+v (%v)", got, err)
		}
	})
}

// TestResultSettles: usage reported after the end of a run replaces the usage in its stored
// result, the newest report wins, and the rest of the result does not change.
func TestResultSettles(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Projections, _ *natstest.Wire) {
		r := messages.Result{
			Schema: messages.Schema, Run: "r1", State: run.Cancelled, Session: "r1", EndedMS: time.Now().UnixMilli(),
			Chain: &messages.Chain{Hash: "5be1", Seq: 4, Session: "r1"}, Lost: session.Usage{Input: 50}, Usage: session.Usage{Input: 50},
		}
		c.streams.O.Sign = func(statement string) (string, error) { return "signed " + statement, nil }
		must.Do(t, c.PutResult(t.Context(), "default", r, false))
		for _, s := range []messages.Result{
			{Run: "r1", Settled: 2, Usage: session.Usage{Calls: 3, Input: 22}},
			{Run: "r1", Settled: 1, Usage: session.Usage{Calls: 1, Input: 7}, Lost: session.Usage{Input: 7}},
		} {
			must.Do(t, c.PutResult(t.Context(), "default", s, true))
		}
		r.Usage, r.Lost, r.Settled = session.Usage{Calls: 3, Input: 22}, session.Usage{}, 2
		r.Statement, r.Signature = r.Say("default"), "signed "+r.Say("default")
		if got, _, err := c.Stored(t.Context(), "default", "r1"); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("stored is %+v (%v), want %+v", got, err, r)
		}
	})
}
