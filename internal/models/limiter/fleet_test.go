package limiter_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/models/limiter"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// TestFleet: three nodes over connections of their own to a server of NATS, each asking for
// far more than is allowed, one of which ends meanwhile: a model's server sees no window
// with more than that. The window is one of two seconds here.
func TestFleet(t *testing.T) {
	t.Parallel()
	const (
		window, lease, slack = 2 * time.Second, 200 * time.Millisecond, time.Second
		allowed, callers     = 100, 40
		lasts                = 5 * time.Second
	)
	var mu sync.Mutex
	var came []time.Time
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		came = append(came, time.Now())
	}))
	defer server.Close()
	srv := natstest.Start(t, nil)
	layer := streamstest.Layer[*api.Conn](api.Over)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var work sync.WaitGroup
	for i := range 3 {
		c := layer.Dial(t, streamstest.NodeOptions(srv))
		if i == 0 {
			must.Do(t, c.Streams.Provision(t.Context()))
		}
		set := limiter.NewSet(c.Dispatch.Ledgers(), fmt.Sprint("node-", i), nil)
		set.Shorten(window, lease, slack)
		defer set.Close()
		if i == 2 {
			time.AfterFunc(lasts/2, set.Close)
		}
		l := set.Limit("model m", limiter.Amount{Requests: allowed})
		for range callers {
			work.Go(func() {
				for {
					settle, err := l.Acquire(ctx, "acme", 0)
					if err != nil { // it ended
						return
					}
					if r, err := http.Get(server.URL); err == nil {
						r.Body.Close()
					}
					settle(0)
				}
			})
		}
	}
	work.Wait()
	most, first := 0, 0
	for i := range came {
		for ; came[i].Sub(came[first]) >= window; first++ {
		}
		most = max(most, i-first+1)
	}
	t.Logf("%d requests in %v, at most %d in %v", len(came), lasts, most, window)
	if most > allowed {
		t.Errorf("%d requests in %v, and %d are allowed", most, window, allowed)
	}
	// How much of it comes through is TestNeverAbove's to say, in time that is not this
	// machine's.
	if len(came) < allowed/4 {
		t.Errorf("%d requests in %v", len(came), lasts)
	}
}
