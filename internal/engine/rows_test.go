package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// manyRows are too many for one commit.
func manyRows(n int) []session.Chunk {
	rows := make([]session.Chunk, n)
	for i := range rows {
		rows[i] = session.UserText(fmt.Sprint("row ", i))
	}
	return rows
}

// TestManyRows: rows that do not fit into one commit are recorded in several, wherever a
// run meets them: at its start, before a step, with a fork, at its end.
func TestManyRows(t *testing.T) {
	const many = 20_000
	keep := flow.Func(func(_ context.Context, s session.Session) (session.Session, error) { return s, nil })
	for name, c := range map[string]struct {
		start session.Session
		w     flow.Func
		want  int
	}{
		"start": {session.New(manyRows(many)...), keep, many},
		"start, then a step": {session.New(manyRows(many)...), func(ctx context.Context, s session.Session) (session.Session, error) {
			return (&flow.Agent{Name: "a"}).Forward(ctx, s)
		}, many + 1},
		"start, then branches": {session.New(manyRows(many)...), func(ctx context.Context, s session.Session) (session.Session, error) {
			j, err := flow.FanOut(ctx, s, flow.Repeat(2, say("x")), nil)
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, flow.SinceAncestor())
		}, many + 2},
		"before a step": {session.New(session.UserText("go")), func(ctx context.Context, s session.Session) (session.Session, error) {
			return (&flow.Agent{Name: "a"}).Forward(ctx, s.With(manyRows(many)...))
		}, many + 2},
		"end": {session.New(session.UserText("go")), func(_ context.Context, s session.Session) (session.Session, error) {
			return s.With(manyRows(many)...), nil
		}, many + 1},
		"fork": {session.New(session.UserText("go")), func(ctx context.Context, s session.Session) (session.Session, error) {
			b, err := flow.Fork(ctx, s.With(manyRows(many)...))
			if err != nil {
				return s, err
			}
			return b.With(session.UserText("done")), nil
		}, many + 2},
		"a session of its own": {session.New(session.UserText("go")), func(ctx context.Context, _ session.Session) (session.Session, error) {
			return (&flow.Agent{Name: "a"}).Forward(ctx, session.New(manyRows(many)...))
		}, many + 1},
		"an older value": {session.New(session.UserText("go")), func(ctx context.Context, s session.Session) (session.Session, error) {
			if _, err := (&flow.Agent{Name: "a"}).Forward(ctx, s); err != nil {
				return s, err
			}
			return (&flow.Agent{Name: "b"}).Forward(ctx, s.With(manyRows(many)...))
		}, many + 3},
		"the same value twice": {session.New(session.UserText("go")), func(ctx context.Context, s session.Session) (session.Session, error) {
			s = s.With(manyRows(many)...)
			one, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			if err := flow.Reject(ctx, one, "no"); err != nil {
				return s, err
			}
			return (&flow.Agent{Name: "a"}).Forward(ctx, s.With(session.UserText("more")))
		}, many + 3},
	} {
		t.Run(name, func(t *testing.T) {
			var warned []string
			rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: answering, OnWarning: func(_ run.ID, text string) { warned = append(warned, text) }}}
			s, err := rt.Run(t.Context(), c.w, c.start)
			if err != nil || s.Len() != c.want || len(warned) > 0 && name != "an older value" {
				t.Fatalf("%d rows, want %d: %v %q", s.Len(), c.want, err, warned)
			}
			stored, err := rt.Runtime.Values.At(t.Context(), session.Ref{Key: s.Key()})
			if err != nil || stored.Len() != c.want {
				t.Fatalf("the log has %d rows, %v", stored.Len(), err)
			}
			for i, row := range stored.Chunks() {
				if got, _ := s.At(i); !got.Equal(row) {
					t.Fatalf("row %d is %q in the log and %q in the result", i, row.Text(), got.Text())
				}
			}
		})
	}
}

// answering is a model that answers with one word.
var answering = model(func(*llm.Request) *llm.Response { return &llm.Response{Text: "word", Finish: llm.FinishStop} })

// TestRunGoesOnWithEdits: edits of an existing session are part of the run's input, for
// its branches too.
func TestRunGoesOnWithEdits(t *testing.T) {
	rt := &inprocess.Runtime{}
	s, err := rt.Run(t.Context(), say("first"), session.New(session.UserText("go")))
	if err != nil {
		t.Fatal(err)
	}
	// Each branch replays the workflow of the run on a goroutine of its own.
	var mu sync.Mutex
	var seen []int
	s, err = rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		mu.Lock()
		seen = append(seen, s.Len())
		mu.Unlock()
		j, err := flow.FanOut(ctx, s, flow.Repeat(2, say("x")), nil)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	}), s.With(session.UserText("again")))
	if err != nil || s.Len() != 5 {
		t.Fatalf("%d rows, %v", s.Len(), err)
	}
	for _, n := range seen {
		if n != 3 {
			t.Errorf("Forward began with %d rows, want 3 each time", n)
		}
	}
}
