package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/sandbox"
)

// The names of the built-in tools.
const (
	RunShellCommand     = "run_shell_command"
	RunCode             = "run_code"
	ReadWorkspaceFile   = "read_workspace_file"
	WriteWorkspaceFile  = "write_workspace_file"
	ListWorkspaceFiles  = "list_workspace_files"
	WorkspacePathExists = "workspace_path_exists"
	Edit                = "edit"
	ApplyPatch          = "apply_patch"
	Grep                = "grep"
	Glob                = "glob"
	Fetch               = "fetch"
	Todo                = "todo"
	Skill               = "skill"
	ViewImage           = "view_image"
)

// Builtins returns the tools of every node, sorted by name. All but Todo and Skill need a
// session's sandbox: Fetch uses its network through Call.HTTP, the others its workspace
// through Call.Sandbox. Commands, code, writes, edits and fetches are Sandboxed and share
// the lane "workspace". Reads are ReadOnly and have no lane.
func Builtins() []Tool { return slices.Clone(builtins()) }

// builtins are made once: they do not change, and their schemas take long.
var builtins = sync.OnceValue(func() []Tool {
	return []Tool{
		applyPatch(), edit(), fetch(), glob(), grep(), listWorkspaceFiles(), readWorkspaceFile(), runCode(), runShellCommand(), skill(), todo(), viewImage(), workspacePathExists(), writeWorkspaceFile(),
	}
})

// ByName returns the built-in tool of that name.
func ByName(name string) (Tool, bool) {
	for _, t := range builtins() {
		if t.Spec().Name == name {
			return t, true
		}
	}
	return nil, false
}

// builtin returns a tool whose function receives the session's sandbox.
func builtin[In any](name, description string, e Effect, tune func(map[string]*jsonschema.Schema),
	fn func(context.Context, Call, sandbox.Sandbox, In) (any, error),
) Tool {
	return own(name, description, e, tune, func(ctx context.Context, c Call, in In) (any, error) {
		sb, err := open(ctx, c)
		if err != nil {
			return nil, err
		}
		if n, ok := any(&in).(named); ok {
			for _, name := range n.names() {
				*name = within(sb.Info().Dir, *name)
			}
		}
		return fn(ctx, c, sb, in)
	})
}

// named are arguments with names of files and directories.
type named interface{ names() []*string }

// within returns name relative to the workspace, whose path for commands is dir: models
// return the absolute names that commands print. Any other name is unchanged.
func within(dir, name string) string {
	if dir == "" || !path.IsAbs(name) {
		return name
	}
	switch rest, below := strings.CutPrefix(name, dir+"/"); {
	case below && strings.Trim(rest, "/") != "":
		return strings.TrimLeft(rest, "/")
	case below || name == dir:
		return "."
	}
	return name
}

// own makes a tool of a function of this package.
func own[In any](name, description string, e Effect, tune func(map[string]*jsonschema.Schema), fn func(context.Context, Call, In) (any, error)) Tool {
	schema, err := schemaOf[In](tune)
	if err != nil {
		panic(err) // the types are those of this package
	}
	return newFunction(Spec{Name: name, Description: description, Schema: schema, Effect: e}, "built in", fn)
}

func open(ctx context.Context, c Call) (sandbox.Sandbox, error) {
	if c.Sandbox == nil {
		return nil, &Failure{
			Kind:    SandboxMissing,
			Message: `this session has no sandbox; the workflow binds one with s.To("local", dir), a task with its workspace`,
		}
	}
	sb, err := c.Sandbox(ctx)
	switch {
	case err != nil:
		return nil, unopened(err)
	case sb == nil:
		return nil, &Failure{Kind: SandboxMissing, Message: "this session has no sandbox"}
	}
	return sb, nil
}

// unopened is why a sandbox cannot be opened.
func unopened(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return &Failure{Kind: SandboxUnavailable, Message: "the session's sandbox cannot be opened: " + reasonOf(err), Err: err}
}

// pathFailure converts an error about a name in the workspace to a failure for the model.
// It omits the sandbox's own texts, which may contain paths of the host.
func pathFailure(name string, err error) error {
	f := &Failure{Detail: name, Err: err}
	switch {
	case errors.Is(err, sandbox.ErrPath):
		f.Kind = PathRefused
		f.Message = fmt.Sprintf("%q is refused: want the name of a regular file or directory, relative to the workspace and inside it", name)
	case errors.Is(err, sandbox.ErrTooMany):
		f.Kind, f.Message = TooLarge, fmt.Sprintf("%q has more than %d entries: list a part of them with %s", name, sandbox.MaxList, RunShellCommand)
	case errors.Is(err, fs.ErrNotExist):
		f.Kind, f.Message = FileNotFound, fmt.Sprintf("there is no %q in the workspace", name)
	default:
		return sandboxFailure(fmt.Sprintf("%q", name), err)
	}
	return f
}

// sandboxFailure converts an error of the sandbox itself to a failure for the model.
func sandboxFailure(what string, err error) *Failure {
	f := &Failure{Err: err}
	switch {
	case errors.Is(err, sandbox.ErrClosed):
		f.Kind, f.Message = SandboxClosed, "the session's sandbox was closed under the call, because it died during another one or the run ends; what the call did is unknown"
	case errors.Is(err, sandbox.ErrLost):
		f.Kind, f.Message = SandboxLost, "the session's sandbox died; what the call did is unknown"
	case errors.Is(err, sandbox.ErrUnsupported):
		f.Kind, f.Message = Unsupported, "this sandbox does not support it: "+what
	case errors.Is(err, context.DeadlineExceeded):
		f.Kind, f.Message = Timeout, what+": the deadline passed"
	default:
		f.Kind, f.Message = OSError, what+": "+reasonOf(err)
	}
	return f
}

// reasonOf is the text of an error without the host's path in it.
func reasonOf(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Op + ": " + p.Err.Error()
	}
	return err.Error()
}
