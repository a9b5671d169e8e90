package checks

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/tool"
)

const (
	// maxReport bounds the bytes of a check's output for the model.
	maxReport = 4 << 10
	// maxFiles bounds the arguments of a command.
	maxFiles = 100
)

// Around returns the tools, of which those that edit files also run the checks.
func (l *List) Around(tools []tool.Tool) []tool.Tool {
	if l == nil {
		return tools
	}
	all := slices.Clone(tools)
	for i, t := range all {
		switch t.Spec().Name {
		case tool.ApplyPatch, tool.Edit, tool.WriteWorkspaceFile:
			all[i] = checked{t, l}
		}
	}
	return all
}

// checked is a tool whose result has the reports of the checks, too.
type checked struct {
	tool.Tool
	list *List
}

// report is the result of one check. A check that exits with 0 and prints nothing has none.
type report struct {
	Command  string `json:"command"`
	ExitCode int    `json:"exit_code"`
	Output   string `json:"output,omitempty"`
	TimedOut bool   `json:"timed_out,omitempty"`
}

// Call implements tool.Tool. The checks belong to the call: if it is repeated after a crash,
// they run again, in the same state of the files.
func (c checked) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	r, err := c.Tool.Call(ctx, call)
	if err != nil || r.IsError || call.Sandbox == nil {
		return r, err
	}
	sb, err := call.Sandbox(ctx)
	if err != nil || sb == nil {
		return r, err
	}
	reports, err := c.list.run(ctx, call, sb, changed(call.Args, sb.Info().Dir))
	if err != nil || len(reports) == 0 {
		return r, err
	}
	r.Body, err = with(r.Body, reports)
	return r, err
}

// run runs the checks about these files, one after the other.
func (l *List) run(ctx context.Context, call tool.Call, sb sandbox.Sandbox, names []string) (all []report, err error) {
	for i := range l.checks {
		c := &l.checks[i]
		argv := []string{"/bin/sh", "-c", c.command, "sh"}
		for _, name := range names {
			if _, is := c.files.Match(name, false); is {
				argv = append(argv, "./"+name) // no name is an option
			}
		}
		if len(argv) == 4 {
			continue
		}
		exit, err := sb.Exec(ctx, sandbox.Cmd{ID: call.ID, Argv: argv, Timeout: c.timeout, Output: maxReport})
		if err != nil {
			return nil, fmt.Errorf("check %q: %w", c.command, err)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		out := excerpt.Clip(strings.TrimSpace(text(exit.Stdout)+text(exit.Stderr)), maxReport)
		if exit.Code != 0 || out != "" || exit.Ended == sandbox.Deadline {
			all = append(all, report{c.command, exit.Code, out, exit.Ended == sandbox.Deadline})
		}
	}
	return all, nil
}

// text is a stream of a command, without the part that was cut out of its middle.
func text(o sandbox.Output) string {
	between := ""
	if n := o.Dropped(); n > 0 {
		between = fmt.Sprintf("\n[... %d bytes cut ...]\n", n)
	}
	return strings.ToValidUTF8(string(o.Head)+between+string(o.Tail), "\ufffd")
}

// changed returns the files that the arguments of a call name, relative to the workspace.
func changed(args json.RawMessage, dir string) (names []string) {
	var in struct{ Path, Input string }
	if json.Unmarshal(args, &in) != nil {
		return nil
	}
	add := func(name string) {
		name = path.Clean(strings.TrimPrefix(strings.TrimPrefix(name, dir), "/"))
		if name != "." && name != ".." && !strings.HasPrefix(name, "../") && !slices.Contains(names, name) && len(names) < maxFiles {
			names = append(names, name)
		}
	}
	if in.Path != "" {
		add(in.Path)
	}
	written, _ := tool.PatchedFiles(in.Input)
	for _, name := range written {
		add(name)
	}
	return names
}

// with adds the reports to the body of a result.
func with(body any, reports []report) (any, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if json.Unmarshal(raw, &fields) != nil {
		fields = map[string]any{"result": json.RawMessage(raw)}
	}
	fields["checks"] = reports
	return fields, nil
}
