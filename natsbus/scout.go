package natsbus

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The lobby finds out who waits in a queue by asking its stream, and finds the
// messages of one tenant by taking messages from the queue until one is his. Both
// are looks into the queue. A queue has one at a time, in a goroutine that its
// puller waits for, which holds the lobby's lock only to say what it has seen.
// While there is one no slot is given out of turn, but a server that is silent
// holds the other queues up for no longer than lobbyPatience. One that is slow is
// waited for as long as it goes on: who waited longest may be behind thousands.
//
// Looks come in rounds: the queues are asked, then one tenant is looked for in
// them, then slots are given whether he was found or not. Tenants may be many
// whose messages other nodes have.

const (
	// lobbyAsk is how often a queue is asked who waits: less often where the
	// answers of all take more than a twentieth of that.
	lobbyAsk = 25 * time.Millisecond
	// lobbyAgain is when a queue is asked again that did not answer.
	lobbyAgain = time.Second
	// lobbyPatience is how long slots are kept free while a server is silent.
	lobbyPatience = 500 * time.Millisecond
	// lobbySilent is how long the client library waits for the answer to a
	// request for what there is.
	lobbySilent = time.Second
	// lobbyAbsent is how long nobody looks again for the messages of a tenant
	// that were not found: they are being handled, or delayed. His turn he keeps.
	lobbyAbsent = 100 * time.Millisecond
	// lobbyBack is when a message that was passed over may come again.
	lobbyBack = 250 * time.Millisecond
	// lobbySearch bounds the messages that are passed over in one search.
	lobbySearch = 4096
)

// sight is what the lobby has seen of a queue. It is guarded by the lobby's lock.
type sight struct {
	ctx     context.Context // of looks; it ends when the queue leaves
	close   context.CancelFunc
	tenants map[string]bool      // with messages in the queue, or delivered; nil: unknown
	absent  map[string]time.Time // who was looked for in vain, and when
	asked   time.Time
	every   time.Duration
	// heard is when the server was last heard in the look that is under way, or
	// when that began; zero: there is none.
	heard time.Time
	mute  bool  // it gave no answer: until it gives one no slot is kept free for it
	err   error // of a look, until the queue's puller is told
}

func (s *sight) open(ctx context.Context) {
	s.ctx, s.close = context.WithCancel(ctx)
	s.tenants, s.absent, s.asked, s.mute, s.err = nil, map[string]time.Time{}, time.Time{}, false, nil
}

// idle reports whether a look may begin.
func (s *sight) idle() bool { return s.heard.IsZero() && s.ctx.Err() == nil }

// outdated reports whether it is time to ask who waits.
func (s *sight) outdated() bool { return s.idle() && time.Since(s.asked) > s.every }

// has reports whether a tenant's messages may be looked for now.
func (s *sight) has(tenant string) bool {
	return s.tenants[tenant] && s.idle() && time.Since(s.absent[tenant]) > lobbyAbsent
}

// unknown notes that the queue does not say who waits.
func (s *sight) unknown() {
	s.tenants, s.asked, s.every, s.mute = nil, time.Now(), lobbyAgain, true
}

// looking returns for how long slots are still kept free for a look that is under
// way, zero if they are not.
func (l *lobby) looking() (wait time.Duration) {
	for _, q := range l.queues {
		if !q.sight.heard.IsZero() && !q.sight.mute {
			wait = max(wait, lobbyPatience-time.Since(q.sight.heard))
		}
	}
	return wait
}

// await waits, without the lock, until a look ends, and reports whether one did.
func (l *lobby) await(ctx context.Context, atMost time.Duration) bool {
	looked := l.looked
	l.mu.Unlock()
	defer l.mu.Lock()
	t := time.NewTimer(atMost)
	defer t.Stop()
	select {
	case <-looked:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

func (l *lobby) wake() {
	close(l.looked)
	l.looked = make(chan struct{})
}

// look begins a look into a queue; note takes down, with the lock held, what was
// seen, and then goes on with the round. Of a queue that has left nothing is noted.
func (l *lobby) look(q *puller, see func(context.Context) (note func(*sight)), then func()) {
	ctx := q.sight.ctx
	q.sight.heard = time.Now()
	q.wg.Go(func() {
		note := see(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		if ctx.Err() == nil {
			note(&q.sight)
		}
		q.sight.heard = time.Time{}
		then()
		l.wake()
	})
}

// ask asks the stream of a queue whose messages it holds.
func (l *lobby) ask(q *puller) {
	began := time.Now()
	l.look(q, func(ctx context.Context) func(*sight) {
		tenants, err := q.waiting(ctx)
		return func(s *sight) {
			if err != nil {
				s.unknown()
				s.err = err
				return
			}
			s.tenants, s.asked, s.mute, s.err = tenants, time.Now(), false, nil
			s.every = max(lobbyAsk, time.Duration(20*len(l.queues))*s.asked.Sub(began))
		}
	}, l.choose)
}

// search looks for a message of a tenant in a queue.
func (l *lobby) search(q *puller, tenant string) {
	consumer := q.consumer
	l.look(q, func(ctx context.Context) func(*sight) {
		found, err := l.find(ctx, q, consumer, tenant)
		return func(s *sight) {
			switch {
			case errors.Is(err, errSilent):
				s.unknown()
			case err != nil:
				s.unknown()
				s.err = err
			}
			if found {
				return
			}
			if len(s.absent) >= lobbyTurns {
				clear(s.absent)
			}
			s.absent[tenant] = time.Now()
		}
	}, func() {
		if t, other := l.due(); other != nil && t == tenant && l.looking() == 0 {
			l.search(other, t)
		}
		l.begin()
	})
}

// errSilent is returned for a queue that gave no answer.
var errSilent = errors.New("natsbus: no answer")

// find takes messages from a queue until one is the tenant's. It keeps some of
// each tenant at hand, and gives the others back.
func (l *lobby) find(ctx context.Context, q *puller, consumer jetstream.Consumer, tenant string) (found bool, err error) {
	each := map[string]int{}
	l.mu.Lock()
	for _, g := range l.hand {
		each[g.tenant]++
	}
	l.mu.Unlock()
	for passed := 0; passed < lobbySearch && !found && ctx.Err() == nil; {
		began := time.Now()
		batch, err := consumer.FetchNoWait(maxPull)
		if err != nil {
			return false, err
		}
		n := 0
		for m := range batch.Messages() {
			n++
			q.watched.note(m)
			t := q.tenantOf(m.Subject())
			if l.bring(ctx, q, m, each[t] < lobbyEach || t == tenant && !found) {
				each[t]++
				found = found || t == tenant
				continue
			}
			passed++
			_ = m.NakWithDelay(lobbyBack) // else it comes again after ackWait
		}
		if err := waited(batch.Error()); err != nil {
			return found, err
		}
		if n == 0 && time.Since(began) >= lobbySilent {
			return found, errSilent
		}
		if n == 0 {
			break
		}
	}
	return found, nil
}

// bring keeps a message that a search has found and wants, unless its queue has
// left.
func (l *lobby) bring(ctx context.Context, q *puller, m jsMsg, wanted bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.sight.heard = time.Now()
	if !wanted || ctx.Err() != nil {
		return false
	}
	l.keep(q, m)
	return true
}

// waiting asks whose messages the queue holds.
func (p *puller) waiting(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.c.link.Load().ctx, cancel)()
	info, err := api(ctx, p.c, apiStreamInfo+p.stream, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		if p.source == nil {
			s, err := p.c.js.Stream(ctx, p.stream)
			if err != nil {
				return nil, err
			}
			p.source = s
		}
		return p.source.Info(ctx, jetstream.WithSubjectFilter(p.filter))
	})
	if err != nil {
		return nil, err
	}
	tenants := map[string]bool{}
	for subject := range info.State.Subjects {
		tenants[p.tenantOf(subject)] = true
	}
	return tenants, nil
}

func (p *puller) tenantOf(subject string) string {
	before := len(p.filter) - len(">")
	if len(subject) < before {
		return ""
	}
	tenant, _, _ := strings.Cut(subject[before:], ".")
	return tenant
}

// seated reports whether a message takes a slot.
func (p *puller) seated(m jsMsg) bool { return p.light == nil || !p.light(m) }
