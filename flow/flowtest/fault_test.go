package flowtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// careful asks a coder, and again on a fork if the first time failed, and adds the
// outcome.
func careful(ctx context.Context, s session.Session) (session.Session, error) {
	write, _ := tool.ByName("write_workspace_file")
	coder := &flow.Agent{Name: "coder", Prompt: "You are the coder.", Tools: []tool.Tool{write}}
	var hints []session.Chunk
	for range 2 {
		try, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if try, err = coder.Forward(ctx, try.With(hints...)); err == nil {
			return flow.Adopt(ctx, s, try, "it works")
		}
		why := string(llm.CodeOf(err))
		if why == "" {
			return s, err
		}
		if err := flow.Reject(ctx, try, why); err != nil {
			return s, err
		}
		hints = append(hints, session.UserText("failed: "+why))
	}
	return s.With(hints...), nil
}

// TestFaults: the workflow, or its model, handles each fault, in the same way wherever it
// crashes.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		faults []flowtest.Fault
		want   string // the texts of all rows
	}{
		"model fails once": {[]flowtest.Fault{{Kind: flowtest.ModelFails, Name: "coder", Call: 1}}, "go | failed: unavailable | call | ok | it is done"},
		"model fails with an error of its own": {
			[]flowtest.Fault{{Kind: flowtest.ModelFails, Call: 2, Err: &llm.Error{Code: llm.CodeQuota, Message: "paid up"}}},
			"go | failed: quota | call | ok | it is done",
		},
		"model times out each time": {[]flowtest.Fault{{Kind: flowtest.ModelTimesOut}}, "go | failed: timeout | failed: timeout"},
		"stream breaks off once":    {[]flowtest.Fault{{Kind: flowtest.ModelBreaksOff, Call: 2, Tries: 1}}, "go | call | ok | it is done"},
		"stream breaks off":         {[]flowtest.Fault{{Kind: flowtest.ModelBreaksOff, Call: 2}}, "go | failed: truncated | call | ok | it is done"},
		"tool fails":                {[]flowtest.Fault{{Kind: flowtest.ToolFails, Name: "write_workspace_file", Err: errors.New("full")}}, "go | call | tool_execution_exception | gave up"},
		"tool times out":            {[]flowtest.Fault{{Kind: flowtest.ToolTimesOut, Step: "1.0"}}, "go | call | timeout | gave up"},
		"sandbox lost":              {[]flowtest.Fault{{Kind: flowtest.SandboxLost, Name: "write_workspace_file", Call: 1}}, "go | call | sandbox_lost | call | ok | it is done"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &flowtest.Options{Faults: tt.faults}
			s := flowtest.Run(t, flow.Func(careful), session.New(session.UserText("go")), "testdata/faults.txtar", o)
			var said []string
			for _, c := range s.Chunks() {
				text := c.Text()
				switch c.Kind() {
				case session.ToolResult:
					_, kind, failed := strings.Cut(text, `"error_kind":"`)
					if text, _, _ = strings.Cut(kind, `"`); !failed {
						text = "ok"
					}
				case session.Assistant:
					if c.CallCount() > 0 {
						text = "call"
					}
				}
				said = append(said, text)
			}
			if got := strings.Join(said, " | "); got != tt.want {
				t.Errorf("the rows are\n%s\nwant\n%s", got, tt.want)
			}
			flowtest.CrashEverywhere(t, func() flow.Workflow { return flow.Func(careful) }, session.New(session.UserText("go")), "testdata/faults.txtar", o)
		})
	}
}

// TestFaultsInBranches: each branch counts its own calls.
func TestFaultsInBranches(t *testing.T) {
	count := 0
	s := flowtest.Run(t, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		twice := flow.Sequence(&flow.Agent{Name: "reader"}, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			if _, err := (&flow.Agent{Name: "reader"}).Forward(ctx, s); !errors.Is(err, llm.CodeTimeout) {
				return s, fmt.Errorf("the second call came to %w", err)
			}
			return s, nil
		}))
		j, err := flow.FanOut(ctx, s, flow.Repeat(3, twice), nil)
		if err != nil {
			return s, err
		}
		count = len(j.Succeeded())
		return flow.Merge(ctx, j, flow.SinceAncestor())
	}), session.New(session.UserText("go")), "testdata/word.txtar", &flowtest.Options{Faults: []flowtest.Fault{{Kind: flowtest.ModelTimesOut, Call: 2}}})
	if count != 3 {
		t.Errorf("%d of 3 branches succeeded: %q", count, s.Text())
	}
}

// TestWrongFaults: a fault that no call meets fails the test, and so does an invalid one.
func TestWrongFaults(t *testing.T) {
	for want, fault := range map[string]flowtest.Fault{
		`no call met the fault "model fails" of "nobody"`:      {Kind: flowtest.ModelFails, Name: "nobody"},
		`no call met the fault "tool times out" of "" (call 7`: {Kind: flowtest.ToolTimesOut, Call: 7},
		`there is no fault "rain"`:                             {Kind: "rain"},
		"only a model's call is tried again":                   {Kind: flowtest.ToolFails, Tries: 1},
	} {
		said := failure(t, func(t testing.TB) {
			flowtest.Run(t, flow.Func(careful), session.New(session.UserText("go")), "testdata/faults.txtar", &flowtest.Options{Faults: []flowtest.Fault{fault}})
		})
		if !strings.Contains(said, want) {
			t.Errorf("the test says, without %q:\n%s", want, said)
		}
	}
}
