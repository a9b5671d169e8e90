package natsbus

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Servers that lost and elected leaders again and again may be left with a
// consumer that has lost count of its stream: messages lie there, and nobody
// gets them. The stream knows no consumer of its own, and the sweeper offers
// nothing that lies there already, so that a whole pool would stand still. A
// consumer made anew begins with all that the stream holds; what another node
// is handling comes twice, which is harmless.

// standstill is how long a puller that asks gets nothing before it looks
// whether there is anything, and between two looks.
const standstill = 10 * time.Second

// idleness is how long a puller has asked in vain.
type idleness struct {
	since   time.Time // zero: not at all
	suspect bool      // at the last look
}

// asked notes that a request got so many messages.
func (i *idleness) asked(took int) {
	switch {
	case took > 0:
		*i = idleness{}
	case i.since.IsZero():
		i.since = time.Now()
	}
}

// look reports whether the consumer was found wrong twice in a row, once it is
// time to look.
func (i *idleness) look(ctx context.Context, p *puller, consumer jetstream.Consumer) (bool, error) {
	if i.since.IsZero() || time.Since(i.since) < standstill {
		return false, nil
	}
	i.since = time.Now()
	before := i.suspect
	var err error
	i.suspect, err = p.standsStill(ctx, consumer)
	return before && i.suspect, err
}

// standsStill reports whether messages lie in the stream that the consumer does
// not give: it does not count them, or counts them as to be delivered although
// somebody asks.
func (p *puller) standsStill(ctx context.Context, consumer jetstream.Consumer) (bool, error) {
	info, err := api(ctx, p.c, apiConsumerInfo+p.stream+"."+p.durable, consumer.Info)
	if err != nil {
		return false, err
	}
	if info.NumAckPending >= info.Config.MaxAckPending {
		return false, nil // it waits for what it gave
	}
	if info.NumPending > 0 {
		return true, nil
	}
	held, err := p.c.subjects(ctx, p.stream, p.filter)
	if err != nil {
		return false, err
	}
	n := uint64(0)
	for _, m := range held {
		n += m
	}
	return n > uint64(info.NumAckPending), nil
}
