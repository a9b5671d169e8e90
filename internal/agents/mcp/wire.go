package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLine is the maximum size of a message in bytes, and maxNoise that of a server's other
// output.
const (
	maxLine  = 16 << 20
	maxNoise = 64 << 10
)

var errLong = fmt.Errorf("it sent a message of more than %d bytes", maxLine)

// byteOrderMark begins the output of some servers.
var byteOrderMark = []byte("\ufeff")

// lines is a connection with one message per line. It skips other lines, such as a banner,
// up to maxNoise.
type lines struct {
	p    *process
	g    *gate
	in   *bufio.Reader
	over int // bytes of lines that were no messages

	writing chan struct{} // has one element during a write

	mu   sync.Mutex
	sent map[string]string // methods of our requests that have no answer yet, by id
}

var _ sdk.Connection = (*lines)(nil)

// Connect implements sdk.Transport.
func (c *lines) Connect(context.Context) (sdk.Connection, error) { return c, nil }

// SessionID implements sdk.Connection.
func (*lines) SessionID() string { return "" }

// Read implements sdk.Connection.
func (c *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		line = bytes.TrimPrefix(line, byteOrderMark)
		if len(line) == 0 {
			if err := c.g.charge(1, 1); err != nil {
				return nil, err
			}
			continue
		}
		if c.p.mark != "" && string(line) == c.p.mark { // it has ended
			_, _ = io.Copy(c.p.said, io.LimitReader(c.in, mostKept))
			close(c.p.told)
			return nil, io.EOF
		}
		if line[0] == '{' {
			if m, ok := open(line); ok {
				if method, ok := c.answers(m); ok {
					line = mend(method, line)
				} else {
					line, err = c.g.admit(m, line)
				}
				if err != nil {
					return nil, err
				}
				if line != nil {
					return jsonrpc.DecodeMessage(line)
				}
				continue
			}
		}
		c.over += len(line)
		if c.over > maxNoise {
			return nil, c.g.fail(fmt.Errorf("it prints a line outside of the protocol: %q", clip(c.p.redact(string(line[:min(len(line), maxNoise)])), 200)))
		}
	}
}

// answers returns the method of our request that a message answers, if any.
func (c *lines) answers(m envelope) (method string, ok bool) {
	if m.Method != "" {
		return "", false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	method, ok = c.sent[string(m.ID)]
	delete(c.sent, string(m.ID))
	return method, ok
}

// sends notes a request before it is written.
func (c *lines) sends(data []byte) {
	m, _ := open(data)
	if !m.call() || m.Method == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == nil {
		c.sent = map[string]string{}
	}
	c.sent[string(m.ID)] = m.Method
}

// line returns the next line without its end.
func (c *lines) line() ([]byte, error) {
	var all []byte
	for {
		part, err := c.in.ReadSlice('\n')
		if len(all)+len(part) > maxLine {
			return nil, c.g.fail(errLong)
		}
		switch {
		case err == nil && all == nil:
			return bytes.TrimSpace(part), nil
		case err == nil:
			return bytes.TrimSpace(append(all, part...)), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, io.EOF // an incomplete line is not a message
		}
		all = append(all, part...)
	}
}

// Write implements sdk.Connection. If a server does not read, the connection is closed soon
// after ctx is done: a partial message is invalid. A server may have read the message, and
// ended ctx by a question, before the write returns.
func (c *lines) Write(ctx context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	if _, ok := m.(*jsonrpc.Response); ok { // no ctx ends its wait; the gate bounds the number of waits
		defer c.g.answered()
	} else {
		c.sends(data)
	}
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	written := make(chan struct{})
	defer close(written)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-written:
		case <-time.After(endGrace):
			c.p.kill()
		}
	})
	defer stop()
	_, err = c.p.stdin.Write(append(data, '\n'))
	return err
}

// Close implements sdk.Connection.
func (c *lines) Close() error { return c.p.close() }
