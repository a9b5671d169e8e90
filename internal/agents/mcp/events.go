package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
)

// events is the body of a stream of events. The SDK reads from it the messages that pass
// the gate, up to the answer to the request.
type events struct {
	body    io.ReadCloser
	in      *bufio.Reader
	g       *gate
	request envelope // that the stream answers
	out     []byte   // is read next
	err     error    // follows it
}

// newEvents returns the body of the response to a request, which it reads instead of body.
func newEvents(body io.ReadCloser, g *gate, r *http.Request) io.ReadCloser {
	return &events{body: body, in: bufio.NewReaderSize(body, 64<<10), g: g, request: requested(r)}
}

// requested returns the message that a request sends.
func requested(r *http.Request) (m envelope) {
	if r.GetBody == nil {
		return m
	}
	sent, err := r.GetBody()
	if err != nil {
		return m
	}
	defer sent.Close()
	if data, err := io.ReadAll(sent); err == nil {
		m, _ = open(data)
	}
	return m
}

// answerBody is a body with one message, which is mended when it is read.
type answerBody struct {
	io.ReadCloser
	method string
	rest   *bytes.Reader // nil before the first Read
}

// Read implements io.Reader.
func (a *answerBody) Read(p []byte) (int, error) {
	if a.rest == nil {
		data, err := io.ReadAll(a.ReadCloser)
		if err != nil {
			return 0, err
		}
		a.rest = bytes.NewReader(mend(a.method, data))
	}
	return a.rest.Read(p)
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	for len(e.out) == 0 && e.err == nil {
		e.next()
	}
	if len(e.out) == 0 {
		return 0, e.err
	}
	n := copy(p, e.out)
	e.out = e.out[n:]
	return n, nil
}

// Close implements io.Closer.
func (e *events) Close() error { return e.body.Close() }

// next reads an event. Unless it drops the event, it sets out or err.
func (e *events) next() {
	data, err := e.event()
	if err != nil {
		e.err = err
		return
	}
	m, ok := open(data)
	switch {
	case !ok: // the SDK gives the connection up for it
	case m.Method == "" && string(m.ID) == string(e.request.ID):
		data, e.err = mend(e.request.Method, data), io.EOF // after it
	default:
		if data, e.err = e.g.admit(m, data); data == nil {
			return
		}
	}
	e.out = append(append([]byte("data: "), data...), "\n\n"...)
}

// event returns the data of the next event that has some. It joins lines of data by a
// space, which is equivalent to a line break in JSON.
func (e *events) event() (data []byte, err error) {
	size, other := 0, false // other: it is an event of another name
	for {
		line, err := e.line(maxLine - size)
		if err != nil {
			return nil, err
		}
		size += len(line) + 1
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(field) {
		case "data":
			if data != nil {
				data = append(data, ' ')
			}
			data = append(data, value...)
			continue
		case "event":
			other = len(value) > 0 && string(value) != "message"
		}
		if len(line) > 0 {
			continue
		}
		if len(data) > 0 && !other {
			return data, nil
		}
		if err := e.g.charge(1, size); err != nil {
			return nil, err
		}
		data, size, other = nil, 0, false
	}
}

// line returns the next line without its line break, of at most n bytes. It is valid until
// the next call.
func (e *events) line(n int) ([]byte, error) {
	var all []byte
	for {
		part, err := e.in.ReadSlice('\n')
		if len(all)+len(part) > n {
			return nil, e.g.fail(errLong)
		}
		switch {
		case err == nil && all == nil:
			return bytes.TrimRight(part, "\r\n"), nil
		case err == nil || errors.Is(err, io.EOF) && len(all)+len(part) > 0:
			return bytes.TrimRight(append(all, part...), "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
		all = append(all, part...)
	}
}
