package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
)

// underWay is a model's server that counts the calls in flight of each tenant.
type underWay struct {
	mu    sync.Mutex
	now   map[string]int64
	most  map[string]int64
	spent map[string]time.Duration // of all calls
	by    map[string][3]int        // calls of the nodes
}

func newUnderWay() *underWay {
	return &underWay{now: map[string]int64{}, most: map[string]int64{}, spent: map[string]time.Duration{}, by: map[string][3]int{}}
}

// flood has callers of a tenant call until ctx ends.
func (u *underWay) flood(ctx context.Context, work *sync.WaitGroup, l Limiter, tenant string, node, callers int, lasts time.Duration) {
	for range callers {
		work.Go(func() {
			for ctx.Err() == nil {
				settle, err := l.Acquire(ctx, tenant, 10)
				if err != nil {
					continue
				}
				took := lasts/2 + rand.N(lasts)
				u.mu.Lock()
				u.now[tenant]++
				u.most[tenant] = max(u.most[tenant], u.now[tenant])
				u.spent[tenant] += took
				by := u.by[tenant]
				by[node]++
				u.by[tenant] = by
				u.mu.Unlock()
				select {
				case <-time.After(took):
				case <-ctx.Done(): // of a node that dies
				}
				u.mu.Lock()
				u.now[tenant]--
				u.mu.Unlock()
				settle(10)
			}
		})
	}
}

// TestNeverAboveAtOnce: two tenants request far more than their limit from three nodes,
// one of which dies meanwhile. Neither tenant ever exceeds its limit, even with a store
// that loses answers. Each uses most of it, spread over the nodes.
func TestNeverAboveAtOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		most   int64
		faults int
		lasts  time.Duration
		part   float64 // of the calls in flight
	}{
		"one":          {1, 0, 3 * time.Second, 0.5},
		"few":          {2, 0, 3 * time.Second, 0.6},
		"eight":        {8, 0, 3 * time.Second, 0.8},
		"short":        {8, 0, 100 * time.Millisecond, 0.6},
		"many":         {200, 0, 3 * time.Second, 0.6},
		"lost answers": {8, 20, 3 * time.Second, 0.7},
		"long":         {8, 20, 2 * time.Minute, 0.6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, server := &shaky{faults: tt.faults, ahead: -5 * time.Hour}, newUnderWay()
				const lasts = 10 * time.Minute
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				defer cancel()
				var work sync.WaitGroup
				for i := range 3 {
					set := NewSet(store, fmt.Sprint("node-", i), nil)
					defer set.Close()
					own := ctx
					if i == 2 {
						var dies context.CancelFunc
						own, dies = context.WithTimeout(ctx, lasts/2)
						defer dies()
						time.AfterFunc(lasts/2, set.Close)
					}
					l := set.Concurrency("model m", tt.most).Then(All(set.Limit("model m", Amount{Tokens: 10_000_000})))
					server.flood(own, &work, l, "a", i, 100, tt.lasts)
					server.flood(own, &work, l, "b", i, 10, tt.lasts)
				}
				work.Wait()
				if n := store.written(); n > 8000 {
					t.Errorf("the store was written %d times", n)
				}
				for _, tenant := range []string{"a", "b"} {
					if most := server.most[tenant]; most > tt.most {
						t.Errorf("tenant %s had %d calls at one time, and %d are allowed", tenant, most, tt.most)
					}
					part := server.spent[tenant].Seconds() / lasts.Seconds() / float64(min(tt.most, 20))
					nodes := server.by[tenant]
					t.Logf("tenant %s: %.0f %% of the limit, nodes %v, %d writes", tenant, 100*part, nodes, store.written())
					if tenant == "a" && server.spent[tenant].Seconds()/lasts.Seconds() < tt.part*float64(tt.most) || tenant == "b" && part < tt.part/2 {
						t.Errorf("tenant %s had %.0f %% of what is allowed", tenant, 100*part)
					}
					if least, most := slices.Min(nodes[:2]), slices.Max(nodes[:2]); least*5 < most-6 {
						t.Errorf("the nodes had %v of tenant %s", nodes, tenant)
					}
				}
			})
		})
	}
}

// TestConcurrencyOfTheDead: the calls of a dead node count until they expire, ended
// calls are free at once, and a tenant at its limit takes no slot of another one.
func TestConcurrencyOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store Memory
		dead, alive := NewSet(&store, "dead", nil), NewSet(&store, "alive", nil)
		defer alive.Close()
		acquire := func(s *Set, tenant string) (settle func(int64), took time.Duration) {
			t.Helper()
			began := time.Now()
			settle = must.Get(s.Concurrency("m", 4).Then(nil).Acquire(t.Context(), tenant, 0))(t)
			return settle, time.Since(began)
		}
		var settles []func(int64)
		for range 4 {
			settle, _ := acquire(dead, "a")
			settles = append(settles, settle)
		}
		if _, took := acquire(alive, "b"); took > time.Second {
			t.Errorf("the call of another tenant waited %v", took)
		}
		settles[0](0)
		if _, took := acquire(alive, "a"); took > renewEvery+lookFor {
			t.Errorf("what had ended was free after %v", took)
		}
		time.Sleep(time.Minute) // they are still in flight
		dead.Close()
		if _, took := acquire(alive, "a"); took < Hold-renewEvery || took > Hold+lookFor {
			t.Errorf("what a dead node had was free after %v", took)
		}
	})
}

// TestConcurrencyOfTheKnownDead: the calls of a node are free as soon as its death is
// known.
func TestConcurrencyOfTheKnownDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store Memory
		var gone atomic.Bool
		dead, alive := NewSet(&store, "dead", nil), NewSet(&store, "alive", nil)
		defer alive.Close()
		alive.Dead = func(node string) bool { return node == "dead" && gone.Load() }
		for range 4 {
			must.Get(dead.Concurrency("m", 4).Then(nil).Acquire(t.Context(), "a", 0))(t)
		}
		time.Sleep(time.Minute) // they are still in flight
		dead.Close()
		const noticed = time.Second
		time.AfterFunc(noticed, func() { gone.Store(true) })
		began := time.Now()
		settle, err := alive.Concurrency("m", 4).Then(nil).Acquire(t.Context(), "a", 0)
		if took := time.Since(began); err != nil || took < noticed || took > noticed+2*lookFor {
			t.Fatalf("a slot of the dead node was free after %v, %v; its death was known after %v", took, err, noticed)
		}
		settle(0)
	})
}

// TestConcurrencyIsGivenBack: calls that are cancelled, rejected by another limit or
// ended use no slots, neither here nor in the store.
func TestConcurrencyIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &shaky{}
		set := NewSet(store, "n", nil)
		defer set.Close()
		c := set.Concurrency("m", 2)
		why := errors.New("given up")
		refuses := c.Then(refusing{why})
		for i := range 200 {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(rand.N(30*time.Millisecond), func() { cancel(why) })
			l := refuses
			if i%2 == 0 {
				l = c.Then(nil)
			}
			settle, err := l.Acquire(ctx, fmt.Sprint("t", i%3), 0)
			if err == nil {
				settle(0)
			} else if !errors.Is(err, why) {
				t.Fatal(err)
			}
			cancel(nil)
		}
		time.Sleep(3 * renewEvery)
		synctest.Wait()
		if len(c.tenants) > 0 {
			t.Errorf("%d tenants are left", len(c.tenants))
		}
		for name, e := range store.all {
			if string(e.Data) != "[]" {
				t.Errorf("%s is left as %s", name, e.Data)
			}
		}
		store.set(true)
		began := time.Now()
		_, err := c.Then(nil).Acquire(t.Context(), "t", 0)
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Code != llm.CodeUnavailable || !strings.Contains(e.Message, "the limit of m, 2 calls of each tenant at one time at all nodes cannot be kept") {
			t.Errorf("without the store: %v", err)
		}
		if took := time.Since(began); took < awayFor || took > awayFor+triesFor {
			t.Errorf("it took %v", took)
		}
	})
}

// refusing is a limiter that rejects every request.
type refusing struct{ err error }

func (r refusing) Acquire(context.Context, string, int64) (func(int64), error) { return nil, r.err }
