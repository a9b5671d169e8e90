package natsbus

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A lobby lets tenants take turns at the slots of a node. As long as slots are
// free nothing is needed for that. When all are taken and one becomes free, the
// messages of several tenants may wait in the queue, and the one who sent most
// is ahead of the others: then the lobby looks through the queue for those
// whose turn it is, keeps a few messages of each tenant at hand and gives the
// rest back for a moment.
//
// It is not safe for concurrent use.
type lobby struct {
	prefix int // length of what is before the tenant in a subject

	hand   map[string][]jsMsg
	filled time.Time
	turn   map[string]uint64 // when a tenant was last served
	turns  uint64

	stream  jetstream.Stream
	waiting []string // tenants with messages in the queue
	asked   time.Time
	every   time.Duration
}

const (
	// lobbyEach bounds the messages of a tenant at hand.
	lobbyEach = 8
	// lobbyHold bounds how long messages are at hand: other nodes may have
	// slots for them.
	lobbyHold = 500 * time.Millisecond
	// lobbyAsk is how often the lobby asks who waits: less often where the
	// answer takes more than a twentieth of that.
	lobbyAsk = 25 * time.Millisecond
	// lobbyBack is when a message that was passed over may come again.
	lobbyBack = 250 * time.Millisecond
	// lobbySearch bounds the messages that are passed over in one search.
	lobbySearch = 4096
	// lobbyTurns bounds the tenants whose turns are remembered.
	lobbyTurns = 4096
)

func newLobby(prefix int) *lobby {
	return &lobby{prefix: prefix, hand: map[string][]jsMsg{}, turn: map[string]uint64{}}
}

func (l *lobby) tenantOf(subject string) string {
	if len(subject) < l.prefix {
		return ""
	}
	tenant, _, _ := strings.Cut(subject[l.prefix:], ".")
	return tenant
}

// note remembers that a message's tenant is served.
func (l *lobby) note(m jsMsg) {
	if len(l.turn) >= lobbyTurns {
		clear(l.turn)
	}
	l.turns++
	l.turn[l.tenantOf(m.Subject())] = l.turns
}

// empty gives back what is at hand.
func (l *lobby) empty() {
	for _, ms := range l.hand {
		for _, m := range ms {
			_ = m.Nak() // else it comes again after ackWait
		}
	}
	clear(l.hand)
}

// release gives back what has been at hand for too long.
func (l *lobby) release(hold time.Duration) {
	if len(l.hand) > 0 && time.Since(l.filled) > hold {
		l.empty()
	}
}

// serve starts up to n messages, of the tenants who waited longest for their
// turn. It reports false, and does nothing, if only one tenant has any.
func (l *lobby) serve(ctx context.Context, p *puller, consumer jetstream.Consumer, n int) (bool, error) {
	l.release(lobbyHold)
	if time.Since(l.asked) > l.every {
		if err := l.ask(ctx, p); err != nil {
			return false, err
		}
	}
	if len(l.waiting) < 2 && len(l.hand) < 2 {
		l.empty()
		return false, nil
	}
	if first := l.first(); first != "" && len(l.hand[first]) == 0 {
		if err := l.search(ctx, p, consumer, first); err != nil {
			return false, err
		}
	}
	served := false
	for ; n > 0 && len(l.hand) > 0 && ctx.Err() == nil; n-- {
		next := ""
		for t := range l.hand {
			if next == "" || l.turn[t] < l.turn[next] {
				next = t
			}
		}
		m := l.hand[next][0]
		if l.hand[next] = l.hand[next][1:]; len(l.hand[next]) == 0 {
			delete(l.hand, next)
		}
		p.start(ctx, m)
		served = true
	}
	return served, nil
}

// first returns the waiting tenant whose turn it is.
func (l *lobby) first() string {
	if len(l.waiting) == 0 {
		return ""
	}
	return slices.MinFunc(l.waiting, func(a, b string) int {
		switch {
		case l.turn[a] < l.turn[b]:
			return -1
		case l.turn[a] > l.turn[b]:
			return 1
		}
		return strings.Compare(a, b)
	})
}

// ask asks the stream whose messages it holds.
func (l *lobby) ask(ctx context.Context, p *puller) error {
	began := time.Now()
	defer func() {
		l.asked = time.Now()
		l.every = max(lobbyAsk, 20*l.asked.Sub(began))
	}()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if l.stream == nil {
		s, err := p.c.js.Stream(ctx, p.stream)
		if err != nil {
			return err
		}
		l.stream = s
	}
	info, err := l.stream.Info(ctx, jetstream.WithSubjectFilter(p.filter))
	if err != nil {
		return err
	}
	tenants := map[string]bool{}
	for subject := range info.State.Subjects {
		tenants[l.tenantOf(subject)] = true
	}
	l.waiting = l.waiting[:0]
	for t := range tenants {
		l.waiting = append(l.waiting, t)
	}
	return nil
}

// search takes messages from the queue until it has one of a tenant.
func (l *lobby) search(ctx context.Context, p *puller, consumer jetstream.Consumer, tenant string) error {
	if len(l.hand) == 0 {
		l.filled = time.Now()
	}
	for passed := 0; passed < lobbySearch && len(l.hand[tenant]) == 0 && ctx.Err() == nil; {
		batch, err := consumer.FetchNoWait(maxPull)
		if err != nil {
			return err
		}
		n := 0
		for m := range batch.Messages() {
			n++
			if t := l.tenantOf(m.Subject()); len(l.hand[t]) < lobbyEach {
				l.hand[t] = append(l.hand[t], m)
				continue
			}
			passed++
			_ = m.NakWithDelay(lobbyBack) // else it comes again after ackWait
		}
		if err := waited(batch.Error()); err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	// He has nothing that is not being handled, or delayed.
	if len(l.hand[tenant]) == 0 {
		l.turns++
		l.turn[tenant] = l.turns
	}
	return nil
}
