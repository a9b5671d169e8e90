package natsbus

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Servers that lost and elected leaders again and again may be left with a
// consumer that has lost count of its stream: messages lie there, and nobody
// gets them. Or it answers how it stands, and nobody hears who asks it for
// messages. The stream knows no consumer of its own, and the sweeper offers
// nothing that lies there already, so that a whole pool would stand still. Or
// the consumer counts messages as given that it gives to nobody again, although
// who had them is gone. A consumer made anew begins with all that the stream
// holds; what another node is handling comes twice, which is harmless.

const (
	// standstill is how long a puller that asks gets nothing before it looks
	// whether there is anything, and between two looks.
	standstill = 10 * time.Second
	// silentLooks is how many looks in a row have to find messages, and a
	// consumer that neither gave one nor heard of one from the first of them to
	// the last: ten times as long as a node that has one may be silent.
	silentLooks = 4
)

// Why a consumer is made anew.
const (
	miscounted = "it lost count of its stream, or does not hear who asks it"
	silent     = "its stream holds messages, and for a while it gave none and nobody who has one told of it"
)

// idleness is how long a puller has asked in vain, also where that failed.
type idleness struct {
	since   time.Time // zero: not at all
	suspect bool      // at the last look
	pulse   pulse     // likewise
	still   int       // looks in a row that found messages and this pulse
}

// pulse is what a consumer shows of its work. Whatever it gives changes that, and
// so does each word of a node about a message that it handles, which comes every
// second: one in somebody's hands, which it is for holdMost, is not silence.
type pulse struct {
	made  int64 // when the consumer was made
	given uint64
	last  int64 // when it last gave one, or somebody was still at one
}

func pulseOf(info *jetstream.ConsumerInfo) pulse {
	p := pulse{made: info.Created.UnixNano(), given: info.Delivered.Consumer}
	if info.Delivered.Last != nil {
		p.last = info.Delivered.Last.UnixNano()
	}
	return p
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

// look returns why the consumer has to be made anew, "" if nothing says so, once
// it is time to look.
func (i *idleness) look(ctx context.Context, p *puller, consumer jetstream.Consumer) (why string, err error) {
	if i.since.IsZero() || time.Since(i.since) < standstill {
		return "", nil
	}
	i.since = time.Now()
	info, err := api(ctx, p.c, apiConsumerInfo+p.stream+"."+p.durable, consumer.Info)
	if err != nil {
		return "", err
	}
	subjects, err := p.c.subjects(ctx, p.stream, p.filter)
	if err != nil {
		return "", err
	}
	held := uint64(0)
	for _, n := range subjects {
		held += n
	}
	return i.found(info, held), nil
}

// found takes in what a look found: how the consumer stands, and how many
// messages its stream holds for it.
func (i *idleness) found(info *jetstream.ConsumerInfo, held uint64) (why string) {
	last, now := i.pulse, pulseOf(info)
	before := i.suspect && now.made == last.made
	full := info.NumAckPending >= info.Config.MaxAckPending // it waits for what it gave
	uncounted := !full && held > info.NumPending+uint64(info.NumAckPending)
	ungiven := !full && info.NumPending > 0
	i.pulse, i.suspect = now, uncounted || ungiven
	switch {
	case held == 0:
		i.still = 0
	case i.still == 0 || now != last:
		i.still = 1
	default:
		i.still++
	}
	switch {
	case before && (uncounted || ungiven && now.given == last.given): // else others get them
		return miscounted
	case i.still >= silentLooks:
		return silent
	}
	return ""
}
