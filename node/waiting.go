package node

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"

	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// poolWaiting is the number of runs that wait for a slot of a pool.
type poolWaiting struct {
	Pool string `json:"pool"`
	// Runs is the sum of the classes.
	Runs        int `json:"runs"`
	Interactive int `json:"interactive"`
	Batch       int `json:"batch"`
}

// waitingRuns asks the relays for the waiting runs. All callers share one request, so
// that no number of them loads the servers.
type waitingRuns struct {
	question
	last atomic.Pointer[[]poolWaiting]
}

// askWith sets the function that asks, which bounds its time itself.
func (q *waitingRuns) askWith(ask func(ctx context.Context) ([]dispatch.PoolWaiting, error)) {
	q.limit, q.fresh = answerFor, answerFresh
	q.ask = func(ctx context.Context) error {
		all, err := ask(ctx)
		if err != nil {
			return err
		}
		var pools []poolWaiting // in the order of their names, like all
		for _, w := range all {
			if len(pools) == 0 || pools[len(pools)-1].Pool != w.Pool {
				pools = append(pools, poolWaiting{Pool: w.Pool})
			}
			p := &pools[len(pools)-1]
			p.Runs += w.Runs
			if w.Class == messages.ClassBatch {
				p.Batch += w.Runs
			} else {
				p.Interactive += w.Runs
			}
		}
		q.last.Store(&pools)
		return nil
	}
}

// waiting answers GET /waiting with {"pools": […]}, or with ?pool=NAME the object of
// that pool, whose numbers are zero if no run waits. If the relays do not answer, the
// response is 503 with a healthAnswer that holds the reason.
func (h *health) waiting(w http.ResponseWriter, r *http.Request) {
	pool := r.URL.Query().Get("pool")
	if pool != "" {
		if err := session.ValidID("pool", pool); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	at, reason := h.now()
	if at == serving {
		if err := h.runs.put(r.Context()); err != nil {
			reason = err.Error()
		}
	}
	if reason != "" {
		h.write(w, at, reason)
		return
	}
	all := *h.runs.last.Load()
	if pool == "" {
		reply(w, http.StatusOK, struct {
			Pools []poolWaiting `json:"pools"`
		}{append([]poolWaiting{}, all...)})
		return
	}
	one := poolWaiting{Pool: pool}
	for _, p := range all {
		if p.Pool == pool {
			one = p
		}
	}
	reply(w, http.StatusOK, one)
}

// reply writes JSON. A failed write has no client left to read it.
func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}
