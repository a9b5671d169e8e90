package rules

import (
	"bytes"
	"encoding/json"
	"net/url"
	"path"
	"strings"

	"github.com/rathcluster/rath/tool"
)

// Call is a call of a tool by a model.
type Call struct {
	Tenant, Workflow, Agent, Tool string
	Args                          []byte // JSON
	// Dir is the path of the workspace for commands, such as "/workspace".
	Dir string
	// Link returns the target of a path in the workspace that is a symbolic link; nil stands
	// for a workspace without links.
	Link func(name string) (target string, ok bool)
}

// facts are the parts of a call that conditions are about, read when they are needed.
type facts struct {
	call   *Call
	args   map[string]any
	object bool // args were read
	parsed *line
}

func (f *facts) fields() map[string]any {
	if !f.object {
		d := json.NewDecoder(bytes.NewReader(f.call.Args))
		d.UseNumber()
		_ = d.Decode(&f.args) // other arguments have no fields
		f.object = true
	}
	return f.args
}

func (f *facts) text(name string) string {
	s, _ := f.fields()[name].(string)
	return s
}

// line returns the command line of the call; ok is false for a call without one.
func (f *facts) line() (l *line, ok bool) {
	if f.call.Tool != tool.RunShellCommand {
		return nil, false
	}
	if f.parsed == nil {
		f.parsed = new(read(f.text("cmd")))
	}
	return f.parsed, true
}

// words are the words of the command line that may be paths.
func (f *facts) words() (all []string) {
	l, ok := f.line()
	if !ok {
		return nil
	}
	for _, c := range l.commands {
		for _, w := range c {
			all = append(all, w.text)
			if _, value, ok := strings.Cut(w.text, "="); ok {
				all = append(all, value)
			}
		}
	}
	return all
}

// clean returns the path in the workspace that a name has: "../x" for a path outside of it.
func (f *facts) clean(name string) string {
	if path.IsAbs(name) {
		rest, below := strings.CutPrefix(path.Clean(name)+"/", strings.TrimRight(f.call.Dir, "/")+"/")
		if !below || f.call.Dir == "" {
			return ".." + path.Clean(name)
		}
		name = rest
	}
	return f.follow(path.Join(f.cwd(), name))
}

// maxLinks bounds the links on the way of one path.
const maxLinks = 32

// follow returns the path that a path of the workspace has after its symbolic links.
func (f *facts) follow(name string) string {
	if f.call.Link == nil {
		return name
	}
	links := 0
	for i := 0; i < len(name); i++ {
		if i+1 < len(name) && name[i+1] != '/' {
			continue
		}
		to, ok := f.call.Link(name[:i+1])
		if !ok {
			continue
		}
		if links++; links > maxLinks || path.IsAbs(to) {
			return ".." + path.Join("/", to, name[i+1:])
		}
		name, i = path.Join(path.Dir(name[:i+1]), to, name[i+1:]), -1
		if name == ".." || strings.HasPrefix(name, "../") {
			break
		}
	}
	return name
}

// cwd is the folder of a command.
func (f *facts) cwd() string {
	if f.call.Tool != tool.RunShellCommand {
		return ""
	}
	return strings.TrimPrefix(strings.TrimPrefix(f.text("cwd"), f.call.Dir), "/")
}

// paths returns the paths in the workspace that the call names; m is maybe if it may have
// others.
func (f *facts) paths() (names []string, m match) {
	switch f.call.Tool {
	case tool.RunShellCommand:
		return nil, no // words may be paths
	case tool.RunCode:
		return nil, maybe
	case tool.ApplyPatch:
		written, removed := tool.PatchedFiles(f.text("input"))
		for _, name := range append(written, removed...) {
			names = append(names, f.clean(name))
		}
		return names, holds(len(names) > 0)
	}
	name := f.text("path")
	if name == "" {
		return nil, no
	}
	return []string{f.clean(name)}, yes
}

// hosts returns the hosts of the addresses in the call. words includes those in a command.
func (f *facts) hosts(words bool) (all []string) {
	add := func(text string) {
		if u, err := url.Parse(text); err == nil && u.Hostname() != "" {
			all = append(all, u.Hostname())
		}
	}
	add(f.text("url"))
	if words {
		for _, w := range f.words() {
			if strings.Contains(w, "://") {
				add(w)
			}
		}
	}
	return all
}

// arg returns an argument by its name.
func (f *facts) arg(name string) (v any, ok bool) {
	v = f.fields()
	for part := range strings.SplitSeq(name, ".") {
		fields, isObject := v.(map[string]any)
		if v, ok = fields[part]; !isObject || !ok {
			return nil, false
		}
	}
	return v, true
}
