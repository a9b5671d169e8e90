package flowtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

var errDown = errors.New("the service is down")

// outage is a pipeline of six calls whose fifth fails for six seconds, then a call of
// a tool that fails for six minutes.
func outage() flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		var began time.Time // of the step
		fails := func(ctx context.Context, d time.Duration) error {
			if flow.Now(ctx).Sub(began) < d {
				return errDown
			}
			return nil
		}
		for i := range 6 {
			began = flow.Now(ctx)
			n, err := flow.Do(ctx, fmt.Sprint("call ", i+1), func(ctx context.Context) (int, error) {
				if i == 4 {
					return i, fails(ctx, 6*time.Second)
				}
				return i, nil
			}, tool.Idempotent, tool.Retry{Times: 5})
			if err != nil {
				return s, err
			}
			s = s.With(session.UserText(fmt.Sprint("did ", n+1, " in ", flow.Now(ctx).Sub(began))))
		}
		began = flow.Now(ctx)
		look := tool.Func("look", "Looks.", func(ctx context.Context, _ struct{}) (string, error) {
			return "seen", fails(ctx, 6*time.Minute)
		}, &tool.FuncOptions{Effect: tool.ReadOnly, Retry: &tool.Retry{Times: 9, First: time.Minute, Most: time.Hour}})
		s, r, err := flow.CallTool(ctx, s, look, struct{}{})
		return s.With(session.UserText(fmt.Sprint(r.Text(), " after ", flow.Now(ctx).Sub(began)))), err
	})
}

// TestTriesCrashEverywhere: a crash at any commit changes neither the number of the tries
// nor the times of the pauses.
func TestTriesCrashEverywhere(t *testing.T) {
	t.Parallel()
	s := flowtest.Run(t, outage(), session.New(), "testdata/word.txtar", nil)
	var all []string
	for _, c := range s.Chunks() {
		all = append(all, c.Text())
	}
	if got, want := strings.Join(all, "; "), "did 4 in 0s; did 5 in 7s; did 6 in 0s; \"seen\"; seen after 7m0s"; !strings.HasSuffix(got, want) {
		t.Errorf("it did %q, want %q", got, want)
	}
	flowtest.CrashEverywhere(t, outage, session.New(), "testdata/word.txtar", nil)
}
