package flowtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// runScript runs an agent with a model's script until it ends, and returns the error.
func runScript(t *testing.T, script string, tools ...tool.Tool) (s session.Session, ended error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "model.txtar")
	must.Do(t, os.WriteFile(file, []byte(script), 0o600))
	s = flowtest.Run(t, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s, ended = (&flow.Agent{Name: "a", Tools: tools}).Forward(ctx, s)
		return s, nil
	}), session.New(session.UserText("go")), file, nil)
	return s, ended
}

// TestSameCallForEver: an agent that makes the same calls with the same results is
// stopped, and one whose results differ continues.
func TestSameCallForEver(t *testing.T) {
	var made atomic.Int64
	look := tool.Func("look", "Looks.", func(context.Context, struct{}) (string, error) {
		made.Add(1)
		return "nothing", nil
	}, nil)
	s, err := runScript(t, "-- looks --\ncall: look {}\ncall: missing {}\n", look)
	if !errors.Is(err, flow.ErrMaxRounds) || !strings.Contains(err.Error(), "a made the same calls with the same results 16 times in a row") || made.Load() != 16 || s.Len() != 1+16*3 {
		t.Errorf("%d calls, %d rows: %v", made.Load(), s.Len(), err)
	}
	made.Store(0)
	poll := tool.Func("poll", "Polls.", func(context.Context, struct{}) (string, error) {
		return fmt.Sprint("at ", made.Add(1)/8), nil // the same a few times
	}, nil)
	if _, err = runScript(t, "-- ends --\ntool: at 4\ntext: there\n-- polls --\ncall: poll {}\n", poll); err != nil || made.Load() != 32 {
		t.Errorf("%d calls: %v", made.Load(), err)
	}
}

// TestTwoHundredCallsAtOnce: each call of one answer runs once, at most 64 of them
// concurrently, and the results are in the order of the calls.
func TestTwoHundredCallsAtOnce(t *testing.T) {
	const calls = 200
	var now, most, made atomic.Int64
	count := tool.Func("count", "Counts.", func(_ context.Context, in struct {
		N int `json:"n"`
	},
	) (string, error) {
		for n := now.Add(1); ; {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		defer now.Add(-1)
		made.Add(1)
		return fmt.Sprint("n ", in.N), nil
	}, &tool.FuncOptions{Effect: tool.ReadOnly, Lane: func(json.RawMessage) string { return "" }})
	var script strings.Builder
	script.WriteString("-- ends --\ntool: n 199\ntext: counted\n-- counts --\n")
	for i := range calls {
		fmt.Fprintf(&script, "call: count {\"n\":%d}\n", i)
	}
	s, err := runScript(t, script.String(), count)
	if err != nil || made.Load() != calls || s.Len() != 1+1+calls+1 || most.Load() > 64 {
		t.Fatalf("%d calls, %d rows, %d at one time: %v", made.Load(), s.Len(), most.Load(), err)
	}
	for i := range calls {
		if c, _ := s.At(2 + i); !strings.Contains(c.Text(), fmt.Sprintf(`n %d"`, i)) {
			t.Errorf("result %d is %s", i, c.Text())
		}
	}
}
