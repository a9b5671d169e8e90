package access

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rateEach and rateBurst bound the requests of one token in a second, and at once.
const (
	rateEach  = 100
	rateBurst = 300
	// rateKeys bounds the tokens whose requests are counted.
	rateKeys = 20_000
)

// rates count the requests of each token.
type rates struct {
	mu  sync.Mutex
	all map[string]*rate.Limiter
}

func newRates() *rates { return &rates{all: map[string]*rate.Limiter{}} }

// take counts a request. It returns how long the caller has to wait, 0 if it need not.
func (r *rates) take(key string) time.Duration { return r.takeOf(key, rateEach, rateBurst) }

func (r *rates) takeOf(key string, each rate.Limit, burst int) time.Duration {
	r.mu.Lock()
	l := r.all[key]
	if l == nil {
		if len(r.all) >= rateKeys {
			r.forget()
		}
		l = rate.NewLimiter(each, burst)
		r.all[key] = l
	}
	r.mu.Unlock()
	taken := l.Reserve()
	wait := taken.Delay()
	if wait > 0 {
		taken.Cancel()
	}
	return wait
}

// forget removes the limiters that are as new ones, or all if none is. The caller has the
// lock.
func (r *rates) forget() {
	for key, l := range r.all {
		if l.Tokens() >= float64(l.Burst()) {
			delete(r.all, key)
		}
	}
	if len(r.all) >= rateKeys {
		clear(r.all)
	}
}
