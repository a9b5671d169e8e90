package llmtest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Pause as a piece of an answer waits until the client has disconnected. Pings sends
// empty events until then.
const (
	Pause = "PAUSE"
	Pings = "PINGS"
)

// served runs a test beside a server that answers every request with the pieces, byte
// for byte. If one of the pieces waits, both run in a bubble of testing/synctest, where
// only the waits take time, and the transport way leads to the server.
func served(t *testing.T, pieces []string, test func(t *testing.T, url string, way http.RoundTripper)) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for _, p := range pieces {
			if p == Pause {
				_, _ = conn.Read(make([]byte, 1)) // the client closes
				return
			}
			for err = nil; p == Pings && err == nil; time.Sleep(10 * time.Millisecond) {
				_, err = conn.Write([]byte(Data(`{"type":"ping"}`)))
			}
			if err != nil {
				return
			}
			if _, err := conn.Write([]byte(p)); err != nil {
				return
			}
		}
	})
	if !slices.Contains(pieces, Pause) && !slices.Contains(pieces, Pings) {
		srv := httptest.NewServer(answer)
		defer srv.Close()
		test(t, srv.URL+"/v1", nil)
		return
	}
	synctest.Test(t, func(t *testing.T) {
		wires := pipes{make(chan net.Conn), make(chan struct{})}
		var serving sync.WaitGroup
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serving.Add(1)
			defer serving.Done()
			answer(w, r)
		})}
		serving.Go(func() { _ = srv.Serve(wires) }) // until it is closed
		defer serving.Wait()
		defer srv.Close()
		way := &http.Transport{DialContext: wires.dial}
		defer way.CloseIdleConnections()
		test(t, "http://127.0.0.1:1/v1", way)
	})
}

// pipes are connections within the process.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.accept <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	close(p.closed)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Head is the head of an answer.
func Head(status int, kind string, more ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: %s\r\n%sConnection: close\r\n\r\n", status, kind, strings.Join(more, ""))
}

// SSE is the head of a stream.
var SSE = Head(200, "text/event-stream")

const (
	document     = "application/json"
	chunkedField = "Transfer-Encoding: chunked\r\n"
)

// Data makes events of their data.
func Data(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

func chunked(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func drip(s string) []string { return strings.Split(s, "") }
