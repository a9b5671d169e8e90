package natsserver

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// adapter writes the server's log to a slog.Logger and keeps the cause of a fatal error,
// which would otherwise end the process.
type adapter struct {
	log *slog.Logger

	mu    sync.Mutex
	cause string
}

var _ server.Logger = (*adapter)(nil)

func newAdapter(l *slog.Logger) *adapter {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return &adapter{log: l.With("component", "nats-server")}
}

// fatal returns the first fatal message, or the empty string.
func (a *adapter) fatal() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cause
}

// begin forgets it: a server starts.
func (a *adapter) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cause = ""
}

func (a *adapter) put(level slog.Level, format string, v []any) {
	ctx := context.Background()
	if a.log.Enabled(ctx, level) {
		a.log.Log(ctx, level, fmt.Sprintf(format, v...))
	}
}

// Noticef logs at debug level: a notice is news for the server's operator,
// not for the user of a program that contains one.
func (a *adapter) Noticef(format string, v ...any) { a.put(slog.LevelDebug, format, v) }

// Warnf drops the advice to hash passwords: they are in memory only.
func (a *adapter) Warnf(format string, v ...any) {
	if !strings.HasPrefix(format, "Plaintext passwords detected") {
		a.put(slog.LevelWarn, format, v)
	}
}

func (a *adapter) Errorf(format string, v ...any) { a.put(slog.LevelError, format, v) }

func (a *adapter) Debugf(format string, v ...any) { a.put(slog.LevelDebug, format, v) }

func (a *adapter) Tracef(format string, v ...any) { a.put(slog.LevelDebug, format, v) }

// Fatalf keeps the message for Start, which returns it.
func (a *adapter) Fatalf(format string, v ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause == "" {
		a.cause = fmt.Sprintf(format, v...)
	}
}
