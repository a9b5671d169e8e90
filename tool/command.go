package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/sandbox"
)

// Limits of the tools that run commands.
const (
	MaxCommand = 32 << 10         // bytes of a shell command
	MaxCode    = 64 << 10         // bytes of a program; kernels accept 128 KiB in one argument
	MaxTimeout = 10 * time.Minute // the longest timeout_ms; without it sandbox.DefaultTimeout
	MaxOutput  = 12_000           // bytes shown of stdout and of stderr, half head, half tail
)

type shellArgs struct {
	Cmd       string `json:"cmd" jsonschema:"what /bin/sh runs; may have several lines, at most 32 KiB"`
	TimeoutMS int64  `json:"timeout_ms,omitempty" jsonschema:"milliseconds after which the command and all it started are killed"`
	Cwd       string `json:"cwd,omitempty" jsonschema:"directory to run in, relative to the workspace"`
}

func (in *shellArgs) names() []*string { return []*string{&in.Cwd} }

type shellBody struct {
	ExitCode  int     `json:"exit_code"`
	Stdout    string  `json:"stdout"`
	Stderr    string  `json:"stderr"`
	ElapsedMS int64   `json:"elapsed_ms"`
	TimedOut  bool    `json:"timed_out,omitempty"`
	OutOfMem  bool    `json:"out_of_memory,omitempty"`
	DiskFull  bool    `json:"disk_full,omitempty"` // it wrote more than the sandbox may hold
	Truncated *cutOut `json:"truncated,omitempty"`
}

// cutOut describes a shortened output: its full length and the blob that stores it.
type cutOut struct {
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	Blob        string `json:"blob,omitempty"` // digest of both streams, interleaved in the order written
	BlobBytes   int64  `json:"blob_bytes,omitempty"`
}

func tuneTimeout(p map[string]*jsonschema.Schema) {
	p["timeout_ms"].Minimum = new(1.0)
	p["timeout_ms"].Maximum = new(float64(MaxTimeout.Milliseconds()))
	p["timeout_ms"].Default = fmt.Appendf(nil, "%d", sandbox.DefaultTimeout.Milliseconds())
}

func runShellCommand() Tool {
	return builtin(RunShellCommand,
		"Runs a shell command in the workspace and returns its exit code and output. "+
			"Of a long output the head and the tail are shown. Nothing keeps running after the command.",
		Sandboxed, func(p map[string]*jsonschema.Schema) {
			p["cmd"].MinLength = new(1)
			tuneTimeout(p)
		}, shell)
}

func shell(ctx context.Context, c Call, sb sandbox.Sandbox, in shellArgs) (any, error) {
	if err := checkProgram("cmd", in.Cmd, MaxCommand); err != nil {
		return nil, err
	}
	out, err := execute(ctx, c, sb, sandbox.Cmd{
		Argv: []string{"/bin/sh", "-c", in.Cmd}, Dir: in.Cwd, Timeout: time.Duration(in.TimeoutMS) * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	if out.refused {
		return nil, &Failure{Kind: OSError, Message: "the command could not be started: " + strings.TrimSpace(out.Stderr), Detail: in.Cwd}
	}
	return out.shellBody, nil
}

// checkProgram rejects a text that cannot be one argument of a process.
func checkProgram(name, text string, limit int) error {
	switch {
	case len(text) > limit:
		return &Failure{
			Kind:    TooLarge,
			Message: fmt.Sprintf("%s has %d bytes, at most %d are taken: write it to a file with %s and run that", name, len(text), limit, WriteWorkspaceFile),
		}
	case strings.ContainsRune(text, 0):
		return &Failure{Kind: InvalidArguments, Message: name + " holds a zero byte"}
	}
	return nil
}

// executed is a command that ran or could not be started.
type executed struct {
	shellBody
	refused bool
}

func execute(ctx context.Context, c Call, sb sandbox.Sandbox, cmd sandbox.Cmd) (_ *executed, err error) {
	cmd.ID, cmd.Output = c.ID, MaxOutput
	var whole *offload
	if c.Blobs != nil {
		whole = new(offload)
		cmd.Offload = whole
		defer func() { err = errors.Join(err, whole.close()) }()
	}
	exit, err := sb.Exec(ctx, cmd)
	if err != nil {
		// A missing program ends as Refused, not as an error, so the failing name is Dir.
		if errors.Is(err, sandbox.ErrPath) || cmd.Dir != "" && errors.Is(err, fs.ErrNotExist) {
			return nil, pathFailure(cmd.Dir, err)
		}
		return nil, sandboxFailure("the command could not be run", err)
	}
	out := &executed{refused: exit.Ended == sandbox.Refused}
	out.ExitCode, out.ElapsedMS = exit.Code, exit.Elapsed.Milliseconds()
	var cutStdout, cutStderr bool
	out.Stdout, cutStdout = show(exit.Stdout)
	out.Stderr, cutStderr = show(exit.Stderr)
	switch exit.Ended {
	case sandbox.Cancelled:
		if ctx.Err() == nil {
			return nil, sandboxFailure("the command", fmt.Errorf("%w: it was cut off without a cancel", sandbox.ErrLost))
		}
		return nil, context.Cause(ctx)
	case sandbox.Deadline:
		out.TimedOut = true
		if out.ExitCode == 0 {
			out.ExitCode = 124 // as timeout(1) has it: a killed command did not succeed
		}
	case sandbox.DiskFull:
		out.DiskFull = true
		if out.ExitCode == 0 {
			out.ExitCode = 137
		}
	case sandbox.OutOfMem:
		out.OutOfMem = true
		if out.ExitCode == 0 {
			out.ExitCode = 137
		}
	}
	if cutStdout || cutStderr {
		out.Truncated = &cutOut{StdoutBytes: exit.Stdout.Total, StderrBytes: exit.Stderr.Total}
		if whole != nil {
			if ref, ok := whole.keep(ctx, c.Blobs); ok {
				out.Truncated.Blob, out.Truncated.BlobBytes = ref.Digest.String(), ref.Size
			}
		}
	}
	return out, nil
}

// show returns the kept parts of an output as text and reports whether the output was
// shortened.
func show(o sandbox.Output) (text string, cut bool) {
	left := o.Total - int64(len(o.Head)) - int64(len(o.Tail))
	if left <= 0 {
		return strings.ToValidUTF8(string(o.Head)+string(o.Tail), "\ufffd"), false
	}
	// A cut may split a character, whose remaining bytes are dropped, too.
	head := trimLast(o.Head)
	tail := o.Tail
	for n := 0; n < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); n++ {
		tail = tail[1:]
	}
	left = o.Total - int64(len(head)) - int64(len(tail))
	return fmt.Sprintf("%s\n[... %d bytes cut ...]\n%s",
		strings.ToValidUTF8(string(head), "\ufffd"), left, strings.ToValidUTF8(string(tail), "\ufffd")), true
}

// trimLast drops an unfinished character from the end.
func trimLast(b []byte) []byte {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i]
			}
			break
		}
	}
	return b
}

type codeArgs struct {
	Code      string `json:"code" jsonschema:"the program, at most 64 KiB"`
	Language  string `json:"language,omitempty" jsonschema:"what it is written in"`
	TimeoutMS int64  `json:"timeout_ms,omitempty" jsonschema:"milliseconds after which the program and all it started are killed"`
}

type codeBody struct {
	Text      *string `json:"text"` // the value of the last expression; these interpreters have none
	Stdout    string  `json:"stdout"`
	Stderr    string  `json:"stderr"`
	Error     *string `json:"error"`
	TimedOut  bool    `json:"timed_out,omitempty"`
	OutOfMem  bool    `json:"out_of_memory,omitempty"`
	DiskFull  bool    `json:"disk_full,omitempty"` // it wrote more than the sandbox may hold
	Truncated *cutOut `json:"truncated,omitempty"`
}

// interpreters maps a language to the programs that run it from an argument, in order of
// preference.
var interpreters = map[string][]string{
	"python": {"python3", "python"},
	"sh":     {"sh"},
	"bash":   {"bash"},
}

func runCode() Tool {
	return builtin(RunCode,
		"Runs a program in the workspace and returns what it printed. error is null if it succeeded. "+
			"Languages: python (default), sh, bash. Each program starts anew.",
		Sandboxed, func(p map[string]*jsonschema.Schema) {
			p["language"].Default = []byte(`"python"`)
			tuneTimeout(p)
		}, code)
}

func code(ctx context.Context, c Call, sb sandbox.Sandbox, in codeArgs) (any, error) {
	if in.Language == "" {
		in.Language = "python"
	}
	programs, ok := interpreters[in.Language]
	if !ok {
		return nil, &Failure{
			Kind: Unsupported, Detail: in.Language,
			Message: fmt.Sprintf("language %q is not supported: use python, sh or bash, or run a compiler with %s", clip(in.Language, 64), RunShellCommand),
		}
	}
	if err := checkProgram("code", in.Code, MaxCode); err != nil {
		return nil, err
	}
	for _, program := range programs {
		out, err := execute(ctx, c, sb, sandbox.Cmd{
			Argv: []string{program, "-c", in.Code}, Timeout: time.Duration(in.TimeoutMS) * time.Millisecond,
			// Byte code would make the state of the workspace depend on the programs that ran.
			Env: map[string]string{"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"},
		})
		if err != nil {
			return nil, err
		}
		if out.refused {
			continue
		}
		body := codeBody{Stdout: out.Stdout, Stderr: out.Stderr, TimedOut: out.TimedOut, OutOfMem: out.OutOfMem, DiskFull: out.DiskFull, Truncated: out.Truncated}
		if out.ExitCode != 0 {
			body.Error = new(problem(out))
		}
		return body, nil
	}
	return nil, &Failure{
		Kind: Unsupported, Detail: in.Language,
		Message: fmt.Sprintf("this sandbox has no interpreter for %s (looked for %s): use another language", in.Language, strings.Join(programs, ", ")),
	}
}

// problem describes why a program failed. It is never empty.
func problem(out *executed) string {
	status := fmt.Sprintf("exit status %d", out.ExitCode)
	switch {
	case out.TimedOut:
		return "timed out and was killed"
	case out.OutOfMem:
		return "ran out of memory and was killed"
	case out.DiskFull:
		return "wrote more than the sandbox may hold and was killed"
	case strings.TrimSpace(out.Stderr) != "":
		return strings.TrimSpace(out.Stderr)
	}
	return status
}
