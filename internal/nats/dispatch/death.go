package dispatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

const (
	// verbDeath requests the cause of a node's end: the process that started it answers.
	verbDeath = "death"
	// deathTimeout bounds the request. No process answers for most nodes.
	deathTimeout = 500 * time.Millisecond
)

// LastWords returns the cause of an incarnation's end from the process that started it, ""
// if none answers.
func (d *Delivery) LastWords(ctx context.Context, incarnation string) string {
	if session.ValidID("incarnation", incarnation) != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, deathTimeout)
	defer cancel()
	m, err := d.conn.NC.RequestWithContext(ctx, messages.NodeSubject(incarnation, verbDeath), nil)
	if err != nil {
		return ""
	}
	return string(m.Data)
}

// ServeDeaths answers for the nodes that this process started until ctx ends: died returns
// the cause of an incarnation's end, "" for an unknown or living one.
func (d *Delivery) ServeDeaths(ctx context.Context, died func(incarnation string) string) error {
	sub, err := d.conn.NC.Subscribe(messages.NodeSubject("*", verbDeath), func(m *nats.Msg) {
		incarnation, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, messages.NodePrefix), ".")
		if words := died(incarnation); words != "" {
			_ = m.Respond([]byte(words)) // a node without an answer reports that the node was lost
		}
	})
	if err != nil {
		return fmt.Errorf("nats/dispatch: answer for nodes that died: %w", err)
	}
	<-ctx.Done()
	_ = sub.Unsubscribe() // fails only when the connection has ended
	return nil
}
