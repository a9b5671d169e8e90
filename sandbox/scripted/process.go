package scripted

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"

	"github.com/rathcluster/rath/sandbox"
)

// process is one command with all its subprocesses.
type process struct {
	x    *box
	ctx  context.Context
	stop context.CancelFunc
	cmd  sandbox.Cmd
	dir  string
	env  []string
	in   *os.File

	out, err output

	streams              sync.Mutex // guards the fields below
	over                 bool
	offloaded            int64
	inputErr, offloadErr error

	// life is held during changes of files, and permanently once the command has ended.
	life  sync.RWMutex
	ended bool
}

// signalled is the end of a command by a signal that it sent to itself.
type signalled syscall.Signal

func (s signalled) Error() string { return "signal " + syscall.Signal(s).String() }

func (x *box) start(ctx context.Context, c sandbox.Cmd, dir string) (*process, error) {
	p := &process{x: x, cmd: c, dir: dir}
	p.ctx, p.stop = context.WithCancel(ctx)
	most := c.Output
	if most <= 0 {
		most = sandbox.DefaultOutput
	}
	p.out, p.err = output{p: p, most: most}, output{p: p, most: most}
	env := map[string]string{"PATH": "/usr/bin:/bin", "HOME": x.files.Name(), "TMPDIR": x.tmp, "LANG": "C.UTF-8"}
	maps.Copy(env, c.Env)
	for k, v := range env {
		p.env = append(p.env, k+"="+v)
	}
	slices.Sort(p.env)
	in, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("scripted: exec %q: %w", c.Argv[0], err)
	}
	p.in = in
	go p.feed(to) // it ends when the pipe is no longer read, or with the Read in progress
	return p, nil
}

// run runs the command to its end. Ended is "" if it was stopped.
func (p *process) run() sandbox.Exit {
	defer p.stop()
	// A pending read of standard input ends with the command.
	defer context.AfterFunc(p.ctx, func() { p.in.Close() })()
	if why := cmp.Or(p.tooLarge(), p.missing(p.cmd.Argv[0], p.dir, p.env)); why != "" {
		p.in.Close()
		return sandbox.Exit{Code: 127, Ended: sandbox.Refused, Stderr: sandbox.Output{Head: []byte(why), Total: int64(len(why))}}
	}
	err := p.script(p.ctx, shell{dir: p.dir, env: expand.ListEnviron(p.env...), in: p.in, out: &p.out, err: &p.err}, `"$@"`, "", p.cmd.Argv)
	stopped := p.ctx.Err() != nil
	p.end()
	var exit sandbox.Exit
	p.streams.Lock()
	exit.Stdout, exit.Stderr = p.out.out, p.err.out
	p.streams.Unlock()
	sig, isSignal := errors.AsType[signalled](err)
	status, isStatus := errors.AsType[interp.ExitStatus](err)
	switch {
	case stopped:
	case isSignal:
		exit.Ended, exit.Code = sandbox.Signaled, 128+int(sig)
	case isStatus:
		exit.Ended, exit.Code = sandbox.Exited, int(status)
	case err != nil:
		exit.Ended, exit.Code = sandbox.Exited, 2
		exit.Stderr.Tail = append(exit.Stderr.Tail, err.Error()+"\n"...)
		exit.Stderr.Total += int64(len(err.Error()) + 1)
	default:
		exit.Ended = sandbox.Exited
	}
	return exit
}

// end stops the rest of the command, which has no effect afterwards.
func (p *process) end() {
	p.stop()
	p.in.Close()
	p.life.Lock()
	p.ended = true
	p.life.Unlock()
	p.streams.Lock()
	p.over = true
	p.streams.Unlock()
}

// enter begins a change of files; leave ends it.
func (p *process) enter() (leave func(), err error) {
	p.life.RLock()
	if p.ended || p.ctx.Err() != nil {
		p.life.RUnlock()
		return nil, errEnded
	}
	return p.life.RUnlock, nil
}

// shell is the environment of a script.
type shell struct {
	dir      string
	env      expand.Environ
	in       io.Reader
	out, err io.Writer
}

// script interprets a script with parameters.
func (p *process) script(ctx context.Context, s shell, text, name string, params []string) error {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(text), name)
	if err != nil {
		fmt.Fprintf(s.err, "sh: %v\n", err)
		return interp.ExitStatus(2)
	}
	r, err := interp.New(
		interp.Dir(s.dir), interp.Env(s.env), interp.Params(append([]string{"--"}, params...)...), interp.StdIO(s.in, s.out, s.err),
		interp.CallHandler(notBuiltin), interp.OpenHandler(p.openFile), interp.StatHandler(p.statFile), interp.ReadDirHandler2(p.listDir), interp.AccessHandler(p.access),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return p.program }),
	)
	if err != nil {
		return err
	}
	return r.Run(ctx, file)
}

// notBuiltin replaces kill, which the interpreter would reject as a builtin that it lacks,
// by the path of the program.
func notBuiltin(_ context.Context, args []string) ([]string, error) {
	if args[0] == "kill" {
		args = append([]string{"/bin/kill"}, args[1:]...)
	}
	return args, nil
}

func (p *process) openFile(ctx context.Context, name string, flag int, perm fs.FileMode) (io.ReadWriteCloser, error) {
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	f, err := p.x.disk.open(absolute(interp.HandlerCtx(ctx).Dir, name), flag, perm)
	if err != nil {
		return nil, err
	}
	return &handle{f, p}, nil
}

// handle is an open file of a command.
type handle struct {
	io.ReadWriteCloser
	p *process
}

// Write implements io.Writer.
func (h *handle) Write(b []byte) (int, error) {
	leave, err := h.p.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	return h.ReadWriteCloser.Write(b)
}

func (p *process) statFile(ctx context.Context, name string, follow bool) (fs.FileInfo, error) {
	return p.x.disk.stat(absolute(interp.HandlerCtx(ctx).Dir, name), follow)
}

func (p *process) listDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	return p.x.disk.list(absolute(interp.HandlerCtx(ctx).Dir, name))
}

func (p *process) access(ctx context.Context, name string, _ interp.AccessMode) error {
	_, err := p.statFile(ctx, name, true)
	return err
}

func absolute(dir, name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(dir, name)
}

// program runs a program that is not a builtin of the shell.
func (p *process) program(ctx context.Context, args []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	hc := interp.HandlerCtx(ctx)
	c := &Call{Args: args, Dir: hc.Dir, Stdin: hc.Stdin, Stdout: hc.Stdout, Stderr: hc.Stderr, env: hc.Env, p: p}
	if run := p.lookup(args[0]); run != nil {
		code := run(ctx, c)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if code > 255 {
			return signalled(code - 256)
		}
		if code != 0 {
			return interp.ExitStatus(code) //nolint:gosec // of a command, at most 255
		}
		return nil
	}
	if why := p.missing(args[0], hc.Dir, environ(hc.Env)); why != "" {
		fmt.Fprintln(hc.Stderr, why)
		return interp.ExitStatus(127)
	}
	return p.scriptFile(ctx, c, args[0], args[1:])
}

func environ(e expand.Environ) (all []string) {
	e.Each(func(name string, v expand.Variable) bool {
		if v.Exported {
			all = append(all, name+"="+v.String())
		}
		return true
	})
	return all
}

// lookup returns the function of a program, nil if it has none.
func (p *process) lookup(name string) func(context.Context, *Call) int {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "/usr"), "/bin/")
	if run := p.x.b.o.Commands[name]; run != nil {
		return run
	}
	return programs()[name]
}

// missing returns why a program cannot be started; "" if it can.
func (p *process) missing(name, dir string, env []string) string {
	if strings.HasPrefix(name, "/bin/") || strings.HasPrefix(name, "/usr/bin/") || !strings.Contains(name, "/") {
		found := slices.ContainsFunc(env, func(v string) bool {
			list, ok := strings.CutPrefix(v, "PATH=")
			return ok && slices.ContainsFunc(filepath.SplitList(list), func(d string) bool { return d == "/bin" || d == "/usr/bin" })
		})
		if found && (p.lookup(name) != nil || interp.IsBuiltin(name)) {
			return ""
		}
		return name + ": not found"
	}
	name = absolute(dir, name)
	fi, err := p.x.disk.stat(name, true)
	switch {
	case err != nil:
		return name + ": not found"
	case !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0:
		return name + ": permission denied"
	}
	text, err := p.read(name)
	if first, _, _ := strings.Cut(text, "\n"); err != nil || !strings.HasPrefix(first, "#!/bin/") && !strings.HasPrefix(first, "#!/usr/bin/") || !strings.HasSuffix(first, "sh") {
		return name + ": no script of a shell"
	}
	return ""
}

// read returns the text of a script.
func (p *process) read(name string) (string, error) {
	f, err := p.x.disk.open(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if bytes.IndexByte(data, 0) >= 0 {
		err = errors.New("a binary file")
	}
	return string(data), errors.Join(err, f.Close())
}

// tooLarge returns an error text for a command that is too large for any system to start;
// "" for any other command.
func (p *process) tooLarge() string {
	const one, most = 128 << 10, 2 << 20 // bytes, as on Linux
	all := 0
	for _, s := range slices.Concat(p.cmd.Argv, p.env) {
		if all += len(s) + 9; len(s) >= one || all > most {
			return p.cmd.Argv[0] + ": argument list too long"
		}
	}
	return ""
}

// scriptFile runs a file of the workspace that a shell would run.
func (p *process) scriptFile(ctx context.Context, c *Call, name string, params []string) error {
	text, err := p.read(absolute(c.Dir, name))
	if err != nil {
		fmt.Fprintf(c.Stderr, "%s: %v\n", name, err)
		return interp.ExitStatus(126)
	}
	return p.script(ctx, c.shell(), text, name, params)
}

// number parses an argument.
func number(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
