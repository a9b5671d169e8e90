package natsbus

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
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

// A consumer may also skip one message and give all that come after it. Its queue
// is never idle then, or not for long. So a look does not wait for that: it always
// asks, besides how the consumer stands, for the oldest message that the puller was
// not given since it knows of it, and tells by that one.

const (
	// standstill is how often a puller looks at its queue, be it idle or not: as
	// long as one that asks gets nothing before it looks whether there is anything.
	standstill = 10 * time.Second
	// looksApart is how much longer it may be: nodes that saw the same thing go
	// wrong are not to mend it at once, each what another one has just made.
	looksApart = time.Second
	// silentLooks is how many looks in a row have to find messages, and a
	// consumer that neither gave one nor heard of one from the first of them to
	// the last: ten times as long as a node that has one may be silent.
	silentLooks = 4
	// passedLooks is how many looks in a row have to find the same message at
	// least, each after the puller was given others.
	passedLooks = 30
	// passedTimes is how often the puller would have been given that message
	// meanwhile if nothing were wrong. One that nobody can take yet comes again
	// every retryMost, to this puller as often as anything does: it never comes
	// by chance once in 10^8 times. If nodes hang over it, it comes every holdMost.
	passedTimes = 20
)

// Why a consumer is made anew.
const (
	miscounted = "it lost count of its stream, or does not hear who asks it"
	silent     = "its stream holds messages, and for a while it gave none and nobody who has one told of it"
	passedOver = "it gives what came later, and for long not a message that its stream holds"
)

// watched is the message of its queue that a puller watches: it lies there, and
// the puller was not given it meanwhile.
type watched struct {
	seq   atomic.Uint64 // zero: none
	met   atomic.Uint64 // one that was watched when it was given
	given atomic.Uint64 // how many were given since the last look
}

// note takes down that a message was given.
func (w *watched) note(m jsMsg) {
	w.given.Add(1)
	seq := w.seq.Load()
	if seq == 0 {
		return
	}
	if meta, err := m.Metadata(); err == nil && meta.Sequence.Stream == seq {
		w.met.Store(seq)
	}
}

// watch asks for the message to watch, zero if nothing lies in the queue; again
// says that it is the one that was watched before. One that was given is passed
// by, so that those that nobody can take yet hide none. When it is gone the oldest
// is next again: one that was passed by may lie still since.
func (p *puller) watch(ctx context.Context) (seq uint64, again bool, err error) {
	was := p.watched.seq.Load()
	met := was != 0 && p.watched.met.Load() == was
	from := max(was, 1)
	if met {
		from++
	}
	seq, err = p.oldest(ctx, from)
	if err == nil && from > 1 && (seq == 0 || !met && seq != was) {
		seq, err = p.oldest(ctx, 1)
	}
	if err != nil {
		return 0, false, err
	}
	if again = seq == was && !met && seq != 0; !again {
		p.watched.met.Store(0)
		p.watched.seq.Store(seq)
	}
	return seq, again, nil
}

// oldest asks for the first message of the queue from a sequence on, zero if there
// is none.
func (p *puller) oldest(ctx context.Context, from uint64) (uint64, error) {
	m, err := p.c.leaderGet(ctx, p.stream, getRequest{Seq: from, NextBySubject: p.filter})
	if errors.Is(err, errNoMessage) {
		return 0, nil
	}
	return m.Seq, err
}

// checkup is what the looks of a puller at its queue have found.
type checkup struct {
	next    time.Time // when to look
	busy    bool      // since then it was given something, or did not ask
	suspect bool      // at the last look that found it idle
	pulse   pulse     // at the last look
	still   int       // looks in a row that found it idle, messages, and this pulse
	behind  bool      // at the last look the consumer took the watched message for done
	passed  int       // looks in a row that found the same one not given
	times   float64   // how often it would have been given in these
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

// look returns why the consumer has to be made anew, "" if nothing says so, once
// it is time to look.
func (k *checkup) look(ctx context.Context, p *puller, consumer jetstream.Consumer) (why string, err error) {
	now, first := time.Now(), k.next.IsZero()
	if !first && now.Before(k.next) {
		return "", nil
	}
	k.next = now.Add(standstill + rand.N(looksApart))
	if first {
		return "", nil
	}
	busy := k.busy
	k.busy = false
	if why, err = k.see(ctx, p, consumer, busy); err != nil && busy {
		return "", nil // its requests for messages tell whether that is worth a word
	}
	return why, err
}

func (k *checkup) see(ctx context.Context, p *puller, consumer jetstream.Consumer, busy bool) (why string, err error) {
	info, err := api(ctx, p.c, apiConsumerInfo+p.stream+"."+p.durable, consumer.Info)
	if err != nil {
		return "", err
	}
	seq, again, err := p.watch(ctx)
	if err != nil {
		return "", err
	}
	why = k.overtook(info, seq, again, p.watched.given.Swap(0))
	if busy {
		k.pulse, k.suspect, k.still = pulseOf(info), false, 0
		return why, nil
	}
	held := uint64(0)
	if seq != 0 {
		subjects, err := p.c.subjects(ctx, p.stream, p.filter)
		if err != nil {
			return "", err
		}
		for _, n := range subjects {
			held += n
		}
	}
	return cmp.Or(why, k.found(info, held)), nil
}

// overtook takes in how the consumer stands to the message that is watched, and
// how many others the puller was given since the last look.
func (k *checkup) overtook(info *jetstream.ConsumerInfo, seq uint64, again bool, given uint64) (why string) {
	again = again && info.Created.UnixNano() == k.pulse.made
	before := again && k.behind
	// A message that is done is gone from the stream a moment later.
	k.behind = seq != 0 && seq <= info.AckFloor.Stream
	switch {
	case !again:
		k.passed, k.times = 0, 0
	case given > 0 && seq <= info.Delivered.Stream && info.Delivered.Consumer > k.pulse.given: // else its turn has not come
		k.passed++
		share := float64(given) / float64(info.Delivered.Consumer-k.pulse.given)
		k.times += min(share, 1) * float64(standstill/retryMost)
	}
	switch {
	case before && k.behind:
		return miscounted
	case k.passed >= passedLooks && k.times >= passedTimes:
		return passedOver
	}
	return ""
}

// found takes in what a look found of an idle queue: how the consumer stands, and
// how many messages its stream holds for it.
func (k *checkup) found(info *jetstream.ConsumerInfo, held uint64) (why string) {
	last, now := k.pulse, pulseOf(info)
	before := k.suspect && now.made == last.made
	full := info.NumAckPending >= info.Config.MaxAckPending // it waits for what it gave
	uncounted := !full && held > info.NumPending+uint64(info.NumAckPending)
	ungiven := !full && info.NumPending > 0
	k.pulse, k.suspect = now, uncounted || ungiven
	switch {
	case held == 0:
		k.still = 0
	case k.still == 0 || now != last:
		k.still = 1
	default:
		k.still++
	}
	switch {
	case before && (uncounted || ungiven && now.given == last.given): // else others get them
		return miscounted
	case k.still >= silentLooks:
		return silent
	}
	return ""
}
