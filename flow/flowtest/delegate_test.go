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
// of the calls, and their files and rows stay in their own sessions.
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
	t.Parallel()
	flowtest.CrashEverywhere(t, newLead, session.New(session.UserText("what is in the note?")), "testdata/delegate.txtar", nil)
}

// newEditors has a worker that changes files.
func newEditors() flow.Workflow {
	writer := flow.WorkflowTool("writer", "Writes files.", &flow.Agent{Name: "writer", Prompt: "You write.", Tools: tool.Builtins()})
	return &flow.Agent{Name: "lead", Prompt: "You lead.", Tools: append(tool.Builtins(), writer)}
}

// TestWorkflowToolsFiles: the workers' changes to files are merged into those of the
// caller, beside the changes of its other calls in the same round. Both sides of a
// conflict are kept, and the model gets the list of conflicts.
func TestWorkflowToolsFiles(t *testing.T) {
	s := flowtest.Run(t, newEditors(), session.New(session.UserText("go")), "testdata/delegate_files.txtar", nil)
	for i, text := range map[int]string{
		2: `"wrote one"`,
		5: `{"result":"wrote two","conflicts":{"note":"these files were changed here, too, in ways that exclude each other: what was here is at the path, and what this call made of it beside it, as path.writer-3","paths":["a.txt (both added): the session and writer-3 kept, by policy both"]}}`,
		7: `a.txt: one\na.txt.writer-3: two\nhere.txt: here\none.txt: 1\nthere.txt: there\ntwo.txt: 2\n`,
	} {
		if c, _ := s.At(i); !strings.Contains(c.Text(), text) {
			t.Errorf("row %d says %s, want %s", i, c.Text(), text)
		}
	}
}

func TestWorkflowToolsFilesCrashEverywhere(t *testing.T) {
	t.Parallel()
	flowtest.CrashEverywhere(t, newEditors, session.New(session.UserText("go")), "testdata/delegate_files.txtar", nil)
}
