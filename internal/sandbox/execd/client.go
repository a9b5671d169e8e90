package execd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rathcluster/rath/sandbox"
)

// Client is the holder of a daemon. Its methods may be called concurrently.
type Client struct {
	connect func(ctx context.Context) (net.Conn, error)
	release func() error // of what connect needs
	hold    *stream
	opened  sync.Mutex

	gone    chan struct{} // closed when the daemon or the client has ended
	waits   atomic.Bool   // a goroutine waits for that
	once    sync.Once
	closing context.Context // ends when Close begins
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// stopGrace is how much longer than a command's timeout its result may take.
const stopGrace = 30 * time.Second

// endPatience is how long the daemon of a pod may take to end.
const endPatience = 2 * time.Second

// Dial takes hold of the daemon whose socket is in a directory of this host. The socket
// need not be there yet: until ctx ends it is looked for. The daemon ends with the
// client's process, with Close, or when it hears nothing for the time of the lease.
func Dial(ctx context.Context, dir string, lease time.Duration) (*Client, error) {
	// The name of a socket must be short, and the directory's need not be.
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), socket)
	return take(ctx, lease, f.Close, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", name)
	})
}

// DialTLS takes hold of the daemon of a pod, which knows the other end of the keys, at the
// address of the pod, as Dial does. Connections are opened from here alone.
func DialTLS(ctx context.Context, ip string, keys *Keys, lease time.Duration) (*Client, error) {
	// A pod whose machine is gone answers nothing, not even that.
	alive := net.KeepAliveConfig{Enable: true, Idle: lease / 3, Interval: lease / 9, Count: 3}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: handshakePatience, KeepAliveConfig: alive}, Config: keys.holder}
	return take(ctx, lease, func() error { return nil }, func(ctx context.Context) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(Port)))
	})
}

// take makes the first connection, for which it tries until ctx ends.
func take(ctx context.Context, lease time.Duration, release func() error, connect func(context.Context) (net.Conn, error)) (*Client, error) {
	c := &Client{connect: connect, release: release, gone: make(chan struct{})}
	var err error
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if c.hold, err = c.dial(ctx); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("the daemon does not answer: %w: %w", context.Cause(ctx), err), release())
		case <-time.After(wait):
		}
	}
	if err := c.hold.sendValue(kindHold, hold{Version: version, Lease: lease}); err != nil {
		return nil, errors.Join(err, c.hold.Close(), release())
	}
	c.closing, c.stop = context.WithCancel(context.Background())
	c.done.Go(func() { c.ping(lease / 3) })
	return c, nil
}

func (c *Client) dial(ctx context.Context) (*stream, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &stream{Conn: conn}, nil
}

// ping tells the daemon that this process lives.
func (c *Client) ping(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-c.closing.Done():
			return
		case <-tick.C:
			if c.hold.send(kindPing, nil) != nil {
				return
			}
		}
	}
}

// Open makes the daemon ready for commands.
func (c *Client) Open(ctx context.Context, o Opening) (sandbox.Capabilities, error) {
	c.opened.Lock()
	defer c.opened.Unlock()
	if t, ok := ctx.Deadline(); ok {
		_ = c.hold.SetReadDeadline(t)
	}
	var answer opened
	err := c.hold.sendValue(kindOpen, o)
	if err == nil {
		err = c.hold.receiveValue(kindOpened, &answer)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = context.DeadlineExceeded
	}
	if err != nil {
		return answer.Capabilities, fmt.Errorf("open the sandbox in the daemon: %w", err)
	}
	if answer.Error != "" {
		return answer.Capabilities, errors.New(answer.Error)
	}
	_ = c.hold.SetReadDeadline(time.Time{})
	c.waits.Store(true)
	c.done.Go(func() {
		defer close(c.gone)
		_, _ = io.Copy(io.Discard, c.hold) // the daemon says nothing more until it ends
	})
	return answer.Capabilities, nil
}

// Gone is closed when an opened daemon has ended.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Close ends the daemon. It waits for that of a pod, whose processes end with it and which
// no other one waits for.
func (c *Client) Close() error {
	var err error
	c.once.Do(func() {
		c.stop()
		if conn, ok := c.hold.Conn.(*tls.Conn); ok && conn.CloseWrite() == nil && c.waits.Load() {
			select {
			case <-c.gone:
			case <-time.After(endPatience):
			}
		}
		err = errors.Join(c.hold.Close(), c.release())
		c.done.Wait()
	})
	return err
}

// ErrGone is that a daemon ended before it told how a command ended.
var ErrGone = errors.New("the daemon of the sandbox is gone")

// Exec does what sandbox.Sandbox says. It returns sandbox.ErrLost and ErrGone when the
// daemon ends before it tells how the command ended.
func (c *Client) Exec(ctx context.Context, cmd sandbox.Cmd) (sandbox.Exit, error) {
	if ctx.Err() != nil {
		return sandbox.Exit{Code: 128 + int(syscall.SIGKILL), Ended: sandbox.Cancelled}, nil
	}
	command, err := encode(newRequest(cmd))
	if err != nil {
		return sandbox.Exit{}, fmt.Errorf("send the command: %w", err)
	}
	lost := func(err error) (sandbox.Exit, error) {
		return sandbox.Exit{}, fmt.Errorf("%w: %w: %w", sandbox.ErrLost, ErrGone, err)
	}
	s, err := c.dial(context.WithoutCancel(ctx))
	if err != nil {
		return lost(err)
	}
	defer s.Close()
	if err := s.send(kindRun, command); err != nil {
		return lost(fmt.Errorf("send the command: %w", err))
	}
	if cmd.Timeout >= 0 {
		_ = s.SetReadDeadline(time.Now().Add(cmp.Or(cmd.Timeout, sandbox.DefaultTimeout) + stopGrace))
	}
	defer context.AfterFunc(ctx, func() { _ = s.send(kindCancel, nil) })()

	input, inErr := newCredit(), make(chan error, 1)
	defer input.stop()
	if cmd.Stdin != nil {
		// Not waited for: a Read of the caller's reader may never return.
		go pumpInput(s, cmd.Stdin, input, inErr)
	}
	var outErr error
	for {
		kind, payload, err := s.receive()
		if err != nil {
			return lost(err)
		}
		switch kind {
		case kindTaken:
			input.add(payload)
		case kindOutput:
			if outErr == nil {
				_, outErr = cmd.Offload.Write(payload)
			}
		case kindResult:
			var res result
			if err := decode(payload, &res); err != nil {
				return lost(err)
			}
			if err := res.err(); err != nil {
				return res.Exit, err
			}
			return res.Exit, streamErrors(cmd.Argv[0], inErr, outErr)
		default:
			return lost(fmt.Errorf("it sent a message of kind %d", kind))
		}
	}
}

// streamErrors are those of the caller's reader and writer.
func streamErrors(program string, in <-chan error, out error) error {
	var errs []error
	select {
	case err := <-in:
		errs = append(errs, fmt.Errorf("read standard input: %w", err))
	default:
	}
	if out != nil {
		errs = append(errs, fmt.Errorf("offload output: %w", out))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("exec %q: %w", program, err)
	}
	return nil
}
