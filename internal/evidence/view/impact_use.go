package view

import (
	"encoding/json"
	"strings"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// ImpactUse is a later call that used a file which a step had changed.
type ImpactUse struct {
	ImpactStep
	Path string `json:"path"`
	How  string `json:"how"` // UseChanged, UseRead or UseNamed
}

// How a call used a file.
const (
	UseChanged = "changed" // it wrote the file
	UseRead    = "read"    // the file is an argument of it
	UseNamed   = "named"   // its command, or its code, names the file
)

// Calls are the arguments of tool calls, in JSON, by the run and the step of each.
type Calls map[StepKey]string

// Add adds the calls in a row of a transcript: the call with the index i is the step i
// below the step of the row.
func (c Calls) Add(id run.ID, step run.Path, calls []session.ToolCall) {
	for i, call := range calls {
		c[StepKey{id, step.Index(i)}] = call.Args
	}
}

// Use finds the later steps that used the files that the step itself changed. It must
// follow NameFiles.
func (o *Impact) Use(i lineage.Impact, calls Calls) {
	for n := range i.Steps {
		r := &i.Steps[n]
		if r.Kind != messages.KindTool || r.Run == o.Run && r.Step.Within(o.Step) {
			continue
		}
		used := false
		for _, f := range o.Changed {
			how := o.useOf(f.Path, r, calls[StepKey{r.Run, r.Step}])
			if how == "" {
				continue
			}
			used = true
			o.Uses = append(o.Uses, ImpactUse{stepsOf(i.Steps[n : n+1])[0], f.Path, how})
		}
		if !used && isCommand(r.Tool) {
			o.Commands = append(o.Commands, stepsOf(i.Steps[n : n+1])[0])
		}
	}
}

// useOf returns how a call used a file: by its recorded changes, else by its arguments.
func (o *Impact) useOf(path string, r *messages.Record, args string) string {
	for i := range o.changes {
		if c := &o.changes[i]; c.Path == path && c.By.Run == r.Run && c.By.Step == r.Step {
			return UseChanged
		}
	}
	if r.Tool == tool.ListWorkspaceFiles {
		return ""
	}
	var value any
	if json.Unmarshal([]byte(args), &value) != nil {
		return ""
	}
	how := ""
	each(value, func(text string) {
		switch {
		case isCommand(r.Tool):
			if how == "" && names(text, path) {
				how = UseNamed
			}
		case text == path:
			how = UseRead
		}
	})
	return how
}

// isCommand reports whether a tool runs a program, which may read every file.
func isCommand(name string) bool { return name == tool.RunShellCommand || name == tool.RunCode }

// each calls do for the texts in a JSON value.
func each(value any, do func(text string)) {
	switch v := value.(type) {
	case string:
		do(v)
	case []any:
		for _, e := range v {
			each(e, do)
		}
	case map[string]any:
		for _, e := range v {
			each(e, do)
		}
	}
}

// names reports whether a text contains a path as a separate word, not as a part of a
// longer path.
func names(text, path string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], path)
		if i < 0 {
			return false
		}
		from, to := at+i, at+i+len(path)
		before, after := strings.TrimSuffix(text[:from], "./"), text[to:]
		if !endsInPath(before) && !startsInPath(after) {
			return true
		}
		at = from + 1
	}
}

func endsInPath(text string) bool {
	return text != "" && inPath(text[len(text)-1])
}

func startsInPath(text string) bool {
	return text != "" && inPath(text[0]) && (text[0] != '.' || len(text) > 1 && inPath(text[1]))
}

func inPath(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b >= 0x80 || strings.IndexByte("_-./", b) >= 0
}
