package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/sandbox/confinement"
	"github.com/rathcluster/rath/sandbox"
)

const (
	// stopGrace is how long a supervisor may take to kill a tree.
	stopGrace = 12 * time.Second
	// drainGrace is how long output is read after the tree has ended.
	drainGrace = time.Second
)

// command is a validated sandbox.Cmd with everything a platform needs.
type command struct {
	argv   []string
	env    []string // complete
	cwd    *os.File // the directory to run in
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	port   int // see sandbox.Cmd
}

// process is a started command of a platform.
type process interface {
	stop()                               // kill the tree; returns at once, may be called twice
	abandon()                            // stop failed: kill whatever can be killed
	done() <-chan struct{}               // closed when the tree has ended
	result() (confinement.Result, error) // valid once done; an error means lost
}

// Exec implements sandbox.Sandbox.
func (b *box) Exec(ctx context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
	if err := b.files.Enter(); err != nil {
		return sandbox.Exit{}, err
	}
	defer b.files.Leave()
	if c.Port != 0 && !b.info.Services {
		return sandbox.Exit{}, fmt.Errorf("local: exec: %w: a port of a sandbox that was opened without services", sandbox.ErrUnsupported)
	}
	env, err := b.environment(c)
	if err != nil {
		return sandbox.Exit{}, err
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Exit{Code: 128 + int(syscall.SIGKILL), Ended: sandbox.Cancelled}, nil
	}
	cwd, err := b.files.Sub(c.Dir)
	if err != nil {
		return sandbox.Exit{}, err
	}
	defer cwd.Close()

	// Reject arguments that the kernel would reject: a supervisor, with its little memory,
	// would take longer to read megabytes of them than a command may take.
	if err := fits(c.Argv, env); err != nil {
		return notStarted(fmt.Sprintf("cannot start %q: %v", c.Argv[0], err)), nil
	}
	s, err := openStreams(c)
	if err != nil {
		return sandbox.Exit{}, fmt.Errorf("local: exec %q: %w", c.Argv[0], err)
	}
	defer s.close()
	began, killed := time.Now(), b.groups.killed()
	p, err := b.start(command{argv: c.Argv, env: env, cwd: cwd, stdin: s.childIn, stdout: s.childOut, stderr: s.childErr, port: c.Port})
	if err != nil {
		return sandbox.Exit{}, fmt.Errorf("local: exec %q: %w", c.Argv[0], err)
	}
	s.pump()

	ended := b.await(ctx, p, c.Timeout)
	elapsed := time.Since(began)
	var abandoned error
	select {
	case <-p.done():
	default:
		p.abandon()
		abandoned = fmt.Errorf("its supervisor did not end it within %v and was killed", stopGrace)
		select {
		case <-p.done():
		case <-time.After(stopGrace):
			abandoned = errors.New("processes are left that could not be killed")
		}
	}
	ioErr := s.finish()
	exit := sandbox.Exit{Elapsed: elapsed, Stdout: kept(s.out), Stderr: kept(s.err)}
	if abandoned != nil {
		b.lost.Store(true)
		return exit, fmt.Errorf("local: exec %q: %w: %w", c.Argv[0], sandbox.ErrLost, abandoned)
	}
	r, err := p.result()
	if err != nil {
		b.lost.Store(true)
		return exit, fmt.Errorf("local: exec %q: %w: %w", c.Argv[0], sandbox.ErrLost, err)
	}
	if r.Refused == "" {
		b.held.Store(&r.Held)
	}
	exit.Code = r.Code
	if r.Note != "" {
		fmt.Fprintf(s.err, "[%s]\n", r.Note)
		exit.Stderr = kept(s.err)
	}
	switch {
	case r.Refused != "":
		refused := notStarted(r.Refused)
		refused.Elapsed, refused.Stdout = exit.Elapsed, exit.Stdout
		exit = refused
	case r.Stopped && b.closing.Err() != nil:
		return exit, sandbox.ErrClosed
	case r.Stopped:
		exit.Ended = ended
	case r.Full:
		exit.Ended, exit.Code = sandbox.DiskFull, cmp.Or(r.Code, 128+int(syscall.SIGKILL))
	case r.Code != 0 && b.groups.killed() > killed:
		exit.Ended = sandbox.OutOfMem
	case r.Signal != 0:
		exit.Ended = sandbox.Signaled
	default:
		exit.Ended = sandbox.Exited
	}
	if ioErr != nil {
		return exit, fmt.Errorf("local: exec %q: %w", c.Argv[0], ioErr)
	}
	return exit, nil
}

// notStarted returns the Exit of a command that could not be started.
func notStarted(why string) sandbox.Exit {
	return sandbox.Exit{Ended: sandbox.Refused, Code: 127, Stderr: sandbox.Output{Head: []byte(why), Total: int64(len(why))}}
}

// await waits for the command, stops it when required, and returns the reason. When it
// returns, the tree has ended or stopGrace is over.
func (b *box) await(ctx context.Context, p process, timeout time.Duration) sandbox.End {
	timer := time.NewTimer(cmp.Or(timeout, sandbox.DefaultTimeout))
	defer timer.Stop()
	if timeout < 0 {
		timer.Stop()
	}
	var why sandbox.End
	select {
	case <-p.done():
		return sandbox.Exited
	case <-timer.C:
		why = sandbox.Deadline
	case <-ctx.Done():
		why = sandbox.Cancelled
	case <-b.closing.Done():
		why = sandbox.Cancelled
	}
	p.stop()
	timer.Reset(stopGrace)
	select {
	case <-p.done():
	case <-timer.C:
	}
	return why
}

// environment checks the strings of a command and returns its environment: a few variables
// of the sandbox and the command's own, none of this process.
func (b *box) environment(c sandbox.Cmd) ([]string, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return nil, errors.New("local: exec: the command has no program; set Argv")
	}
	for _, a := range c.Argv {
		if strings.IndexByte(a, 0) >= 0 {
			return nil, fmt.Errorf("local: exec: argument %q contains NUL", a)
		}
	}
	vars := baseEnv(b)
	for k, v := range c.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return nil, fmt.Errorf("local: exec %q: the environment variable %q cannot be passed", c.Argv[0], k)
		}
		vars[k] = v
	}
	env := make([]string, 0, len(vars))
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, k+"="+vars[k])
	}
	return env, nil
}

// streams are the pipes of one command.
type streams struct {
	childIn, childOut, childErr *os.File
	in, outR, errR              *os.File
	stdin                       io.Reader
	out, err                    *excerpt.Capture
	offload                     *offload

	readers sync.WaitGroup
	mu      sync.Mutex // guards inErr
	inErr   error
}

// newCapture returns a capture of limit bytes, or of the default.
func newCapture(limit int) *excerpt.Capture {
	if limit <= 0 {
		limit = sandbox.DefaultOutput
	}
	return excerpt.NewCapture(limit)
}

func kept(c *excerpt.Capture) (o sandbox.Output) {
	o.Head, o.Tail, o.Total = c.Kept()
	return o
}

func openStreams(c sandbox.Cmd) (_ *streams, err error) {
	s := &streams{stdin: c.Stdin, out: newCapture(c.Output), err: newCapture(c.Output), offload: &offload{w: c.Offload, most: sandbox.MaxOffload}}
	if c.Timeout < 0 {
		s.offload.most = math.MaxInt
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if c.Stdin == nil {
		s.childIn, err = os.Open(os.DevNull)
	} else {
		s.childIn, s.in, err = os.Pipe()
	}
	if err != nil {
		return nil, err
	}
	if s.outR, s.childOut, err = os.Pipe(); err != nil {
		return nil, err
	}
	s.errR, s.childErr, err = os.Pipe()
	return s, err
}

// close closes the remaining open files; closing a file twice is harmless.
func (s *streams) close() {
	for _, f := range []*os.File{s.childIn, s.childOut, s.childErr, s.in, s.outR, s.errR} {
		if f != nil {
			f.Close()
		}
	}
}

// pump moves bytes until the command's ends of the pipes are closed.
func (s *streams) pump() {
	for _, f := range []*os.File{s.childIn, s.childOut, s.childErr} {
		f.Close()
	}
	read := func(r *os.File, c *excerpt.Capture) {
		take := func(b []byte) {
			c.Write(b) // never fails
			s.offload.write(b)
		}
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Read(buf)
			take(buf[:n])
			if errors.Is(err, os.ErrDeadlineExceeded) {
				// The deadline bounds the wait for a process that holds the other end.
				// Output written before is in the pipe, however late this reader is.
				unread(r, buf, take)
			}
			if err != nil {
				return // the end, or the deadline that finish set
			}
		}
	}
	s.readers.Go(func() { read(s.outR, s.out) })
	s.readers.Go(func() { read(s.errR, s.err) })
	if s.stdin == nil {
		return
	}
	// Not waited for: a Read of the caller's reader may never return. Afterwards it touches
	// only inErr.
	go func() {
		_, err := io.Copy(s.in, s.stdin)
		// A command need not read all its input, so a broken pipe is no error.
		if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
			s.mu.Lock()
			s.inErr = err
			s.mu.Unlock()
		}
		s.in.Close() // after that the command may end, and finish read the error
	}()
}

// finish ends the readers, after drainGrace at the latest, even if a process holds the
// other end of a pipe, and returns the errors of this side.
func (s *streams) finish() error {
	limit := time.Now().Add(drainGrace)
	s.outR.SetReadDeadline(limit)
	s.errR.SetReadDeadline(limit)
	s.readers.Wait()
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.inErr != nil {
		errs = append(errs, fmt.Errorf("read standard input: %w", s.inErr))
	}
	if s.offload.err != nil {
		errs = append(errs, fmt.Errorf("offload output: %w", s.offload.err))
	}
	return errors.Join(errs...)
}

// offload passes both streams to one writer, up to most bytes. A writer that failed gets no
// more data; the command does not notice.
type offload struct {
	mu   sync.Mutex
	w    io.Writer
	most int
	n    int
	err  error
}

func (s *offload) write(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p[:min(len(p), s.most-s.n)]
	if s.w == nil || s.err != nil || len(p) == 0 {
		return
	}
	n, err := s.w.Write(p)
	s.n += n
	s.err = err
}
