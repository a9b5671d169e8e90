package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// dayQuota is the quota of a tenant: two runs a day, and one model call until the operator
// opens the day.
type dayQuota struct {
	mu     sync.Mutex
	tokens int64
	set    uint64 // the number of the setting besides the first
}

func (q *dayQuota) limit() *journal.QuotaLimit {
	return &journal.QuotaLimit{Daily: 2, Log: "quota-1-0", Setting: 1 + q.set}
}

// open returns the setting with which the operator opens the day.
func (q *dayQuota) open(t session.Tenant) journal.Signal {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.set = 1
	l := q.limit()
	return journal.Signal{To: session.Key{Tenant: t, ID: l.Log}, Limit: &journal.LimitSignal{Set: &journal.LimitSet{By: "ann", Limit: l.Limit()}}}
}

func (q *dayQuota) Begin(context.Context, session.Tenant) (*journal.Wait, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tokens == 0 || q.set > 0 {
		return nil, nil
	}
	l := q.limit()
	return &journal.Wait{Kind: run.WaitQuota, Name: "tokens", Due: journal.EndOf(journal.DayOf(time.Now())), Log: l.Log, After: l.Setting}, nil
}

func (q *dayQuota) Charge(_ context.Context, _ session.Tenant, used session.Usage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tokens += used.Tokens()
}

// spenders is a workflow that starts itself three times. Each of them calls a model.
func spenders(ctx context.Context, s session.Session) (session.Session, error) {
	if i, _ := flow.RunInfo(ctx); i.Input != nil {
		return (&flow.Agent{Name: "a"}).Forward(ctx, s.With(session.UserText("question")))
	}
	var all []flow.Started
	for n := range 3 {
		one, err := flow.Start(ctx, flow.Task{Workflow: "w", ID: run.ID(fmt.Sprint("one-", n)), Input: json.RawMessage(`1`)})
		if err != nil {
			return s, err
		}
		all = append(all, one)
		if err := flow.Sleep(ctx, time.Second); err != nil { // one begins after the other
			return s, err
		}
	}
	for _, one := range all {
		if end, err := one.Result(ctx, 0); err != nil || end.Err != nil {
			return s, fmt.Errorf("%w: %w", err, end.Err)
		}
	}
	return s.With(session.AssistantText("all done")), nil
}

// TestRecordedQuotas: the auditor accepts runs and model calls that wait for a quota and whose
// process dies at each append, and finds forged grants, settings and calls.
func TestRecordedQuotas(t *testing.T) {
	lives{
		begin: func(*testing.T) (*fleet, flow.Workflow) { return &fleet{quota: &dayQuota{}}, flow.Func(spenders) },
		ends:  run.Succeeded, runs: 4,
		forgeries: []forgery{
			{`"kind":"limit.decided","schema":1,"time":946771200000`, `"kind":"limit.decided","schema":1,"time":946771199999`, "at most 2 runs that begin on a UTC day, found 3"},
			{`{"data":{"open":1,"run":"one-1","session":"5f1fa0f3c7571efe0d58-1-0"},"kind":"limit.decided"`, `{"data":{"open":1,"run":"one-0","session":"31911c3ab86a79157e83-1-0"},"kind":"limit.decided"`, "a decision about a run that waits"},
			{`{"data":{"attempt":1,"epoch":1,"home":{"session":"31911c3ab86a79157e83-1-0","tenant":"default"},"incarnation":"i1","revision":"1","run":"one-0","workflow":"w"},"kind":"run.claimed"`, `{"data":{"run":"one-0","workflow":"w"},"kind":"run.granted"`, "run.granted once"},
			{`{"by":"ann","limit"`, `{"limit"`, "a setting by an operator, found it by nobody"},
			{`"setting":2}}`, `"setting":1}}`, "a setting of this quota after number 1"},
			{`"path":"0.quota.0","run":"one-1","session"`, `"path":"7.quota.0","run":"one-1","session"`, "a blocked model call, after another setting of the quota"},
			{`"path":"0.quota.0","quota":1`, `"path":"7.quota.0","quota":1`, "a run.waiting for a quota of it in 5f1fa0f3c7571efe0d58-1-0"},
			{`{"data":{"open":1,"path":"0.quota.0","run":"one-1","session":"5f1fa0f3c7571efe0d58-1-0"},"kind":"limit.decided"`, `{"data":{"open":1},"kind":"vendor.note"`, "a limit.decided of a call of it in quota-1-0"},
			{`{"data":{"kind":"opened","n":1,"path":"0.quota.0","run":"one-1","wake":1,"workflow":"w"},"kind":"run.received"`, `{"data":{"open":1},"kind":"vendor.note"`, "run one-1: want"},
		},
	}.audited(t)
}
