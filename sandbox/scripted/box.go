package scripted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/directory"
	"github.com/rathcluster/rath/sandbox"
)

// box is one open sandbox.
type box struct {
	b     *Backend
	info  sandbox.Info
	files *directory.Directory
	disk  *disk
	tmp   string

	closing context.Context // ends when Close begins
	close   context.CancelFunc
	lost    atomic.Bool
	once    sync.Once
	err     error // of Close
}

var _ sandbox.Sandbox = (*box)(nil)

func openBox(b *Backend, s sandbox.Spec, info sandbox.Info) (*box, error) {
	files, err := directory.Open(s.Dir, nil)
	if err != nil {
		return nil, fmt.Errorf("scripted: open %q: %w", s.Dir, err)
	}
	info.Dir = files.Name()
	x := &box{b: b, info: info, files: files}
	if x.tmp, err = os.MkdirTemp("", "rath-scripted-"); err == nil {
		x.disk, err = openDisk(files.Name(), x.tmp)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("scripted: open %q: %w", s.Dir, err), files.Close(), sandbox.RemoveTree(x.tmp))
	}
	x.closing, x.close = context.WithCancel(context.Background())
	return x, nil
}

// Info implements sandbox.Sandbox.
func (x *box) Info() sandbox.Info { return x.info }

// Files implements sandbox.Sandbox.
func (x *box) Files() sandbox.Files { return x.files }

// Close implements sandbox.Sandbox.
func (x *box) Close() error {
	x.once.Do(func() {
		x.files.Shut()
		x.close()
		x.files.Wait()
		x.err = errors.Join(x.files.Close(), x.disk.close(), sandbox.RemoveTree(x.tmp))
		x.b.mu.Lock()
		x.b.open--
		x.b.mu.Unlock()
	})
	return x.err
}

// The reasons for stopping a command.
var (
	errDeadline = errors.New("deadline")
	errClosing  = errors.New("closing")
)

// Exec implements sandbox.Sandbox.
func (x *box) Exec(ctx context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
	if err := x.files.Enter(); err != nil {
		return sandbox.Exit{}, err
	}
	defer x.files.Leave()
	if x.lost.Load() {
		return sandbox.Exit{}, errLost
	}
	if err := sensible(c); err != nil {
		return sandbox.Exit{}, err
	}
	const killed = 128 + int(syscall.SIGKILL)
	if ctx.Err() != nil {
		return sandbox.Exit{Code: killed, Ended: sandbox.Cancelled}, nil
	}
	cwd, err := x.files.Sub(c.Dir)
	if err != nil {
		return sandbox.Exit{}, err
	}
	name := cwd.Name()
	if err := cwd.Close(); err != nil {
		return sandbox.Exit{}, err
	}
	fault := x.b.fault(&x.b.execs, LostAnswer, Lost, DiskFull, OutOfMem)

	timeout := cmp.Or(c.Timeout, sandbox.DefaultTimeout)
	if timeout < 0 {
		timeout = math.MaxInt64
	}
	began := time.Now()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(timeout, func() { cancel(errDeadline) }).Stop()
	defer context.AfterFunc(x.closing, func() { cancel(errClosing) })()
	if fault.Kind != "" && fault.Kind != LostAnswer {
		defer time.AfterFunc(fault.Delay, func() { cancel(errFault) }).Stop()
		if fault.Delay == 0 {
			cancel(errFault)
		}
	}
	p, err := x.start(inner, c, name)
	if err != nil {
		return sandbox.Exit{}, err
	}
	exit := p.run()
	exit.Elapsed = max(time.Since(began), 1)
	why := context.Cause(inner)
	if exit.Ended == "" { // stopped
		exit.Code = killed
		switch {
		case errors.Is(why, errClosing):
			return exit, sandbox.ErrClosed
		case errors.Is(why, errDeadline):
			exit.Ended = sandbox.Deadline
		case errors.Is(why, errFault):
			switch fault.Kind {
			case DiskFull:
				exit.Ended = sandbox.DiskFull
			case OutOfMem:
				exit.Ended = sandbox.OutOfMem
			default:
				x.lost.Store(true)
				return exit, errLost
			}
		default:
			exit.Ended = sandbox.Cancelled
		}
	}
	if fault.Kind == LostAnswer {
		return sandbox.Exit{}, errLost
	}
	return exit, p.ioErr()
}

var errFault = errors.New("fault")

// sensible rejects a command that no system could start.
func sensible(c sandbox.Cmd) error {
	bad := func(why string) error { return fmt.Errorf("scripted: exec %q: %s", c.Argv, why) }
	if c.Port != 0 {
		return fmt.Errorf("scripted: %w: commands have no network with ports; let a command say what is ready", sandbox.ErrUnsupported)
	}
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return bad("no program is named")
	}
	if slices.ContainsFunc(c.Argv, func(s string) bool { return strings.IndexByte(s, 0) >= 0 }) {
		return bad("NUL in an argument")
	}
	for k, v := range c.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return bad(fmt.Sprintf("%q is no variable of an environment", k))
		}
	}
	return nil
}

// output keeps the head and the tail of a stream, and passes the stream on.
type output struct {
	p    *process
	most int
	out  sandbox.Output
}

// Write implements io.Writer. After the end of the command writes fail.
func (o *output) Write(b []byte) (int, error) {
	p := o.p
	p.streams.Lock()
	defer p.streams.Unlock()
	if p.over {
		return 0, errEnded
	}
	n := len(b)
	o.out.Total += int64(n)
	most := int64(sandbox.MaxOffload)
	if p.cmd.Timeout < 0 {
		most = math.MaxInt64
	}
	if left := most - p.offloaded; p.cmd.Offload != nil && p.offloadErr == nil && left > 0 {
		k, err := p.cmd.Offload.Write(b[:min(int64(n), left)])
		p.offloaded, p.offloadErr = p.offloaded+int64(k), err
	}
	if room := o.most/2 - len(o.out.Head); room > 0 {
		k := min(room, len(b))
		o.out.Head, b = append(o.out.Head, b[:k]...), b[k:]
	}
	tail := append(o.out.Tail, b...)
	if over := len(tail) - (o.most - o.most/2); over > 0 {
		tail = append(tail[:0], tail[over:]...)
	}
	o.out.Tail = tail
	return n, nil
}

// feed copies standard input to the command, until the input ends or the command stops
// reading.
func (p *process) feed(to *os.File) {
	defer to.Close()
	if p.cmd.Stdin == nil {
		return
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := p.cmd.Stdin.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			p.streams.Lock()
			p.inputErr = err
			p.streams.Unlock()
			return
		}
	}
}

func (p *process) ioErr() error {
	p.streams.Lock()
	defer p.streams.Unlock()
	if err := errors.Join(p.inputErr, p.offloadErr); err != nil {
		return fmt.Errorf("scripted: exec %q: %w", p.cmd.Argv[0], err)
	}
	return nil
}
