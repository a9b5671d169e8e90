package flowtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// failing is a test that is expected to fail, and collects its errors.
type failing struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (f *failing) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// failure calls a test that has to fail and returns its errors.
func failure(t *testing.T, test func(testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { test(f) })
	wg.Wait()
	if len(f.said) == 0 {
		t.Fatal("the test did not fail")
	}
	return strings.Join(f.said, "\n")
}

// deploy asks for approval.
func deploy(ctx context.Context, s session.Session) (session.Session, error) {
	a, err := flow.Approve(ctx, "deploy", &flow.AwaitOptions{Title: "Deploy it?"})
	if err != nil {
		return s, err
	}
	return s.With(session.UserText(fmt.Sprint(a.Approved, " by ", a.By, ": ", a.Reason))), nil
}

// TestUnanswered: a wait without an answer fails the test at once and is named.
func TestUnanswered(t *testing.T) {
	for name, test := range map[string]func(testing.TB){
		"run": func(t testing.TB) {
			flowtest.Run(t, flow.Func(deploy), session.New(), "testdata/word.txtar", nil)
		},
		"crash": func(t testing.TB) {
			flowtest.CrashEverywhere(t, func() flow.Workflow { return flow.Func(deploy) }, session.New(), "testdata/word.txtar", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			said := failure(t, test)
			for _, part := range []string{"run test", "step 0", "approval", `"deploy"`, "Deploy it?", "Options.Answer"} {
				if !strings.Contains(said, part) {
					t.Errorf("it does not name %s:\n%s", part, said)
				}
			}
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// clerk waits for everything that a workflow can wait for, in a branch too.
func clerk(ctx context.Context, s session.Session) (session.Session, error) {
	s, err := deploy(ctx, s)
	if err != nil {
		return s, err
	}
	colour, err := flow.Await[string](ctx, "colour", nil)
	if err != nil {
		return s, err
	}
	if s, err = flow.Listen(ctx, s.With(session.UserText(colour)), &flow.AwaitOptions{Title: "What else?"}); err != nil {
		return s, err
	}
	pay := &flow.Agent{Name: "clerk", Prompt: "You pay.", Tools: []tool.Tool{tool.Func("pay", "Pays.", func(_ context.Context, in struct {
		Cents int `json:"cents"`
	},
	) (int, error) {
		return in.Cents, nil
	}, &tool.FuncOptions{Effect: tool.Idempotent})}, Approve: func(tool.Spec, json.RawMessage) bool { return true }}
	j, err := flow.FanOut(ctx, s.With(session.UserText("pay it")), flow.Repeat(2, pay), nil)
	if err != nil {
		return s, err
	}
	if s, err = flow.Merge(ctx, j, flow.SinceAncestor()); err != nil {
		return s, err
	}
	asked := flow.Now(ctx)
	_, err = flow.Approve(ctx, "vacation", &flow.AwaitOptions{Timeout: 72 * time.Hour})
	if !errors.Is(err, run.ErrExpired) {
		return s, err
	}
	return s.With(session.UserText("waited " + flow.Now(ctx).Sub(asked).String())), nil
}

// answerClerk answers the questions of clerk.
func answerClerk(q run.Question) (any, error) {
	switch q.Name {
	case "deploy":
		return flow.Approval{By: "ann", Reason: "not on a Friday"}, nil
	case "colour":
		return "blue", nil
	case "listen":
		return "nothing else", nil
	case "pay":
		return flow.Approval{Approved: true, Value: json.RawMessage(`{"cents":7}`)}, nil
	case "vacation":
		return nil, run.ErrExpired
	}
	return nil, nil
}

func TestAnswer(t *testing.T) {
	var said []string
	s := flowtest.Run(t, flow.Func(clerk), session.New(session.UserText("go")), "testdata/pay_approved.txtar", &flowtest.Options{Answer: answerClerk})
	for _, c := range s.Chunks() {
		if c.Kind() != session.Assistant {
			said = append(said, c.Text())
		}
	}
	if diff := cmp.Diff([]string{"go", "false by ann: not on a Friday", "blue", "nothing else", "pay it", "7", "7", "waited 72h0m0s"}, said); diff != "" {
		t.Errorf("the rows (-want +got):\n%s", diff)
	}
}

func TestAnswerCrashEverywhere(t *testing.T) {
	t.Parallel()
	flowtest.CrashEverywhere(t, func() flow.Workflow { return flow.Func(clerk) }, session.New(session.UserText("go")),
		"testdata/pay_approved.txtar", &flowtest.Options{Answer: answerClerk})
}

// TestWrongAnswer: an answer that does not fit its question fails the test, and so
// does an error.
func TestWrongAnswer(t *testing.T) {
	for want, answer := range map[string]func(run.Question) (any, error){
		"the answer to an approval is a flow.Approval, not a bool": func(run.Question) (any, error) { return true, nil },
		"what is that":        func(run.Question) (any, error) { return nil, errors.New("what is that") },
		"no answer serves it": func(run.Question) (any, error) { return nil, nil },
		"nothing that JSON can": func(q run.Question) (any, error) {
			if q.Kind == run.WaitResponse {
				return func() {}, nil
			}
			return answerClerk(q)
		},
	} {
		said := failure(t, func(t testing.TB) {
			flowtest.Run(t, flow.Func(clerk), session.New(session.UserText("go")), "testdata/pay_approved.txtar", &flowtest.Options{Answer: answer})
		})
		if !strings.Contains(said, want) || !strings.Contains(said, "at step ") {
			t.Errorf("the test says, without %q:\n%s", want, said)
		}
	}
}
