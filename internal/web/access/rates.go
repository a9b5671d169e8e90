package access

import (
	"sync"
	"time"
)

// rateEach and rateBurst bound the requests of one token in a second, and at once.
const (
	rateEach  = 100
	rateBurst = 300
	// rateKeys bounds the tokens whose requests are counted.
	rateKeys = 20_000
)

// rates count the requests of each token: each has a bucket that fills with time.
type rates struct {
	mu  sync.Mutex
	all map[string]*rate
}

type rate struct {
	left float64
	at   time.Time
}

func newRates() *rates { return &rates{all: map[string]*rate{}} }

// take counts a request. It returns how long the caller has to wait, 0 if it need not.
func (r *rates) take(key string) time.Duration { return r.takeOf(key, rateEach, rateBurst) }

func (r *rates) takeOf(key string, each, burst float64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	b := r.all[key]
	if b == nil {
		if len(r.all) >= rateKeys {
			for k, old := range r.all {
				if now.Sub(old.at) > time.Minute {
					delete(r.all, k)
				}
			}
			if len(r.all) >= rateKeys {
				clear(r.all)
			}
		}
		b = &rate{burst, now}
		r.all[key] = b
	}
	b.left = min(burst, b.left+each*now.Sub(b.at).Seconds())
	b.at = now
	if b.left < 1 {
		return time.Duration((1 - b.left) / each * float64(time.Second))
	}
	b.left--
	return 0
}
