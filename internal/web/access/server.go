package access

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

const (
	// maxConnections bounds the open connections of browsers and programs.
	maxConnections = 8192
	// headerWithin, bodyWithin and answerWithin bound how long a request's header, its body
	// and its answer may take. A stream sets a deadline for each of its writes instead.
	headerWithin, bodyWithin, answerWithin = 10 * time.Second, time.Minute, 5 * time.Minute
	maxHeader                              = 32 << 10
)

// NewServer returns a server of a gateway's handler. Slow clients and large headers end
// their own connections. The requests do not end with ctx.
func NewServer(ctx context.Context, h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			limit, now := http.NewResponseController(w), time.Now()
			_ = limit.SetWriteDeadline(now.Add(answerWithin)) // a connection always has one
			if r.ContentLength != 0 {
				_ = limit.SetReadDeadline(now.Add(bodyWithin))
			}
			h.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: headerWithin, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader,
	}
}

// Limit bounds the open connections of a listener.
func Limit(l net.Listener) net.Listener { return netutil.LimitListener(l, maxConnections) }
