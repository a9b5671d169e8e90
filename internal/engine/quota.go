package engine

import (
	"context"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
)

// Quota keeps the model calls of tenants within the tokens and the money of a day. It is safe
// for concurrent use.
type Quota interface {
	// Begin returns nil if a call of a tenant may begin, or else the condition that the run
	// waits for before it asks again. The caller sets the path of the wait.
	Begin(ctx context.Context, t session.Tenant) (*journal.Wait, error)
	// Charge counts the usage of a call that has ended. The outcome of the call is recorded
	// afterwards.
	Charge(ctx context.Context, t session.Tenant, used session.Usage)
}

// underQuota waits until the quota of the tenant allows the model call of a step. Its waits
// are no steps: the record of the call consumes their signals.
func underQuota(st *step, q Quota) error {
	for n := 0; ; n++ {
		w, err := q.Begin(st.ctx, st.ex.home.Tenant)
		if err != nil || w == nil {
			return err
		}
		w.Path = journal.QuotaPath(st.asked.Path).Index(n)
		if _, err := st.ex.signals.wait(st.ctx, []journal.Wait{*w}, 0, false); err != nil {
			return err
		}
	}
}

// chargeQuota returns a function that counts the usage of a model call, also of its requests
// that failed.
func chargeQuota(m *completion, q Quota) (charge func()) {
	st := m.st
	lost := func() session.Usage {
		st.ex.mu.Lock()
		defer st.ex.mu.Unlock()
		return st.lost
	}
	before := lost()
	return func() {
		used := lost().Sub(before)
		if m.resp != nil {
			used = used.Add(m.resp.Usage)
		}
		q.Charge(st.ctx, st.ex.home.Tenant, used)
	}
}
