package limiter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"
)

// Set are the limits of a node.
type Set struct {
	// Dead reports whether a node is known to have died, so that its calls in flight no
	// longer count. It must be set before the first limit. If it is nil, no node counts
	// as dead.
	Dead func(node string) bool

	store Store
	node  string
	log   *slog.Logger
	terms terms

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu          sync.Mutex
	closed      bool
	limits      map[string]*Limit
	concurrency map[string]*Concurrency
	serials     uint64
	clock       clock
}

// NewSet returns the limits of a node. The name must be unique, also across restarts of
// the node. A nil log discards messages.
func NewSet(store Store, node string, log *slog.Logger) *Set {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Set{store: store, node: node, log: log, terms: terms{Window, Lease, Slack}, limits: map[string]*Limit{}, concurrency: map[string]*Concurrency{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Limit returns the limit of a name, such as "model fast", which is shared by all nodes
// that use the same name. A later call with the same name must have the same amount.
func (s *Set) Limit(what string, a Amount) *Limit {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limits[what]
	if l == nil {
		l = &Limit{set: s, name: entryName(what), what: what, amount: a, wake: make(chan struct{}, 1)}
		s.limits[what] = l
	}
	return l
}

// entryName is the name of a ledger in the store.
func entryName(what string) string {
	sum := sha256.Sum256([]byte(what))
	return "limit." + hex.EncodeToString(sum[:16])
}

// Close ends the waiting calls, and returns when all goroutines have ended.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
}

// begin runs keep, which maintains a ledger, and returns false if the set is closed.
func (s *Set) begin(keep func(context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(func() { keep(s.ctx) })
	return true
}

func (s *Set) serial() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serials++
	return s.serials
}

func (s *Set) learn(passed, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.learn(passed, now)
}

func (s *Set) passed(now time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.passed(now)
}

// untilFree is how long to wait until the ledger's grants expire.
func (s *Set) untilFree(l *ledger, now time.Time) time.Duration {
	wait := lookFor
	if next := l.next(s.terms); next > 0 {
		wait = min(wait, time.Duration(next-s.passed(now))*time.Millisecond)
	}
	return max(wait, 5*time.Millisecond)
}
