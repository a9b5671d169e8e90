package natsserver

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// heldMost bounds the bytes of one connection that wait at the gate. Beyond it the
// server keeps them, and its own limits for slow readers hold.
const heldMost = 1 << 20

// held is the client's end of a connection inside the process, with the gate before the
// server's output. One goroutine at a time reads.
type held struct {
	net.Conn
	gate *gate
	work sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	come    []byte // output that waits at the gate
	err     error  // of the connection, after come
	passed  []byte // only Read uses it
	spare   []byte // likewise
}

func hold(c net.Conn, g *gate) *held {
	h := &held{Conn: c, gate: g}
	h.changed = sync.NewCond(&h.mu)
	h.work.Go(h.take)
	return h
}

// take reads ahead from the server, so that one round serves as much of its output as
// possible.
func (h *held) take() {
	buf := make([]byte, 32<<10)
	for {
		n, err := h.Conn.Read(buf)
		h.mu.Lock()
		for len(h.come) >= heldMost && h.err == nil {
			h.changed.Wait()
		}
		h.come = append(h.come, buf[:n]...)
		if h.err == nil {
			h.err = err
		}
		ended := h.err != nil
		h.changed.Broadcast()
		h.mu.Unlock()
		if ended {
			return
		}
	}
}

// Read implements net.Conn.
func (h *held) Read(p []byte) (int, error) {
	if len(h.passed) == 0 {
		if err := h.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, h.passed)
	h.passed = h.passed[n:]
	return n, nil
}

// next passes everything received so far through the gate.
func (h *held) next() error {
	h.mu.Lock()
	for len(h.come) == 0 && h.err == nil {
		h.changed.Wait()
	}
	if len(h.come) == 0 {
		defer h.mu.Unlock()
		return h.err
	}
	h.passed, h.come, h.spare = h.come, h.spare[:0], nil
	all := h.passed
	h.changed.Broadcast()
	h.mu.Unlock()
	if cap(all) <= heldMost/4 {
		h.spare = all
	}
	if err := h.gate.pass(); err != nil {
		h.passed = nil
		return err
	}
	return nil
}

// Close implements net.Conn.
func (h *held) Close() error {
	err := h.Conn.Close()
	h.mu.Lock()
	if h.err == nil {
		h.err = net.ErrClosed
	}
	h.changed.Broadcast()
	h.mu.Unlock()
	h.work.Wait()
	return err
}

// acceptPause is how long a port waits after it failed to accept a client.
const acceptPause = 50 * time.Millisecond

// port serves clients of a server that listens on no socket itself, because its output has
// to pass the gate.
type port struct {
	net.Listener
	dial func() (net.Conn, error)
	work sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	ended bool
}

func openPort(l net.Listener, dial func() (net.Conn, error)) *port {
	p := &port{Listener: l, dial: dial, conns: map[net.Conn]bool{}}
	p.work.Go(p.serve)
	return p
}

func (p *port) serve() {
	for {
		c, err := p.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files are open, perhaps
			time.Sleep(acceptPause)
			continue
		}
		p.work.Go(func() { p.join(c) })
	}
}

// join connects a client with the server until one of them ends.
func (p *port) join(c net.Conn) {
	defer c.Close()
	server, err := p.dial()
	if err != nil {
		return // the server is restarting: the client reconnects
	}
	defer server.Close()
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return
	}
	p.conns[c] = true
	p.mu.Unlock()
	var said sync.WaitGroup
	said.Go(func() {
		_, _ = io.Copy(server, c)
		_ = server.Close()
	})
	_, _ = io.Copy(c, server)
	_ = c.Close()
	said.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// Close ends all connections and waits for that.
func (p *port) Close() error {
	err := p.Listener.Close()
	p.mu.Lock()
	p.ended = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
	return err
}
