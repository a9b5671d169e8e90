package natsbus

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A lobby lets tenants take turns at the slots of a node, whichever of its
// queues their messages are in. As long as slots are free nothing is needed for
// that. When all are taken and one becomes free, the messages of several tenants
// may wait, and the one who sent most is ahead of the others: then the lobby
// looks through the queues for the tenant whose turn it is, keeps a few messages
// of each tenant at hand and gives the rest back for a moment.
//
// The pullers of a connection share one, and may use it at the same time. It
// looks while it is locked: one slot is given once.
type lobby struct {
	mu     sync.Mutex
	queues []*puller // that are pulled from, in the order of their rank

	hand   []*guest // in the order in which they came
	filled time.Time
	turn   map[string]uint64 // when a tenant was last served
	turns  uint64

	asked time.Time
	every time.Duration
	// scarce is when slots were last not enough.
	scarce time.Time
	// absent are the tenants for whom a search was in vain, and when: what they
	// have is being handled, or delayed.
	absent map[string]time.Time
}

// guest is a message at hand.
type guest struct {
	jsMsg
	p      *puller
	tenant string
}

const (
	// lobbyEach bounds the messages of a tenant that a search keeps at hand.
	lobbyEach = 8
	// lobbyHold bounds how long messages are at hand: other nodes may have
	// slots for them.
	lobbyHold = 500 * time.Millisecond
	// lobbyAsk is how often the lobby asks who waits: less often where the
	// answer takes more than a twentieth of that.
	lobbyAsk = 25 * time.Millisecond
	// lobbyAbsent is how long nobody looks again for the messages of a tenant
	// that were not found. His turn he keeps.
	lobbyAbsent = 100 * time.Millisecond
	// lobbyScarce is for how long after slots were not enough nobody gets one
	// out of turn.
	lobbyScarce = time.Second
	// lobbyBack is when a message that was passed over may come again.
	lobbyBack = 250 * time.Millisecond
	// lobbySearch bounds the messages that are passed over in one search.
	lobbySearch = 4096
	// lobbyTurns bounds the tenants whose turns are remembered.
	lobbyTurns = 4096
)

func newLobby() *lobby { return &lobby{turn: map[string]uint64{}, absent: map[string]time.Time{}} }

// join has the lobby look through a queue; ctx ends with the queue's pulling.
func (l *lobby) join(ctx context.Context, p *puller, consumer jetstream.Consumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.ctx, p.consumer, p.tenants = ctx, consumer, nil
	l.queues = append(l.queues, p)
	slices.SortStableFunc(l.queues, func(a, b *puller) int { return cmp.Compare(a.rank, b.rank) })
	l.asked = time.Time{}
}

// leave gives back what is at hand of a queue, and looks through it no more.
func (l *lobby) leave(p *puller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queues = slices.DeleteFunc(l.queues, func(q *puller) bool { return q == p })
	l.empty(func(g *guest) bool { return g.p == p })
}

// empty gives back what is at hand, for other nodes.
func (l *lobby) empty(which func(*guest) bool) {
	l.hand = slices.DeleteFunc(l.hand, func(g *guest) bool {
		if !which(g) {
			return false
		}
		_ = g.Nak() // else it comes again after ackWait
		return true
	})
}

// free returns how many messages of a queue may begin: slots that no message
// which is being handled may be about to take.
func (l *lobby) free(p *puller) int {
	n := p.slots()
	for _, q := range l.queues {
		n -= int(q.seats.Load())
	}
	return n
}

// may reports whether a queue may have a slot now.
func (l *lobby) may(p *puller) bool {
	return l.free(p) > 0 && (p.behind == nil || !p.behind.eager.Load())
}

// receive takes a message in, and begins what may begin by turn. It reports
// whether any is left at hand.
func (l *lobby) receive(ctx context.Context, p *puller, m jsMsg) (left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(p, m)
	return l.look(ctx)
}

// attend begins what is at hand and may begin by turn, and gives back what has
// been there for too long. It reports whether any is left. full says that slots
// are not enough now.
func (l *lobby) attend(ctx context.Context, full bool) (left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if full {
		l.scarce = time.Now()
	}
	return len(l.hand) > 0 && l.look(ctx)
}

func (l *lobby) look(ctx context.Context) (left bool) {
	if time.Since(l.scarce) < lobbyScarce {
		_ = l.choose(ctx, nil) // who pulls finds out
	} else {
		l.begin()
	}
	if len(l.hand) == 0 {
		return false
	}
	l.scarce = time.Now()
	if time.Since(l.filled) > lobbyHold {
		l.empty(func(*guest) bool { return true })
	}
	return len(l.hand) > 0
}

func (l *lobby) keep(p *puller, m jsMsg) {
	if len(l.hand) == 0 {
		l.filled = time.Now()
	}
	l.hand = append(l.hand, &guest{m, p, p.tenantOf(m.Subject())})
}

// begin starts messages at hand as long as there are slots, those of the tenant
// who waited longest for a turn first, and of his first what a log holds
// already. It returns how many it started.
func (l *lobby) begin() (started int) {
	for {
		next := -1
		for i, g := range l.hand {
			if g.p.seated(g) && !l.may(g.p) {
				continue
			}
			if next < 0 || l.before(g, l.hand[next]) {
				next = i
			}
		}
		if next < 0 {
			return started
		}
		g := l.hand[next]
		l.hand = slices.Delete(l.hand, next, next+1)
		l.served(g.tenant)
		g.p.start(g.p.ctx, g.jsMsg)
		started++
	}
}

func (l *lobby) before(a, b *guest) bool {
	if x, y := l.turn[a.tenant], l.turn[b.tenant]; x != y {
		return x < y
	}
	return a.tenant == b.tenant && a.p.rank < b.p.rank
}

// served ends a tenant's turn.
func (l *lobby) served(tenant string) {
	if len(l.turn) >= lobbyTurns {
		clear(l.turn)
	}
	l.turns++
	l.turn[tenant] = l.turns
}

// serve begins messages of the tenants who waited longest for their turn, from
// all queues, and returns how many. If there are none, and p may have a slot, it
// asks its own queue.
func (l *lobby) serve(ctx context.Context, p *puller) (begun uint64, may bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.turns
	if err := l.choose(ctx, p); err != nil {
		return 0, false, err
	}
	p.eager.Store(len(p.tenants) > 0)
	if l.may(p) && len(p.tenants) == 0 {
		p.pressed.Store(false)
	}
	return l.turns - before, l.may(p), nil
}

// choose begins what may begin by turn, once it has looked for the messages of
// the tenant whose turn it is. An error is of p's queue.
func (l *lobby) choose(ctx context.Context, p *puller) error {
	if !slices.ContainsFunc(l.queues, l.may) {
		l.begin() // what takes no slot
		return nil
	}
	if time.Since(l.asked) > l.every {
		if err := l.ask(ctx, p); err != nil {
			return err
		}
	}
	if due, several := l.due(); several && due != "" {
		if err := l.search(ctx, p, due); err != nil {
			return err
		}
	}
	l.begin()
	return nil
}

// due returns the tenant whose turn it is at the queues that may have a slot
// now, if he has to be looked for, and whether more than one tenant waits.
func (l *lobby) due() (tenant string, several bool) {
	all, first := map[string]bool{}, ""
	consider := func(t string) {
		if first == "" || l.turn[t] < l.turn[first] || l.turn[t] == l.turn[first] && t < first {
			first = t
		}
	}
	here := map[string]bool{}
	for _, g := range l.hand {
		all[g.tenant] = true
		if l.may(g.p) {
			here[g.tenant] = true
			consider(g.tenant)
		}
	}
	for _, q := range l.queues {
		may := l.may(q)
		for t := range q.tenants {
			all[t] = true
			if may && time.Since(l.absent[t]) > lobbyAbsent {
				consider(t)
			}
		}
	}
	if here[first] {
		first = ""
	}
	return first, len(all) > 1
}

// ask asks the streams whose messages they hold. That another queue than p's
// does not answer is for its own puller to find.
func (l *lobby) ask(ctx context.Context, p *puller) error {
	began := time.Now()
	defer func() {
		l.asked = time.Now()
		l.every = max(lobbyAsk, 20*l.asked.Sub(began))
	}()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, q := range l.queues {
		q.tenants = nil
		if err := q.ask(ctx); err != nil && q == p {
			return err
		}
	}
	return nil
}

// ask asks whose messages wait in the queue.
func (p *puller) ask(ctx context.Context) error {
	if p.source == nil {
		s, err := p.c.js.Stream(ctx, p.stream)
		if err != nil {
			return err
		}
		p.source = s
	}
	info, err := p.source.Info(ctx, jetstream.WithSubjectFilter(p.filter))
	if err != nil {
		return err
	}
	p.tenants = map[string]bool{}
	for subject := range info.State.Subjects {
		p.tenants[p.tenantOf(subject)] = true
	}
	return nil
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

// search takes messages from the queues in which a tenant waits until it has one
// of his.
func (l *lobby) search(ctx context.Context, p *puller, tenant string) error {
	for _, q := range l.queues {
		if !q.tenants[tenant] || !l.may(q) {
			continue
		}
		found, err := l.searchIn(ctx, q, tenant)
		if found || err != nil && q == p {
			return err
		}
	}
	if len(l.absent) >= lobbyTurns {
		clear(l.absent)
	}
	l.absent[tenant] = time.Now()
	return nil
}

func (l *lobby) searchIn(ctx context.Context, q *puller, tenant string) (found bool, err error) {
	each := map[string]int{}
	for _, g := range l.hand {
		each[g.tenant]++
	}
	for passed := 0; passed < lobbySearch && !found && ctx.Err() == nil; {
		batch, err := q.consumer.FetchNoWait(maxPull)
		if err != nil {
			return false, err
		}
		n := 0
		for m := range batch.Messages() {
			n++
			if t := q.tenantOf(m.Subject()); each[t] < lobbyEach || t == tenant && !found {
				each[t]++
				found = found || t == tenant
				l.keep(q, m)
				continue
			}
			passed++
			_ = m.NakWithDelay(lobbyBack) // else it comes again after ackWait
		}
		if err := waited(batch.Error()); err != nil {
			return found, err
		}
		if n == 0 {
			break
		}
	}
	return found, nil
}
