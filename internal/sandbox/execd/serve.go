package execd

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/loopback"
	"github.com/rathcluster/rath/internal/sandbox/mirror"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// server is a running daemon.
type server struct {
	socketDir, state, workspace string
	readOnly                    []string
	path                        string
	env                         map[string]string // of the image
	oomKills                    func() int        // returns how often the container's memory ran out
	carriers                    chan *stream      // in a pod: the holder's connections for connections of commands
	dumpable                    func(bool) error  // in a pod: sets whether this process may be inspected
	backend                     sandbox.Backend   // of the commands; nil is package local

	mu     sync.Mutex
	held   bool
	box    sandbox.Sandbox // nil until the holder opened it
	files  *mirror.Host    // likewise
	uid    int
	killed int // the value of oomKills at the last check
}

// serve listens until the holder is gone, and returns the reason.
func (d *server) serve(lease time.Duration) error {
	l, err := ListenContainer(d.socketDir)
	if err != nil {
		return err
	}
	return d.accept(l, lease)
}

// ListenContainer listens on the address that the holder of a container's daemon dials: a
// socket in dir.
func ListenContainer(dir string) (net.Listener, error) {
	name := filepath.Join(dir, socket)
	l, err := net.Listen("unix", name)
	if err != nil {
		return nil, err
	}
	// The directory excludes other users; the holder need not be this user.
	if err := os.Chmod(name, 0o666); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// accept serves connections until the holder is gone, and closes the listener.
func (d *server) accept(l net.Listener, lease time.Duration) error {
	defer l.Close()
	over := make(chan error, 1)
	end := func(err error) {
		select {
		case over <- err:
		default:
		}
	}
	unheld := time.AfterFunc(lease, func() { end(errors.New("held by no process")) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				end(err)
				return
			}
			go d.connection(&stream{Conn: conn}, unheld, end)
		}
	}()
	// The end of the process is the end of the container, so there is no need to wait.
	return <-over
}

// connection serves one connection, the holder's or a command's.
func (d *server) connection(s *stream, unheld *time.Timer, end func(error)) {
	kept := false
	defer func() {
		if !kept {
			s.Close()
		}
	}()
	if uid, ok := peerUser(s.Conn); ok && d.forbidden(uid) {
		return
	}
	if c, ok := s.Conn.(*tls.Conn); ok {
		ctx, cancel := context.WithTimeout(context.Background(), handshakePatience)
		defer cancel()
		if c.HandshakeContext(ctx) != nil {
			return
		}
	}
	kind, payload, err := s.receive()
	if err != nil {
		return
	}
	switch kind {
	case kindHold:
		var h hold
		if decode(payload, &h) != nil || h.Version != version || h.Lease <= 0 || !d.hold() {
			return
		}
		unheld.Stop()
		end(d.holder(s, h.Lease))
	case kindRun:
		var r request
		if decode(payload, &r) == nil {
			d.run(s, r)
		}
	case kindCarry:
		select {
		case d.carriers <- s: // only in a pod
			kept = true
		default:
		}
	case kindFiles:
		d.serveFiles(s)
	}
}

// forbidden reports whether a peer is a command of this sandbox.
func (d *server) forbidden(uid int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.uid != 0 && uid == d.uid
}

// hold reports whether the caller is the first, which becomes the holder.
func (d *server) hold() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := !d.held
	d.held = true
	return first
}

// holder reads the holder's messages until it is gone, or silent for the lease.
func (d *server) holder(s *stream, lease time.Duration) error {
	for {
		if err := s.SetReadDeadline(time.Now().Add(lease)); err != nil {
			return err
		}
		kind, payload, err := s.receive()
		if err != nil {
			return fmt.Errorf("the holder: %w", err)
		}
		if kind != kindOpen {
			continue
		}
		var o Opening
		var answer opened
		if err = decode(payload, &o); err == nil {
			answer.Capabilities, err = d.open(o)
		}
		if err != nil {
			answer.Error = err.Error()
		}
		if err := s.sendValue(kindOpened, answer); err != nil {
			return err
		}
	}
}

func (d *server) open(o Opening) (can sandbox.Capabilities, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.box != nil {
		return sandbox.Capabilities{}, errors.New("the sandbox is open")
	}
	if d.dumpable != nil {
		// The kernel does not let a process that cannot be inspected set up a network
		// namespace for its children. No command runs yet; see the package.
		if err := d.dumpable(true); err != nil {
			return sandbox.Capabilities{}, err
		}
		if !o.Network.Listed() && !o.Services {
			defer func() { err = errors.Join(err, d.dumpable(false)) }()
		}
	}
	loop, proxy := false, d.carry
	if o.Network.Listed() && d.carriers == nil {
		loop, proxy = true, nil
		if err := loopback.Carry(d.socketDir); err != nil {
			return sandbox.Capabilities{}, fmt.Errorf("the way to the proxy: %w", err)
		}
	}
	loop = loop || o.Services && d.carriers == nil // in a pod commands have a network namespace of their own
	b := d.backend
	if b == nil {
		b = local.New(&local.Options{State: d.state, ReadOnly: d.readOnly, Path: d.path, UID: o.UID, GID: o.GID, Loopback: loop})
	}
	can, err = b.Probe(ctx)
	if err != nil {
		return can, err
	}
	box, err := b.Open(ctx, sandbox.Spec{
		Dir: d.workspace, MinIsolation: sandbox.IsolationProcess,
		Limits: sandbox.Limits{Disk: o.Limits.Disk, PIDs: o.Limits.PIDs}, Network: o.Network, Proxy: proxy, Authority: o.Authority, Services: o.Services,
	})
	if err != nil {
		return sandbox.Capabilities{}, err
	}
	// A directory cannot be executed: the attempt shows that the box can try commands, and
	// leaves a supervisor ready for the first one.
	if e, err := box.Exec(ctx, sandbox.Cmd{Argv: []string{d.workspace}}); err != nil || e.Ended != sandbox.Refused {
		return can, errors.Join(fmt.Errorf("the daemon cannot start commands: %w", cmp.Or(err, fmt.Errorf("%s", e.Ended))), box.Close())
	}
	if err := d.openFiles(o); err != nil {
		return can, errors.Join(err, box.Close())
	}
	d.box, d.uid, d.killed = box, o.UID, d.oomKills()
	return can, nil
}

// run runs one command and sends its result.
func (d *server) run(s *stream, r request) {
	d.mu.Lock()
	box := d.box
	d.mu.Unlock()
	if box == nil {
		_ = s.sendValue(kindResult, newResult(sandbox.Exit{}, errors.New("the sandbox is not open")))
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := r.cmd(d.env)
	in := newInput(func(n int) error {
		return s.send(kindTaken, binary.LittleEndian.AppendUint32(nil, uint32(n)))
	})
	defer in.end(io.EOF)
	if r.Input {
		cmd.Stdin = in
	}
	if r.Offload {
		cmd.Offload = outputs{s}
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer cancel() // a client that is gone does not need its command
		defer in.end(io.EOF)
		for {
			kind, payload, err := s.receive()
			switch {
			case err != nil:
				return
			case kind == kindCancel:
				cancel()
			case kind == kindInput:
				if in.add(payload) != nil {
					return
				}
			case kind == kindEnd:
				in.end(io.EOF)
			}
		}
	}()
	e, err := box.Exec(ctx, cmd)
	if errors.Is(err, sandbox.ErrLost) && d.outOfMemory() { // the killer killed the supervisor
		e, err = OutOfMemory(""), nil
	}
	if err == nil && e.Code != 0 && (e.Ended == sandbox.Exited || e.Ended == sandbox.Signaled) && d.outOfMemory() {
		e.Ended = sandbox.OutOfMem
	}
	// A client that is gone needs no result. A connected client closes the connection when
	// it has the result: if this side closed it with input in flight, the connection would
	// be reset, and the result might be lost (RFC 9112, section 9.6).
	if s.sendValue(kindResult, newResult(e, err)) == nil && s.SetReadDeadline(time.Now().Add(lingers)) == nil {
		<-read
	}
}

// lingers bounds how long a client may take to close a connection after the result.
const lingers = 10 * time.Second

// outOfMemory reports whether memory ran out since the last call.
func (d *server) outOfMemory() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.killed
	d.killed = d.oomKills()
	return d.killed > before
}

// outputs sends output as it is written.
type outputs struct{ s *stream }

func (o outputs) Write(p []byte) (int, error) {
	if err := o.s.send(kindOutput, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
