package flowtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// chats is the state of a conversation.
type chats struct {
	Turns int
	Drift float64
	Notes session.Ref
}

// conversation makes a step of each kind in the iterations of a loop.
func conversation(ctx context.Context, s session.Session) (session.Session, error) {
	errand, err := flow.Start(ctx, flow.Task{Workflow: "errand"})
	if err != nil {
		return s, err
	}
	var c chats
	s, err = flow.Loop(ctx, "chat", s, &c, func(ctx context.Context, s session.Session) (session.Session, bool, error) {
		s, err := flow.Listen(ctx, s, nil)
		if err != nil {
			return s, false, err
		}
		c.Turns, c.Drift = c.Turns+1, c.Drift+0.5
		if err := flow.SetTag(ctx, "turn", fmt.Sprint(c.Turns)); err != nil {
			return s, false, err
		}
		if err := flow.SetStatus(ctx, c.Turns); err != nil {
			return s, false, err
		}
		notes := s
		if c.Turns > 1 {
			if notes, err = flow.ReadSession(ctx, c.Notes); err != nil {
				return s, false, err
			}
			notes = notes.With(session.UserText("of turn " + fmt.Sprint(c.Turns)))
		}
		notes, err = flow.Detach(ctx, notes)
		if err != nil {
			return s, false, err
		}
		c.Notes = notes.Ref()
		try, err := flow.Fork(ctx, s)
		if err != nil {
			return s, false, err
		}
		if c.Turns%2 == 1 {
			s, err = flow.Adopt(ctx, s, says(try, "tried"), "good")
		} else {
			err = flow.Reject(ctx, try, "bad")
		}
		if err != nil {
			return s, false, err
		}
		version, err := flow.ChangeVersion(ctx, "greeting", 0, 1)
		if err != nil {
			return s, false, err
		}
		var words []string
		err = flow.Gather(ctx, nil, func(ctx context.Context) error {
			var sum struct{ N int }
			_, err := flow.Loop(ctx, "sum", session.Session{}, &sum, func(ctx context.Context, s session.Session) (session.Session, bool, error) {
				n, err := flow.Do(ctx, "add", func(context.Context) (int, error) { return 2, nil }, tool.ReadOnly)
				sum.N += n
				return s, sum.N < 4, err
			})
			words = append(words, fmt.Sprint(sum.N))
			return err
		}, func(ctx context.Context) error { return flow.Sleep(ctx, time.Minute) })
		if err != nil {
			return s, false, err
		}
		paid, err := flow.AwaitEvent(ctx, "paid", "4711", nil)
		if err != nil {
			return s, false, err
		}
		end, err := errand.Result(ctx, 0)
		if err != nil {
			return s, false, err
		}
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			id, err := flow.Do(ctx, "id", func(context.Context) (string, error) { return "branch of turn", nil }, tool.ReadOnly)
			return says(s, "%s %d", id, c.Turns), err
		})}}, nil)
		if err != nil {
			return s, false, err
		}
		if s, err = flow.Merge(ctx, j, flow.Pick(0)); err != nil {
			return s, false, err
		}
		return says(s, "turn %d: %v, version %d, event %d, errand %s", c.Turns, words, version, paid.Seq, end.Output), c.Turns < 3, nil
	})
	return says(s, "ended after %d", c.Turns), err
}

func chatting() *flowtest.Options {
	return &flowtest.Options{
		Workflows: []flow.Registration{offers("errand", func(_ context.Context, s session.Session) (session.Session, error) { return says(s, "done"), nil })},
		Answer:    func(q run.Question) (any, error) { return "said at " + string(q.Step), nil },
	}
}

// TestLoop: the iterations of a loop make steps of all kinds.
func TestLoop(t *testing.T) {
	s := flowtest.Run(t, flow.Func(conversation), session.New(session.UserText("go")), "testdata/none.txtar", chatting())
	var rows []string
	for _, c := range s.Chunks() {
		rows = append(rows, c.Text())
	}
	want := `go
said at 1.0.0
tried
branch of turn 1
turn 1: [4], version 1, event 1, errand done
said at 1.1.0
branch of turn 2
turn 2: [4], version 1, event 2, errand done
said at 1.2.0
tried
branch of turn 3
turn 3: [4], version 1, event 3, errand done
ended after 3`
	if got := strings.Join(rows, "\n"); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestLoopCrashEverywhere(t *testing.T) {
	t.Parallel()
	flowtest.CrashEverywhere(t, func() flow.Workflow { return flow.Func(conversation) }, session.New(session.UserText("go")), "testdata/none.txtar", chatting())
}

// TestLoopWithoutItsState: flowtest finds a body that depends on a variable besides the state.
func TestLoopWithoutItsState(t *testing.T) {
	outside := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		var n struct{ N, Sum int }
		calls := 0
		return flow.Loop(ctx, "count", s, &n, func(_ context.Context, s session.Session) (session.Session, bool, error) {
			calls++
			n.N, n.Sum = n.N+1, n.Sum+calls
			return s, n.N < 3, nil
		})
	})
	failed := failure(t, func(t testing.TB) {
		flowtest.Run(t, outside, session.New(session.UserText("go")), "testdata/none.txtar", nil)
	})
	if want := `does not follow from its recorded state: step 0.1, iteration count, is recorded for another input`; !strings.Contains(failed, want) {
		t.Errorf("it failed with %q, want %q", failed, want)
	}
	failed = failure(t, func(t testing.TB) {
		flowtest.CrashEverywhere(t, func() flow.Workflow { return outside }, session.New(session.UserText("go")), "testdata/none.txtar", nil)
	})
	if want := "changes the run"; !strings.Contains(failed, want) {
		t.Errorf("it failed with %q, want %q", failed, want)
	}
}

// TestLoopInBranchCrashEverywhere: branches of a fan-out, and a fan-out in an iteration of
// theirs, have loops whose iterations gather steps, wait for messages and events, and start
// other runs.
func TestLoopInBranchCrashEverywhere(t *testing.T) {
	t.Parallel()
	talk := func(ctx context.Context, s session.Session) (session.Session, error) {
		var c struct{ N int }
		s, err := flow.Loop(ctx, "talk", s, &c, func(ctx context.Context, s session.Session) (session.Session, bool, error) {
			c.N++
			var did [3]string
			err := flow.Gather(ctx, nil,
				func(ctx context.Context) (err error) {
					did[0], err = flow.Do(ctx, "a", func(context.Context) (string, error) { return fmt.Sprint("a", c.N), nil }, tool.Idempotent)
					return err
				},
				func(ctx context.Context) (err error) {
					did[1], err = flow.Await[string](ctx, "colour", nil)
					return err
				},
				func(ctx context.Context) error {
					var sum struct{ N int }
					_, err := flow.Loop(ctx, "sum", session.Session{}, &sum, func(ctx context.Context, s session.Session) (session.Session, bool, error) {
						n, err := flow.Do(ctx, "add", func(context.Context) (int, error) { return c.N, nil }, tool.ReadOnly)
						sum.N += n
						return s, sum.N < 2, err
					})
					did[2] = fmt.Sprint(sum.N)
					return err
				})
			if err != nil {
				return s, false, err
			}
			paid, err := flow.AwaitEvent(ctx, "paid", "4711", nil)
			if err != nil {
				return s, false, err
			}
			return says(s, "%d: %v, event %d", c.N, did, paid.Seq), c.N < 2, nil
		})
		return says(s, "talked %d times", c.N), err
	}
	nested := func(ctx context.Context, s session.Session) (session.Session, error) {
		var c struct{ N int }
		return flow.Loop(ctx, "outer", s, &c, func(ctx context.Context, s session.Session) (session.Session, bool, error) {
			c.N++
			j, err := flow.FanOut(ctx, s, flow.Repeat(1, flow.Func(talk)), nil)
			if err != nil {
				return s, false, err
			}
			s, err = flow.Merge(ctx, j, flow.Pick(0))
			return s, c.N < 2, err
		})
	}
	w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "talks", Workflow: flow.Func(talk)}, {Name: "nests", Workflow: flow.Func(nested)}}, nil)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
	flowtest.CrashEverywhere(t, func() flow.Workflow { return w }, session.New(session.UserText("go")), "testdata/none.txtar", chatting())
}
