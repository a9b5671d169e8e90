package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// pingTimeout bounds the question whether an incarnation lives.
const pingTimeout = time.Second

// Delivery brings work to the incarnations that hold sessions. It is safe for concurrent
// use.
type Delivery struct{ conn *conn.Conn }

// Deliver hands work to the incarnation that holds a session and returns its answer, or its
// error. It fails when no node answers before ctx ends, and at once if no node listens
// there.
func (d *Delivery) Deliver(ctx context.Context, incarnation string, w journal.Work) (journal.Answer, error) {
	if err := session.ValidID("incarnation", incarnation); err != nil {
		return "", err
	}
	body := translate.WorkOf(w)
	data, err := body.Encode()
	if err != nil {
		return "", err
	}
	reply, err := d.conn.Await(ctx, messages.DeliverSubject(incarnation), data)
	if err != nil {
		return "", fmt.Errorf("nats/dispatch: deliver to %s: %w", incarnation, err)
	}
	a, err := wire.DecodeAnswer(reply.Data)
	if err != nil {
		return "", fmt.Errorf("nats/dispatch: deliver to %s: %w", incarnation, err)
	}
	return journal.Answer(a.Note), a.Err()
}

// Ping reports whether an incarnation answers.
func (d *Delivery) Ping(ctx context.Context, incarnation string) bool {
	if session.ValidID("incarnation", incarnation) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := d.conn.NC.RequestWithContext(ctx, messages.DeliverSubject(incarnation), nil)
	return err == nil
}

// relayAgain is the pause before the relay of a partition is asked again.
const relayAgain = 20 * time.Millisecond

// askRelay sends a request to the relay of a partition on a subject of its own, and repeats
// it until ctx ends while the partition has none, as during a handover. It reports whether
// there was an answer, and decodes it into a.
func (d *Delivery) askRelay(ctx context.Context, subject string, question, a any) bool {
	data, err := json.Marshal(question)
	for err == nil && ctx.Err() == nil {
		if m, err := d.conn.NC.RequestWithContext(ctx, subject, data); err == nil && json.Unmarshal(m.Data, a) == nil {
			return true
		}
		conn.Pause(ctx, relayAgain)
	}
	return false
}

// ServeDeliver answers for this incarnation: it calls handle with each delivered work. For
// other processes the incarnation is alive from now until the service stops.
func (d *Delivery) ServeDeliver(ctx context.Context, incarnation string, handle func(ctx context.Context, w journal.Work) (journal.Answer, error)) (*conn.Service, error) {
	if err := session.ValidID("incarnation", incarnation); err != nil {
		return nil, err
	}
	return d.conn.Serve(ctx, messages.DeliverSubject(incarnation), "", func(ctx context.Context, m *nats.Msg) any {
		if len(m.Data) == 0 {
			return wire.Answer{Done: true} // a ping
		}
		w, err := translate.DecodeWork(m.Data)
		if err != nil {
			return wire.AnswerOf(err)
		}
		a, err := handle(ctx, w)
		if err != nil {
			return wire.AnswerOf(err)
		}
		return wire.Answer{Done: a != journal.AnswerNotMine, Note: string(a)}
	})
}
