package flowtest_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// newLead has workers that are tools, one of which has one itself, and hooks.
func newLead() flow.Workflow {
	reader := flow.WorkflowTool("reader", "Reads files.", &flow.Agent{Name: "reader", Prompt: "You read.", Tools: tool.Builtins()})
	asker := flow.WorkflowTool("asker", "Asks others.", &flow.Agent{Name: "asker", Prompt: "You ask.", Tools: []tool.Tool{reader}})
	hooks := flow.Hooks{
		BeforeTool: func(context.Context, tool.Spec, json.RawMessage) (json.RawMessage, error) { return nil, nil },
		End:        func(context.Context, session.Session) error { return nil },
	}
	return &flow.Agent{Name: "lead", Prompt: "You lead.", Tools: append(tool.Builtins(), reader, asker), Hooks: hooks}
}

// TestWorkflowTools: the workers' answers and failures are results of calls, in the order
// of the calls, and their files and rows stay theirs.
func TestWorkflowTools(t *testing.T) {
	s := flowtest.Run(t, newLead(), session.New(session.UserText("what is in the note?")), "testdata/delegate.txtar", nil)
	var rows []string
	for _, c := range s.Chunks() {
		rows = append(rows, string(c.Kind())+" "+c.Name())
	}
	want := []string{"user ", "assistant ", "tool_result read_workspace_file", "tool_result reader", "tool_result asker", "tool_result reader", "tool_result nothing", "assistant "}
	if !slices.Equal(rows, want) {
		t.Errorf("the rows are %q, want %q", rows, want)
	}
	for i, text := range map[int]string{2: "seven", 3: `"it says eight"`, 4: `"the reader agrees"`, 5: `"error_kind":"tool_execution_exception","message":"reader failed`} {
		if c, _ := s.At(i); !strings.Contains(c.Text(), text) {
			t.Errorf("row %d says %s, want %s", i, c.Text(), text)
		}
	}
}

func TestWorkflowToolsCrashEverywhere(t *testing.T) {
	flowtest.CrashEverywhere(t, newLead, session.New(session.UserText("what is in the note?")), "testdata/delegate.txtar", nil)
}
