package llmtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Pause as a piece of an answer waits until the client is gone, and Pings sends events
// that say nothing until then.
const (
	Pause = "PAUSE"
	Pings = "PINGS"
)

// Serve answers every request with the pieces, byte for byte, and returns the base URL.
func Serve(t *testing.T, pieces ...string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/v1"
}

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
