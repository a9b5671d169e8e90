package natsbus

import (
	"cmp"
	"context"
	"slices"
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
// The pullers of a connection share one, and may use it at the same time. What
// is decided is decided under its lock: one slot is given once. Looking through
// the queues takes the servers' time and is done without it, see scout.go; the
// slots are kept free meanwhile.
type lobby struct {
	mu     sync.Mutex
	queues []*puller // that are pulled from, in the order of their rank

	hand   []*guest // in the order in which they came
	filled time.Time
	turn   map[string]uint64 // when a tenant was last served
	turns  uint64

	// scarce is when slots were last not enough.
	scarce time.Time
	// looked is closed when the next look into a queue ends.
	looked chan struct{}
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
	// lobbyScarce is for how long after slots were not enough nobody gets one
	// out of turn.
	lobbyScarce = time.Second
	// lobbyTurns bounds the tenants whose turns are remembered.
	lobbyTurns = 4096
)

func newLobby() *lobby { return &lobby{turn: map[string]uint64{}, looked: make(chan struct{})} }

// join has the lobby look through a queue; ctx ends with the queue's pulling.
func (l *lobby) join(ctx context.Context, p *puller, consumer jetstream.Consumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.ctx, p.consumer = ctx, consumer
	p.sight.open(ctx)
	l.queues = append(l.queues, p)
	slices.SortStableFunc(l.queues, func(a, b *puller) int { return cmp.Compare(a.rank, b.rank) })
}

// leave gives back what is at hand of a queue, and looks through it no more.
func (l *lobby) leave(p *puller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.sight.close()
	l.queues = slices.DeleteFunc(l.queues, func(q *puller) bool { return q == p })
	l.empty(func(g *guest) bool { return g.p == p })
	l.wake() // nobody waits for a look into this one any more
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
func (l *lobby) receive(p *puller, m jsMsg) (left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(p, m)
	return l.settle()
}

// attend begins what is at hand and may begin by turn, and gives back what has
// been there for too long. It reports whether any is left. full says that slots
// are not enough now.
func (l *lobby) attend(full bool) (left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if full {
		l.scarce = time.Now()
	}
	return len(l.hand) > 0 && l.settle()
}

func (l *lobby) settle() (left bool) {
	if time.Since(l.scarce) < lobbyScarce {
		l.choose()
	} else {
		l.begin()
	}
	if len(l.hand) == 0 {
		return false
	}
	l.scarce = time.Now()
	if time.Since(l.filled) > lobbyHold && l.looking() == 0 { // what is looked for is kept until it is found
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
// already. While the queues are looked through, it starts what takes no slot.
func (l *lobby) begin() {
	looking := l.looking() > 0
	for {
		next := -1
		for i, g := range l.hand {
			if g.p.seated(g) && (looking || !l.may(g.p)) {
				continue
			}
			if next < 0 || l.before(g, l.hand[next]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		g := l.hand[next]
		l.hand = slices.Delete(l.hand, next, next+1)
		l.served(g.tenant)
		g.p.start(g.p.ctx, g.jsMsg)
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

// serve has messages begin of the tenants who waited longest for their turn, from
// all queues, and returns how many did. If there are none, and p may have a slot,
// it asks its own queue. An error is of a look into that one.
func (l *lobby) serve(ctx context.Context, p *puller) (begun uint64, may bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, until := l.turns, time.Now().Add(requestTimeout)
	l.choose()
	for l.turns == before && ctx.Err() == nil {
		wait := min(l.looking(), time.Until(until))
		if wait <= 0 {
			break
		}
		if !l.await(ctx, wait) {
			l.choose() // without who is silent
		}
	}
	s := &p.sight
	if err, s.err = s.err, nil; err != nil {
		return 0, false, err
	}
	may = l.may(p)
	if s.tenants == nil {
		return l.turns - before, may, nil
	}
	p.eager.Store(len(s.tenants) > 0)
	if may && len(s.tenants) == 0 {
		p.pressed.Store(false)
	}
	return l.turns - before, may, nil
}

// choose begins what may begin by turn. If a queue has to be looked through
// before, that is begun instead, and whoever does it goes on.
func (l *lobby) choose() {
	if l.looking() == 0 && slices.ContainsFunc(l.queues, l.may) { // else only what takes no slot begins
		for _, q := range l.queues {
			if q.sight.outdated() {
				l.ask(q)
			}
		}
		if l.looking() == 0 {
			if tenant, q := l.due(); q != nil {
				l.search(q, tenant)
			}
		}
	}
	l.begin()
}

// due returns the tenant whose turn it is at the queues that may have a slot now,
// and the queue to look for him in. There is none if he is at hand, or if nobody
// else waits.
func (l *lobby) due() (tenant string, in *puller) {
	all, here := map[string]bool{}, map[string]bool{}
	consider := func(t string) {
		if tenant == "" || l.turn[t] < l.turn[tenant] || l.turn[t] == l.turn[tenant] && t < tenant {
			tenant = t
		}
	}
	for _, g := range l.hand {
		all[g.tenant] = true
		if l.may(g.p) {
			here[g.tenant] = true
			consider(g.tenant)
		}
	}
	for _, q := range l.queues {
		may := l.may(q)
		for t := range q.sight.tenants {
			all[t] = true
			if may && q.sight.has(t) {
				consider(t)
			}
		}
	}
	if len(all) < 2 || here[tenant] {
		return "", nil
	}
	for _, q := range l.queues {
		if l.may(q) && q.sight.has(tenant) {
			return tenant, q
		}
	}
	return "", nil
}
