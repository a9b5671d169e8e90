package natstest

import (
	"bytes"
	"net"
	"sync"
)

// Wire lets a test change or cut what a connection carries.
type Wire struct {
	mu sync.Mutex
	// fromServer and toServer see the bytes of one read or write and may
	// change them in place; false closes the connection instead.
	fromServer, toServer func(b []byte) bool
}

// Through wraps a dialer's connections.
func (w *Wire) Through(dial func() (net.Conn, error)) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		c, err := dial()
		if err != nil {
			return nil, err
		}
		return &wiredConn{c, w}, nil
	}
}

// Set installs hooks; nil passes bytes on.
func (w *Wire) Set(fromServer, toServer func(b []byte) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fromServer, w.toServer = fromServer, toServer
}

func (w *Wire) hooks() (fromServer, toServer func(b []byte) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fromServer, w.toServer
}

type wiredConn struct {
	net.Conn
	w *Wire
}

func (c *wiredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if hook, _ := c.w.hooks(); hook != nil && n > 0 && !hook(p[:n]) {
		c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *wiredConn) Write(p []byte) (int, error) {
	if _, hook := c.w.hooks(); hook != nil {
		own := bytes.Clone(p) // a writer may not change what it was given
		if !hook(own) {
			c.Close()
			return 0, net.ErrClosed
		}
		p = own
	}
	return c.Conn.Write(p)
}

// Once returns a hook that lets act have the first bytes that contain mark,
// and a function that tells whether that happened.
func Once(mark string, act func(b []byte) bool) (hook func(b []byte) bool, fired func() bool) {
	var mu sync.Mutex
	done := false
	hook = func(b []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		if done || !bytes.Contains(b, []byte(mark)) {
			return true
		}
		done = true
		return act(b)
	}
	fired = func() bool {
		mu.Lock()
		defer mu.Unlock()
		return done
	}
	return hook, fired
}

// Replace writes text over the first occurrence of mark, which is at least as
// long, and pads it with spaces.
func Replace(mark, text string) func(b []byte) bool {
	return func(b []byte) bool {
		i := bytes.Index(b, []byte(mark))
		n := copy(b[i:i+len(mark)], text)
		copy(b[i+n:i+len(mark)], bytes.Repeat([]byte(" "), len(mark)-n))
		return true
	}
}

// Drop closes the connection.
func Drop([]byte) bool { return false }
