package flowtest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestOverflowCrashEverywhere: a session that is compressed during the run is the same
// after a crash at any commit.
func TestOverflowCrashEverywhere(t *testing.T) {
	text := tool.Func("text", "Returns a text.", func(_ context.Context, in struct {
		Name string `json:"name"`
	},
	) (string, error) {
		return in.Name + strings.Repeat(" the", 500), nil // of as many tokens, as the script counts them, too
	}, &tool.FuncOptions{Effect: tool.ReadOnly})
	newReader := func() flow.Workflow {
		return &flow.Agent{Name: "reader", Prompt: "You read.", Tools: []tool.Tool{text}, MaxContext: 1500}
	}
	s := session.New(session.UserText("read three texts"))
	out := flowtest.Run(t, newReader(), s, "testdata/overflow.txtar", nil)
	task, _ := out.At(0)
	summary, _ := out.At(1)
	if task.Text() != "read three texts" || summary.Text() != "two of three were read" || out.Text() != "read all" {
		t.Errorf("the session begins with %q and %q and ends with %q", task.Text(), summary.Text(), out.Text())
	}
	flowtest.CrashEverywhere(t, newReader, s, "testdata/overflow.txtar", nil)
}
