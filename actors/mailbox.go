package actors

import (
	"context"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The kinds of requests to a session actor.
const (
	askClaim = iota + 1
	askCommit
	askApply
	askHolder // the last writer, and whether a run executes there
)

// request is one request to a session actor and its answer. The actor fills in the
// answer and then signals done. The actor may still use the request of a caller that
// left early, so only callers that got their answer recycle it.
type request struct {
	ask      int
	key      session.Key
	ctx      context.Context
	deadline time.Time // of ctx; zero without one
	size     int       // estimate of its share of a commit, in bytes
	alone    bool      // shares its commit with no other request
	tick     uint64    // time of the request, on the system's own clock

	claim  journal.Claim
	batch  journal.Batch
	signal journal.Signal

	granted *journal.ClaimResult
	ack     journal.Ack
	holder  holder
	err     error
	staged  bool // the answer is as of a commit that is not durable yet
	done    chan struct{}
}

// holder is the last writer of a session.
type holder struct {
	incarnation string // "" for a log without commits
	here        bool   // this activation wrote it
	busy        bool   // a run holds the session or waits for it
	active      run.ID // of the run that holds it, if any
}

// requestPool recycles requests with their channels. Each System has its own:
// channels made in one test bubble cannot be used in another.
type requestPool struct{ pool sync.Pool }

func (p *requestPool) get(ctx context.Context, ask int, k session.Key) *request {
	r, ok := p.pool.Get().(*request)
	if !ok {
		r = &request{done: make(chan struct{}, 1)}
	}
	r.ask, r.key, r.ctx = ask, k, ctx
	r.deadline, _ = ctx.Deadline()
	return r
}

// put takes back a request whose answer was received, or that no actor ever received.
func (p *requestPool) put(r *request) {
	*r = request{done: r.done}
	p.pool.Put(r)
}

func (r *request) reply(err error) {
	r.err = err
	r.done <- struct{}{}
}

// late returns why the caller no longer waits for the answer. It also checks the
// deadline: after a pause of the whole process, requests may be read before the timers
// that end their contexts have run.
func (r *request) late() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if !r.deadline.IsZero() && !time.Now().Before(r.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

type admission uint8

const (
	admitted admission = iota
	full
	closed
)

// mailbox holds the requests to one session actor, in two bounded queues. protoactor's
// own mailboxes either have no bound, or block the sender, or silently drop the oldest
// message; so requests wait here, and the actor's mailbox only ever holds a few
// signals. It also makes stopping safe: a request is either in the mailbox of an actor
// that will answer it, or is rejected because the mailbox was closed and goes to the
// next activation.
type mailbox struct {
	tell  func(signal any) // sends the actor a signal
	bound int

	mu     sync.Mutex
	own    queue // commits of the run that holds the session
	others queue // everything else
	active run.ID
	known  bool // active and at are as of the log
	at     commitlog.Position
	awake  bool // the actor looks here without a signal
	closed bool
}

// queue is a first-in, first-out queue that reuses its memory.
type queue struct {
	items []*request
	head  int
}

func (l *queue) len() int { return len(l.items) - l.head }

func (l *queue) push(r *request) {
	if l.head > 0 && l.head*2 >= len(l.items) {
		n := copy(l.items, l.items[l.head:])
		clear(l.items[n:])
		l.items, l.head = l.items[:n], 0
	}
	l.items = append(l.items, r)
}

func (l *queue) peek() *request {
	if l.len() == 0 {
		return nil
	}
	return l.items[l.head]
}

func (l *queue) pop() {
	l.items[l.head] = nil
	l.head++
}

func (l *queue) drain() []*request {
	rest := l.items[l.head:]
	*l = queue{}
	return rest
}

// push admits a request, or returns the reason for rejecting it. Each queue has the
// same bound, so that requests from outside cannot keep the steps of the active run
// from being recorded.
func (m *mailbox) push(r *request) admission {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return closed
	}
	to := &m.others
	if r.ask == askCommit && (!m.known || r.batch.Run == m.active) {
		to = &m.own
	}
	if to.len() >= m.bound {
		m.mu.Unlock()
		return full
	}
	to.push(r)
	asleep := !m.awake
	m.awake = true
	m.mu.Unlock()
	if asleep {
		m.tell(wake)
	}
	return admitted
}

// take returns the next request, the active run's first. It returns nil if there is
// none, or if the commit already has a first request and the next needs more than room
// bytes or a commit of its own. An empty mailbox that was asked for a first request
// falls asleep: the next push wakes the actor.
func (m *mailbox) take(room int, first bool) *request {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := &m.own
	r := from.peek()
	if r == nil {
		from = &m.others
		r = from.peek()
	}
	switch {
	case r == nil:
		if first {
			m.awake = false
		}
		return nil
	case !first && (r.alone || r.size > room):
		return nil
	}
	from.pop()
	return r
}

// setPosition records the position of the log and the run that holds the session.
func (m *mailbox) setPosition(at commitlog.Position, active run.ID) {
	m.mu.Lock()
	m.at, m.active, m.known = at, active, true
	m.mu.Unlock()
}

// position returns the last known position of the log.
func (m *mailbox) position() (at commitlog.Position, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at, m.known && !m.closed
}

// shut closes the mailbox and returns the remaining requests. With onlyEmpty it leaves
// a mailbox that holds requests open and returns false.
func (m *mailbox) shut(onlyEmpty bool) (rest []*request, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if onlyEmpty && m.own.len()+m.others.len() > 0 {
		return nil, false
	}
	m.closed = true
	return append(m.own.drain(), m.others.drain()...), true
}

func (m *mailbox) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// held maps sessions to the mailboxes of their actors. Only the supervisor writes it.
type held struct {
	mu sync.RWMutex
	m  map[session.Key]*mailbox
}

func (h *held) get(k session.Key) *mailbox {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.m[k]
}

func (h *held) set(k session.Key, box *mailbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[session.Key]*mailbox{}
	}
	if box == nil {
		delete(h.m, k)
		return
	}
	h.m[k] = box
}

func (h *held) len() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.m)
}
