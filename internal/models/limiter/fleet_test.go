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

// TestFleet: three nodes with separate connections to a NATS server request far more
// than the limit, and one of them ends meanwhile. A model's server sees no window above
// the limit. The window is two seconds here.
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
	// TestNeverAbove checks how much of it is used, independent of this machine's
	// speed.
	if len(came) < allowed/4 {
		t.Errorf("%d requests in %v", len(came), lasts)
	}
}
