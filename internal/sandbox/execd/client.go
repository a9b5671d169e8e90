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
	release func() error // releases the resources of connect
	hold    *stream
	opened  sync.Mutex

	gone    chan struct{} // closed when the daemon or the client has ended
	waits   atomic.Bool   // a goroutine waits for gone
	once    sync.Once
	closing context.Context // ends when Close begins
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// stopGrace is how long a command's result may take beyond its timeout.
const stopGrace = 30 * time.Second

// endPatience is how long the daemon of a pod may take to end.
const endPatience = 2 * time.Second

// Dial becomes the holder of the daemon whose socket is in a directory of this host. The
// socket need not exist yet: Dial retries until ctx ends. The daemon ends with the client's
// process, with Close, or after a silence of the lease's length.
func Dial(ctx context.Context, dir string, lease time.Duration) (*Client, error) {
	// The name of a socket must be short; the directory's may be long.
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

// DialTLS becomes the holder of a pod's daemon at the pod's address, as Dial does. The
// daemon has the other end of the keys. Only this side opens connections.
func DialTLS(ctx context.Context, ip string, keys *Keys, lease time.Duration) (*Client, error) {
	// A pod on a dead machine does not even reset connections.
	alive := net.KeepAliveConfig{Enable: true, Idle: lease / 3, Interval: lease / 9, Count: 3}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: handshakePatience, KeepAliveConfig: alive}, Config: keys.holder}
	return take(ctx, lease, func() error { return nil }, func(ctx context.Context) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(Port)))
	})
}

// take makes the first connection. It retries until ctx ends.
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

// ping periodically notifies the daemon that this process is alive.
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

// Open prepares the daemon for commands.
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
		_, _ = io.Copy(io.Discard, c.hold) // the daemon sends no more messages until it ends
	})
	return answer.Capabilities, nil
}

// Gone is closed when an opened daemon has ended.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Close ends the daemon. It waits for a pod's daemon to end, whose processes end with it
// and which no other party waits for.
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

// ErrGone means that a daemon ended before it reported the outcome of a command.
var ErrGone = errors.New("the daemon of the sandbox is gone")

// Exec implements sandbox.Sandbox's Exec. It returns sandbox.ErrLost and ErrGone if the
// daemon ends before it reports the outcome of the command.
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

// streamErrors joins the errors of the caller's reader and writer.
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
