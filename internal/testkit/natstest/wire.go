package natstest

import (
	"bytes"
	"net"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// Wire lets a test change or cut the data of a connection.
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
		own := bytes.Clone(p) // a writer must not change its argument
		if !hook(own) {
			c.Close()
			return 0, net.ErrClosed
		}
		p = own
	}
	return c.Conn.Write(p)
}

// Once returns a hook that passes the first bytes that contain mark to act, and a function
// that reports whether that happened.
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

// Days returns a hook that moves the times in messages and answers n days ahead, like a
// server whose clock is n days ahead of this process.
func Days(n int) func(b []byte) bool {
	return func(b []byte) bool {
		for _, at := range times.FindAllSubmatchIndex(b, -1) {
			if at[2] >= 0 {
				day := b[at[2]:at[3]]
				if t, err := time.Parse(time.DateOnly, string(day)); err == nil {
					copy(day, t.AddDate(0, 0, n).Format(time.DateOnly))
				}
			} else if ns, err := strconv.ParseInt(string(b[at[4]:at[5]]), 10, 64); err == nil {
				copy(b[at[4]:at[5]], strconv.FormatInt(ns+int64(n)*24*int64(time.Hour), 10))
			}
		}
		return true
	}
}

// times finds the days of times in answers and headers, and the nanoseconds in the subjects
// that messages of a consumer are acknowledged to.
var times = regexp.MustCompile(`([0-9]{4}-[0-9]{2}-[0-9]{2})T|\.([0-9]{18,19})\.`)

// Drop closes the connection.
func Drop([]byte) bool { return false }
