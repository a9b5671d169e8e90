package access_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/web/access"
)

// TestServer sends requests that are no HTTP, too large, cut off, or half closed. Each ends
// its own connection, and no handler gets the part for the whole.
func TestServer(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	srv := httptest.NewUnstartedServer(h)
	srv.Config = access.NewServer(t.Context(), h, slog.New(slog.DiscardHandler))
	srv.Start()
	defer srv.Close()
	const head = "Host: x\r\n"
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"whole":              {"PUT / HTTP/1.1\r\n" + head + "Content-Length: 2\r\n\r\n{}", 200},
		"no HTTP":            {"\x16\x03\x01\x02\x00\r\n\r\n", 400},
		"a large header":     {"GET / HTTP/1.1\r\n" + head + "X: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", 431},
		"half a body":        {"PUT / HTTP/1.1\r\n" + head + "Content-Length: 20\r\n\r\n{}", 400},
		"a broken chunk":     {"PUT / HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
		"two lengths":        {"PUT / HTTP/1.1\r\n" + head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
		"two framings":       {"PUT / HTTP/1.1\r\n" + head + "Content-Length: 2\r\nTransfer-Encoding: gzip\r\n\r\n{}", 501},
		"no host":            {"GET / HTTP/1.1\r\n\r\n", 400},
		"a header cut short": {"GET / HTTP/1.1\r\nHos", 400},
	} {
		conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", srv.Listener.Addr().String()))(t)
		_, _ = io.WriteString(conn, c.request) // the server may have answered before its end
		must.Report(t, conn.(*net.TCPConn).CloseWrite())
		status := 0
		if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			status = res.StatusCode
			must.Report(t, res.Body.Close())
		}
		must.Report(t, conn.Close())
		if status != c.status {
			t.Errorf("%s: %d, want %d", name, status, c.status)
		}
	}
}

// oneConn is a listener with one connection.
type oneConn struct {
	net.Listener
	conns chan net.Conn
}

func (l *oneConn) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestSlowClient sends a header, and a body, a byte every second: the server ends both.
func TestSlowClient(t *testing.T) {
	for name, c := range map[string]struct {
		begins string
		within time.Duration
	}{
		"header": {"GET / HTTP/1.1\r\nX: ", 13 * time.Second},
		"body":   {"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 62 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failed error
				srv := access.NewServer(context.Background(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, failed = io.ReadAll(r.Body)
				}), slog.New(slog.DiscardHandler))
				ours, theirs := net.Pipe()
				l := &oneConn{conns: make(chan net.Conn, 1)}
				l.conns <- theirs
				go srv.Serve(l) //nolint:errcheck // it ends with its listener
				go func() { _, _ = io.Copy(io.Discard, ours) }()
				began := time.Now()
				_, err := io.WriteString(ours, c.begins)
				for ; err == nil; time.Sleep(time.Second) {
					_, err = io.WriteString(ours, "x")
				}
				if took := time.Since(began); took > c.within || name == "body" && failed == nil {
					t.Errorf("ended after %v, the body's error is %v", took, failed)
				}
				must.Report(t, ours.Close())
				close(l.conns)
				must.Report(t, srv.Close())
				synctest.Wait()
			})
		})
	}
}
