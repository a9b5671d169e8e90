package node

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func quotaTo(t *testing.T, c *client.Client, verb string, a messages.QuotaAmounts) {
	t.Helper()
	must.Do(t, c.Fleet.ChangeQuota(t.Context(), verb, messages.Control{By: "ana", Quota: &a, Reason: "contract"}))
}

// waitsForQuota returns the state of a run once it waits for the quota.
func waitsForQuota(t *testing.T, c *client.Client, id run.ID) *messages.LiveLimit {
	t.Helper()
	for {
		if l, err := c.Runs.Live(t.Context(), id); err == nil && l.Limit != nil && l.Limit.Quota {
			return l.Limit
		}
		time.Sleep(time.Millisecond)
	}
}

// TestQuotaOfRuns: runs above the quota of a tenant wait, after the grant of their key, and
// begin when the operator raises or opens it. A quota below the open runs stops none.
func TestQuotaOfRuns(t *testing.T) {
	t.Parallel()
	g := &gate{}
	c := g.node(t, &run.Limit{Key: []string{"input.customer"}, Concurrency: 1})
	quotaTo(t, c, messages.VerbQuotaSet, messages.QuotaAmounts{Concurrency: 1, Runs: 3})
	bill(t, c, "a", "acme", true, 0)
	inState(t, c, "a", run.Waiting)
	bill(t, c, "b", "globex", true, 0)
	if l := waitsForQuota(t, c, "b"); l.Limit != "1 at a time and 3 per UTC day" || l.Begun != 1 || l.Opens != 0 || len(l.Holders) != 1 || l.Holders[0] != "a" {
		t.Errorf("b waits for %+v", l)
	}
	quotaTo(t, c, messages.VerbQuotaSet, messages.QuotaAmounts{Concurrency: 5})
	inState(t, c, "b", run.Waiting)
	quotaTo(t, c, messages.VerbQuotaSet, messages.QuotaAmounts{Concurrency: 1, Runs: 1}) // below the open runs
	bill(t, c, "c", "initech", false, 0)
	if l := waitsForQuota(t, c, "c"); l.Begun != 2 || time.UnixMilli(l.Opens).UTC().Format("15:04:05") != "00:00:00" {
		t.Errorf("c waits for %+v", l)
	}
	must.Do(t, c.Fleet.ChangeQuota(t.Context(), messages.VerbQuotaOpen, messages.Control{}))
	for _, id := range []run.ID{"a", "b"} {
		goOnWith(t, c, id)
		if r := must.Get(c.Wait(t.Context(), id))(t); r.State != run.Succeeded {
			t.Errorf("%+v", r)
		}
	}
	if r := must.Get(c.Wait(t.Context(), "c"))(t); r.State != run.Succeeded {
		t.Errorf("%+v", r)
	}
	bill(t, c, "d", "acme", true, 0)
	inState(t, c, "d", run.Waiting)
	bill(t, c, "e", "globex", false, 0)
	waitsForQuota(t, c, "e")
	must.Report(t, c.Runs.Cancel(t.Context(), "e", messages.Control{Reason: "enough"}))
	must.Get(c.Wait(t.Context(), "e"))(t)
	must.Do(t, c.Fleet.ChangeQuota(t.Context(), messages.VerbQuotaRemove, messages.Control{By: "ana"}))
	bill(t, c, "f", "globex", false, 0)
	if r := must.Get(c.Wait(t.Context(), "f"))(t); r.State != run.Succeeded {
		t.Errorf("without a quota: %+v", r)
	}
	goOnWith(t, c, "d")
	must.Get(c.Wait(t.Context(), "d"))(t)
	for {
		q := must.Get(c.Fleet.Quota(t.Context()))(t)
		if q.Used.Running == 0 && q.Used.Waiting == 0 {
			if q.Setting != 5 || q.By == "" || q.Says != "ana" || q.Runs != 0 {
				t.Errorf("the quota is %+v", q)
			}
			break
		}
		time.Sleep(time.Millisecond)
	}
	for _, a := range []*messages.QuotaAmounts{nil, {}, {Runs: -1}, {Tokens: messages.MaxQuota + 1}} {
		if err := c.Fleet.ChangeQuota(t.Context(), messages.VerbQuotaSet, messages.Control{Quota: a}); run.CodeOf(err) != run.CodeMalformed {
			t.Errorf("quota %+v: %v", a, err)
		}
	}
	if err := c.Fleet.ChangeQuota(t.Context(), messages.VerbQuotaOpen, messages.Control{}); run.CodeOf(err) != run.CodeState {
		t.Errorf("a quota that is not there is opened: %v", err)
	}
}

// meter is a model whose every answer uses as many tokens, and notes how many there were.
type meter struct {
	mu     sync.Mutex
	each   int64
	calls  int
	noted  bool // in the ledger, by their keys
	during func()
}

func (m *meter) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

func (m *meter) Complete(_ context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	m.mu.Lock()
	m.calls++
	m.mu.Unlock()
	if m.noted {
		if err := note(r.StepKey); err != nil {
			return nil, err
		}
	}
	if m.during != nil {
		m.during()
	}
	return &llm.Response{Text: "done", Finish: llm.FinishStop, Model: "meter", Usage: session.Usage{Calls: 1, Input: m.each / 2, Output: m.each - m.each/2}}, nil
}

func (m *meter) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// quotaCalls are the model calls of each run in a test with a quota. No run ends within it.
const quotaCalls = 25

// metered are the options of a node of a test that kills another one.
func metered() Options {
	m := &meter{each: 100, noted: true, during: func() { time.Sleep(10 * time.Millisecond) }}
	return Options{Models: Models{Source: m}, Slots: 4, Workflows: []flow.Registration{asking(quotaCalls)}}
}

func asking(calls int) flow.Registration {
	return flow.Registration{Name: "asks", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			var err error
			for i := range calls {
				if s, err = (&flow.Agent{Name: "a"}).Forward(ctx, s.With(session.UserText(fmt.Sprint("question ", i)))); err != nil {
					return s, err
				}
			}
			return s, nil
		})
	}}
}

// TestQuotaOfTokens: at two nodes that ask at once, a tenant uses more than its tokens by at
// most one call of each run. Its runs wait without a slot until the operator opens the day,
// and each makes its calls once.
func TestQuotaOfTokens(t *testing.T) {
	t.Parallel()
	const runs, calls, each, quota = 8, quotaCalls, 100, 2000
	srv := natstest.Start(t, nil)
	m := &meter{each: each}
	var nodes []*Instance
	for range 2 {
		nodes = append(nodes, member(t, srv, Options{Models: Models{Source: m}, Slots: 4, Workflows: []flow.Registration{asking(calls)}}))
	}
	c := must.Get(nodes[0].Client(t.Context()))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	quotaTo(t, c, messages.VerbQuotaSet, messages.QuotaAmounts{Tokens: quota})
	id := func(n int) run.ID { return run.ID(fmt.Sprint("asks-", n)) }
	for n := range runs {
		must.Get(c.Submit(t.Context(), "asks", messages.Task{ID: id(n)}))(t)
	}
	var waits messages.RunInfo
	for n := range runs {
		waits = inState(t, c, id(n), run.Waiting)
		if w := waits.Waits[0]; w.Kind != run.WaitQuota || !strings.Contains(w.Title, "of 2000 tokens of tenant default are used today") {
			t.Errorf("run %d waits for %+v", n, w)
		}
	}
	q := must.Get(c.Fleet.Quota(t.Context()))(t)
	if n := int64(m.count()); n*each < quota || n*each > quota+runs*each || q.Used.Tokens != n*each {
		t.Errorf("%d calls of %d tokens each, %d counted, and %d are allowed", n, each, q.Used.Tokens, quota)
	}
	before := m.count()
	quotaTo(t, c, messages.VerbQuotaOpen, messages.QuotaAmounts{Tokens: q.Used.Tokens - quota + each})
	for m.count() == before {
		time.Sleep(time.Millisecond)
	}
	must.Do(t, c.Fleet.ChangeQuota(t.Context(), messages.VerbQuotaOpen, messages.Control{}))
	for n := range runs {
		if r := must.Get(c.Wait(t.Context(), id(n)))(t); r.State != run.Succeeded || r.Usage.Tokens() != calls*each {
			t.Errorf("%+v", r)
		}
	}
	if q = must.Get(c.Fleet.Quota(t.Context()))(t); m.count() != runs*calls || q.Used.Tokens != runs*calls*each {
		t.Errorf("%d calls, %d tokens are counted", m.count(), q.Used.Tokens)
	}
}
