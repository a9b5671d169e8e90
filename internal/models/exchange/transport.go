package exchange

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/llm"
)

// maxErrorBody bounds the part of a failing answer that is read.
const maxErrorBody = 64 << 10

// exchange is a request and its answer.
type exchange struct {
	e    *Endpoint
	o    *llm.ServerOptions
	body []byte
	step string
	try  int
	// waits is called with the latest time until which the call waits for the first
	// piece of the answer; it may be nil.
	waits func(until time.Time)
	life  *life
	alive alive // the answer
	// noRetry: the server reported that another try is useless.
	noRetry bool
	// rest is the connection's part of the answer; reading it to its end
	// makes the connection reusable.
	rest io.Reader
	// sent: the whole request was written. answered: the server sent the head
	// of an answer.
	sent     atomic.Bool
	answered bool
}

// send sends the request and returns the events of its answer.
func (x *exchange) send(ctx context.Context, path string) (*events, io.Closer, error) {
	most := x.e.timeouts.Connect
	connect := time.AfterFunc(most, func() { x.life.w.cancel(x.e.Fail(llm.CodeUnavailable, 0, "no connection within %v", most)) })
	connect.Stop()
	defer connect.Stop()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { connect.Reset(most) },
		GotConn:      func(httptrace.GotConnInfo) { connect.Stop() },
		WroteRequest: func(info httptrace.WroteRequestInfo) { x.sent.Store(info.Err == nil) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.e.at(path), bytes.NewReader(x.body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	if path == PathEmbeddings {
		req.Header.Set("Accept", "application/json")
	}
	req.Header.Set("User-Agent", "rath")
	x.e.sign(req.Header)
	if x.step != "" {
		req.Header.Set(llm.StepHeader, x.step)
	}
	if x.try > 1 {
		req.Header.Set(llm.TryHeader, strconv.Itoa(x.try))
	}
	resp, err := x.e.server.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return nil, nil, err
	}
	x.answered, x.rest = true, resp.Body
	body, err := x.receive(resp)
	if err != nil {
		resp.Body.Close()
		return nil, nil, err
	}
	return body, resp.Body, nil
}

// receive checks an answer's head and first bytes.
func (x *exchange) receive(resp *http.Response) (*events, error) {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, x.refused(resp)
	}
	if how := resp.Header.Get("Content-Encoding"); how != "" && !strings.EqualFold(how, "identity") {
		return nil, x.e.Fail(llm.CodeMalformed, resp.StatusCode, "the answer is compressed (%q) without a request for it", llm.Clip(how, 40))
	}
	x.life.sign()
	kind := resp.Header.Get("Content-Type")
	x.alive = alive{Reader: resp.Body, l: x.life, most: maxWire * x.o.MaxResponse, began: time.Now()}
	r := bufio.NewReaderSize(&x.alive, 4<<10)
	switch first, err := firstByte(r); {
	case err == io.EOF:
		return nil, x.e.Fail(llm.CodeTruncated, resp.StatusCode, "the answer is empty")
	case err != nil:
		return nil, err
	case first == '<' || strings.Contains(kind, "html"):
		head, _ := io.ReadAll(io.LimitReader(r, 4<<10))
		return nil, x.e.Fail(llm.CodeMalformed, resp.StatusCode, "the answer is %s; is the base URL %s behind a proxy or a login?",
			llm.Redact(describe(head, kind), x.e.key), x.e.base)
	case first == '{' || first == '[':
		return x.whole(resp, r)
	default:
		return newEvents(r, x.o.MaxFrame), nil
	}
}

// firstByte returns the first byte that is not white space or part of a byte order
// mark, without consuming it.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		switch b {
		case ' ', '\t', '\r', '\n', 0xEF, 0xBB, 0xBF:
		default:
			return b, r.UnreadByte()
		}
	}
}

// maxRefusal bounds the wait for the text of a failing answer after its status.
const maxRefusal = 10 * time.Second

// refused returns the error for a failing status.
func (x *exchange) refused(resp *http.Response) error {
	x.life.end()
	x.life.w.watch(maxRefusal, errTail)
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if strings.EqualFold(resp.Header.Get("X-Should-Retry"), "false") {
		x.noRetry = true
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		to := "elsewhere"
		if u, err := resp.Location(); err == nil {
			to = "to " + u.Scheme + "://" + u.Host
		}
		return x.e.Fail(llm.CodeInvalidRequest, resp.StatusCode, "HTTP %d: the server redirects %s; set the base URL to the final address", resp.StatusCode, to)
	}
	return x.e.serverError(resp.StatusCode, resp.Header, body)
}

// whole turns an answer that is one JSON document into a stream with one event.
func (x *exchange) whole(resp *http.Response, r io.Reader) (*events, error) {
	body, err := io.ReadAll(io.LimitReader(r, int64(x.o.MaxResponse)+1))
	if err != nil {
		return nil, err
	}
	if len(body) > x.o.MaxResponse {
		return nil, x.e.Fail(llm.CodeMalformed, resp.StatusCode, "the answer is larger than %d bytes", x.o.MaxResponse)
	}
	var doc bytes.Buffer
	if err := json.Compact(&doc, body); err != nil {
		if strings.Contains(err.Error(), "unexpected end") {
			return nil, x.e.Fail(llm.CodeTruncated, resp.StatusCode, "the answer stops after %d bytes", len(body))
		}
		return nil, x.e.Fail(llm.CodeMalformed, resp.StatusCode, "the answer is not JSON")
	}
	if doc.Bytes()[0] != '{' {
		return nil, x.e.serverError(0, resp.Header, body)
	}
	return newEvents(io.MultiReader(strings.NewReader("data: "), &doc, strings.NewReader("\ndata: [DONE]\n")), x.o.MaxResponse+16), nil
}

// explain turns an error of the connection into one of package llm. ctx is the context
// of the try, whose cause is more precise.
func (x *exchange) explain(ctx context.Context, err error) error {
	if known, ok := errors.AsType[*llm.Error](err); ok {
		return known
	}
	if cause := context.Cause(ctx); cause != nil {
		if known, ok := errors.AsType[*llm.Error](cause); ok {
			return known
		}
		return x.e.ended(cause)
	}
	said := llm.Clip(llm.Redact(llm.CleanText(err.Error()), x.e.key), maxMessage)
	switch {
	case errors.Is(err, errFlood):
		return x.e.Malformed("%s", said)
	case errors.Is(err, errFrameSize):
		return x.e.Fail(llm.CodeMalformed, 0, "%s (limit %d bytes)", said, x.o.MaxFrame)
	case x.answered:
		return x.e.Fail(llm.CodeTruncated, 0, "the answer broke off: %s", said)
	case x.sent.Load() && timedOut(err): // the server may have worked on it
		return x.e.Fail(llm.CodeTimeout, 0, "the connection went silent before the answer: %s", said)
	default:
		return x.e.Fail(llm.CodeUnavailable, 0, "cannot reach %s: %s", x.e.base, said)
	}
}

// timedOut reports whether a network timeout occurred.
func timedOut(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}
