package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
)

// shaky is a slow store with a clock of its own, which sometimes loses its
// acknowledgement or does not answer at all.
type shaky struct {
	Memory
	ahead time.Duration

	mu     sync.Mutex
	away   bool
	faults int // in a hundred
	writes int
}

func (s *shaky) trip() (bool, error) {
	time.Sleep(rand.N(10 * time.Millisecond))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return false, errors.New("no answer")
	}
	return rand.IntN(100) < s.faults, nil
}

func (s *shaky) Read(ctx context.Context, name string) (Entry, error) {
	if _, err := s.trip(); err != nil {
		return Entry{}, err
	}
	e, err := s.Memory.Read(ctx, name)
	e.Time = e.Time.Add(s.ahead)
	return e, err
}

func (s *shaky) Write(ctx context.Context, name string, last uint64, data []byte) error {
	lost, err := s.trip()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.writes++
	s.mu.Unlock()
	err = s.Memory.Write(ctx, name, last, data)
	time.Sleep(rand.N(5 * time.Millisecond))
	if lost {
		return errors.New("the answer was lost")
	}
	return err
}

func (s *shaky) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *shaky) set(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// counting is a model's server that counts.
type counting struct {
	mu   sync.Mutex
	came []arrival
}

type arrival struct {
	at     time.Time
	tenant string
	node   int
	tokens int64
}

func (c *counting) arrive(tenant string, node int, tokens int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came = append(c.came, arrival{time.Now(), tenant, node, tokens})
}

// most is the largest amount in any window.
func (c *counting) most(window time.Duration) (most Amount) {
	var sum Amount
	first := 0
	for _, a := range c.came {
		sum = sum.plus(Amount{1, a.tokens})
		for ; a.at.Sub(c.came[first].at) >= window; first++ {
			sum = sum.minus(Amount{1, c.came[first].tokens})
		}
		most = most.most(sum)
	}
	return most
}

// flood has callers of a tenant call until ctx ends.
func (c *counting) flood(ctx context.Context, work *sync.WaitGroup, l Limiter, tenant string, node, callers int, given func() (reserved, used int64)) {
	for range callers {
		work.Go(func() {
			for ctx.Err() == nil {
				reserved, used := given()
				settle, err := l.Acquire(ctx, tenant, reserved)
				if err != nil {
					continue
				}
				time.Sleep(rand.N(500 * time.Millisecond)) // its time to the server
				c.arrive(tenant, node, used)
				time.Sleep(rand.N(3 * time.Second))
				settle(used)
			}
		})
	}
}

// TestNeverAbove: three nodes request far more than a limit allows. No window of a
// minute exceeds the limit, even with a store that loses answers. Most of the limit is
// used, and each node and tenant gets its share.
func TestNeverAbove(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit  Amount
		faults int
		given  func() (reserved, used int64)
	}{
		"requests":        {Amount{Requests: 60}, 0, func() (int64, int64) { return 0, 0 }},
		"few":             {Amount{Requests: 4}, 0, func() (int64, int64) { return 0, 0 }},
		"many":            {Amount{Requests: 1000}, 0, func() (int64, int64) { return 0, 0 }},
		"lost answers":    {Amount{Requests: 60}, 20, func() (int64, int64) { return 0, 0 }},
		"tokens":          {Amount{Tokens: 100_000}, 0, func() (int64, int64) { return 5000, 100 + rand.Int64N(4900) }},
		"tokens, faults":  {Amount{Tokens: 100_000}, 20, func() (int64, int64) { return 5000, 100 + rand.Int64N(4900) }},
		"both":            {Amount{Requests: 100, Tokens: 200_000}, 5, func() (int64, int64) { return 3000, 3000 }},
		"more than it is": {Amount{Requests: 100, Tokens: 2000}, 0, func() (int64, int64) { return 5000, 1000 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, server := &shaky{faults: tt.faults, ahead: -5 * time.Hour}, &counting{}
				const minutes = 6
				ctx, cancel := context.WithTimeout(t.Context(), minutes*time.Minute)
				defer cancel()
				var work sync.WaitGroup
				for i := range 3 {
					set := NewSet(store, fmt.Sprint("node-", i), nil)
					defer set.Close()
					server.flood(ctx, &work, set.Limit("model m", tt.limit), "a", i, 100, tt.given)
				}
				work.Wait()
				if most := server.most(Window); !tt.limit.covers(most.within(tt.limit)) {
					t.Errorf("a window had %+v, with a limit of %+v", most, tt.limit)
				}
				var sum Amount
				nodes := [3]int{}
				for _, a := range server.came {
					sum = sum.plus(Amount{1, a.tokens})
					nodes[a.node]++
				}
				part := sum.of(tt.limit) / minutes
				t.Logf("%d requests, %.0f %% of the limit, nodes %v, %d writes", len(server.came), 100*part, nodes, store.written())
				if part < 0.45 { // a call returns half of its tokens at its end
					t.Errorf("%.0f %% of what is allowed came through", 100*part)
				}
				if least, most := slices.Min(nodes[:]), slices.Max(nodes[:]); least*3 < most*2-12 {
					t.Errorf("the nodes had %v", nodes)
				}
			})
		})
	}
}

// TestFair: a tenant that floods all nodes does not deprive another one of its part.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, server := &shaky{}, &counting{}
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
		defer cancel()
		var work sync.WaitGroup
		var small *Limit
		given := func() (int64, int64) { return 0, 0 }
		for i := range 3 {
			set := NewSet(store, fmt.Sprint("node-", i), nil)
			defer set.Close()
			small = set.Limit("model m", Amount{Requests: 60})
			server.flood(ctx, &work, small, "large", i, 50, given)
		}
		time.Sleep(2 * time.Minute)
		var longest time.Duration
		for range 20 {
			began := time.Now()
			settle := must.Get(small.Acquire(ctx, "small", 0))(t)
			settle(0)
			longest = max(longest, time.Since(began))
			time.Sleep(5 * time.Second)
		}
		t.Logf("the longest wait was %v", longest)
		if longest > 20*time.Second {
			t.Errorf("a call of the tenant with few waited %v", longest)
		}
		cancel()
		work.Wait()
	})
}

// TestDead: the lease of a dead node is free after the lease and a window, and amounts
// that a node returned are free at once.
func TestDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store Memory
		limit := Amount{Requests: 8}
		dead, alive := NewSet(&store, "dead", nil), NewSet(&store, "alive", nil)
		defer alive.Close()
		began := time.Now()
		for range limit.Requests {
			must.Get(dead.Limit("m", limit).Acquire(t.Context(), "t", 0))(t)
		}
		dead.Close() // it reports nothing any more
		must.Get(alive.Limit("m", limit).Acquire(t.Context(), "t", 0))(t)
		if took := time.Since(began); took < Window || took > Window+Lease+Slack+lookFor {
			t.Errorf("it was free after %v", took)
		}
		time.Sleep(2 * Window)
		other := NewSet(&store, "other", nil)
		defer other.Close()
		settle := must.Get(other.Limit("m", Amount{Tokens: 1000}).Acquire(t.Context(), "t", 1000))(t)
		settle(10)
		time.Sleep(Lease + time.Second)
		began = time.Now()
		if _, err := alive.Limit("m", Amount{Tokens: 1000}).Acquire(t.Context(), "t", 900); err != nil || time.Since(began) > time.Second {
			t.Errorf("what was returned was free after %v, %v", time.Since(began), err)
		}
	})
}

// TestCancelled: a cancelled call stops waiting and uses no amount.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &shaky{}
		set := NewSet(store, "n", nil)
		defer set.Close()
		l := set.Limit("m", Amount{Requests: 400})
		why := errors.New("given up")
		for range 200 { // some while they wait, some when they are served
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(rand.N(30*time.Millisecond), func() { cancel(why) })
			if settle, err := l.Acquire(ctx, "t", 0); err == nil {
				settle(0)
				l.mu.Lock()
				l.giveBack(l.lease.serial, Amount{Requests: 1}) // as a request that was not sent
				l.mu.Unlock()
			} else if !errors.Is(err, why) {
				t.Fatal(err)
			}
			cancel(nil)
		}
		time.Sleep(time.Second)
		began := time.Now()
		for range 190 {
			must.Get(l.Acquire(t.Context(), "t", 0))(t)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("calls that were given up took what later ones needed: %v", took)
		}
	})
}

// TestAway: calls wait for a store that does not answer, for a bounded time, and fail
// with the reason.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &shaky{away: true}
		set := NewSet(store, "n", nil)
		defer set.Close()
		l := set.Limit("model m", Amount{Requests: 10})
		began := time.Now()
		_, err := l.Acquire(t.Context(), "t", 0)
		e, ok := errors.AsType[*llm.Error](err)
		if !ok || e.Code != llm.CodeUnavailable || !e.Final || !strings.Contains(e.Message, "the limit of model m, 10 requests a minute for all nodes cannot be kept") {
			t.Fatalf("%v", err)
		}
		if took := time.Since(began); took < awayFor || took > awayFor+triesFor {
			t.Errorf("it took %v", took)
		}
		time.AfterFunc(3*time.Second, func() { store.set(false) })
		began = time.Now()
		if _, err := l.Acquire(t.Context(), "t", 0); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("after the store came back: %v, %v", time.Since(began), err)
		}
		store.set(true)
		time.AfterFunc(time.Second, set.Close)
		for err = nil; err == nil; {
			_, err = l.Acquire(t.Context(), "t", 0)
		}
		if llm.CodeOf(err) != llm.CodeUnavailable || !strings.Contains(err.Error(), "the node ends") {
			t.Errorf("at the node's end: %v", err)
		}
	})
}

// TestUnreadable: a ledger that cannot be read counts as used, for a window.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store Memory
		set := NewSet(&store, "n", nil)
		defer set.Close()
		l := set.Limit("m", Amount{Requests: 10})
		must.Do(t, store.Write(t.Context(), l.name, 0, []byte("{nonsense")))
		began := time.Now()
		must.Get(l.Acquire(t.Context(), "t", 0))(t)
		if took := time.Since(began); took < Window || took > Window+Lease+Slack+lookFor {
			t.Errorf("it was free after %v", took)
		}
	})
}
