package chain

import (
	"sync"
	"time"

	"github.com/rathcluster/rath/llm"
)

// A breaker stops calls to a failing server if another model can answer them.
const (
	// breakAfter failures in a row open it, for breakFor; then one call tries again.
	breakAfter = 5
	breakFor   = 30 * time.Second
	// maxBreakers bounds the failing models at one time.
	maxBreakers = 256
)

// Breakers are the breakers of the models that failed last, by server and model.
type Breakers struct {
	mu  sync.Mutex
	all map[[3]string]*breaker
}

type breaker struct {
	failures int
	until    time.Time // it is open
}

func breakerOf(p *llm.Provider) [3]string { return [3]string{p.Kind, p.BaseURL, p.Model} }

// Note records the outcome of a request.
func (b *Breakers) Note(p *llm.Provider, err error) {
	key := breakerOf(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		delete(b.all, key)
		return
	}
	switch llm.CodeOf(err) {
	case llm.CodeOverloaded, llm.CodeUnavailable, llm.CodeTimeout, llm.CodeIdleTimeout, llm.CodeTruncated, llm.CodeMalformed:
	default: // the server works
		return
	}
	one := b.all[key]
	if one == nil {
		if len(b.all) >= maxBreakers {
			return
		}
		if b.all == nil {
			b.all = map[[3]string]*breaker{}
		}
		one = &breaker{}
		b.all[key] = one
	}
	if one.failures++; one.failures >= breakAfter {
		one.until = time.Now().Add(breakFor)
	}
}

// open reports whether a model must not be asked now. When its time is up, the calling
// request may try, and concurrent ones may not.
func (b *Breakers) open(p *llm.Provider) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.all[breakerOf(p)]
	if one == nil || one.failures < breakAfter {
		return false
	}
	now := time.Now()
	if now.Before(one.until) {
		return true
	}
	one.until = now.Add(breakFor)
	return false
}
