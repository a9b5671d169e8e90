package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLine bounds a message in bytes, maxNoise what a server may print that is none, and
// maxAnswers the requests of a server whose answers it has not taken yet.
const (
	maxLine    = 16 << 20
	maxNoise   = 64 << 10
	maxAnswers = 64
)

var (
	errLong = fmt.Errorf("it sent a message of more than %d bytes", maxLine)
	errDeaf = fmt.Errorf("it sent requests and did not take the answers to %d of them", maxAnswers)
)

// lines is a connection of messages, one a line. Lines that are no messages, such as a
// banner, are passed over, up to maxNoise.
type lines struct {
	p    *process
	in   *bufio.Reader
	over int // bytes of lines that were no messages

	writing chan struct{} // has one element during a write
	answers atomic.Int64  // that are to be written
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
		if len(line) == 0 {
			continue
		}
		if c.p.mark != "" && string(line) == c.p.mark { // it has ended
			_, _ = io.Copy(c.p.said, io.LimitReader(c.in, mostKept))
			close(c.p.told)
			return nil, io.EOF
		}
		if line[0] == '{' {
			if m, err := jsonrpc.DecodeMessage(line); err == nil {
				return m, nil
			}
		}
		c.over += len(line)
		if c.over > maxNoise {
			err := fmt.Errorf("it prints what is no message of the protocol: %q", clip(c.p.redact(string(line[:min(len(line), maxNoise)])), 200))
			c.p.fail(err)
			return nil, err
		}
	}
}

// line returns the next line without its end.
func (c *lines) line() ([]byte, error) {
	var all []byte
	for {
		part, err := c.in.ReadSlice('\n')
		if len(all)+len(part) > maxLine {
			c.p.fail(errLong)
			return nil, errLong
		}
		switch {
		case err == nil && all == nil:
			return bytes.TrimSpace(part), nil
		case err == nil:
			return bytes.TrimSpace(append(all, part...)), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, io.EOF // what is left of a line is no message
		}
		all = append(all, part...)
	}
}

// Write implements sdk.Connection. A server that does not read loses the connection soon
// after ctx ends: half a message is no message. A server may have read the message, and had
// ctx end by a question, before the write returns.
func (c *lines) Write(ctx context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	if _, ok := m.(*jsonrpc.Response); ok { // no ctx ends its wait
		defer c.answers.Add(-1)
		if c.answers.Add(1) > maxAnswers {
			c.p.fail(errDeaf)
			c.p.kill()
			return errDeaf
		}
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
