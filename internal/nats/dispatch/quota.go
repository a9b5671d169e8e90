package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/models/limiter"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Quotas are the quotas of the tenants. Each has an entry of the registry with its setting
// and the usage of model calls on the current UTC day, which changes by compare-and-set. It
// is safe for concurrent use.
//
// A model call begins only while the calls that have ended used less than the quota, and
// its usage is stored before its outcome is recorded. So a tenant uses more than its quota
// by at most one call of each branch.
type Quotas struct {
	store limiter.Store
	list  func(ctx context.Context) (map[session.Tenant]messages.Quota, error)
	mint  commitlog.IDGenerator
	name  string // of this process in the entries

	reading sync.Mutex // held while the list is read
	mu      sync.Mutex
	all     map[session.Tenant]messages.Quota
	read    time.Time
	used    map[session.Tenant]*dayUse
}

// dayUse is the usage of a tenant at this process. mu guards it, and writing is held while
// its entry is written.
type dayUse struct {
	writing      sync.Mutex
	mu           sync.Mutex
	day          int64
	sum, written spent // of the day
}

// spent are the tokens and the money of model calls.
type spent struct {
	MicroUSD int64 `json:"micro_usd,omitempty"`
	Tokens   int64 `json:"tokens,omitempty"`
}

func (s spent) plus(o spent) spent  { return spent{s.MicroUSD + o.MicroUSD, s.Tokens + o.Tokens} }
func (s spent) minus(o spent) spent { return spent{s.MicroUSD - o.MicroUSD, s.Tokens - o.Tokens} }

// quotaEntry is the entry of a tenant. Processes has the sum of each process on the day: a
// process that writes its sum twice counts it once.
type quotaEntry struct {
	Quota     messages.Quota   `json:"quota"`
	Day       int64            `json:"day,omitempty"` // see journal.DayOf
	Processes map[string]spent `json:"processes,omitempty"`
}

const (
	// quotaFresh is the maximum age of the known quotas. A tenant's first quota takes
	// effect everywhere within this time; later settings do at once.
	quotaFresh = 5 * time.Second
	// quotaTries bounds how long an entry is read and written.
	quotaTries = 10 * time.Second
	// quotaPause is the pause before another try after an error of the store.
	quotaPause = 100 * time.Millisecond
	quotaKey   = "quota."
)

func newQuotas(store limiter.Store, list func(context.Context) (map[session.Tenant]messages.Quota, error), mint commitlog.IDGenerator) *Quotas {
	return &Quotas{store: store, list: list, mint: mint, name: rand.Text(), used: map[session.Tenant]*dayUse{}}
}

// listQuotas reads the quotas of all tenants.
func (c *Dispatch) listQuotas(ctx context.Context) (map[session.Tenant]messages.Quota, error) {
	all, prefix := map[session.Tenant]messages.Quota{}, len(streams.KeySubject(streams.BucketRegistry, quotaKey))
	for m, err := range c.streams.Values(ctx, streams.BucketRegistry, quotaKey+"*") {
		if err != nil {
			return nil, fmt.Errorf("nats/dispatch: quotas: %w", err)
		}
		var e quotaEntry
		if json.Unmarshal(m.Data, &e) == nil {
			all[session.Tenant(m.Subject[prefix:])] = e.Quota
		}
	}
	return all, nil
}

// of returns the quota of a tenant as of a few seconds ago; ok is false without one.
func (q *Quotas) of(ctx context.Context, t session.Tenant) (found messages.Quota, ok bool, err error) {
	all, fresh := q.known()
	if !fresh {
		q.reading.Lock()
		defer q.reading.Unlock()
		if all, fresh = q.known(); !fresh { // nobody has read it meanwhile
			if all, err = q.list(ctx); err != nil {
				return found, false, fmt.Errorf("%w: %w", session.ErrUnavailable, err)
			}
			q.mu.Lock()
			q.all, q.read = all, time.Now()
			q.mu.Unlock()
		}
	}
	found, ok = all[t]
	return found, ok && found.QuotaAmounts != (messages.QuotaAmounts{}), nil
}

// known returns the quotas as they were read last, and whether they are fresh.
func (q *Quotas) known() (all map[session.Tenant]messages.Quota, fresh bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.all, q.all != nil && time.Since(q.read) < quotaFresh
}

// Limit returns the limit of a tenant's runs, nil without a quota of runs.
func (q *Quotas) Limit(ctx context.Context, t session.Tenant) (*journal.QuotaLimit, error) {
	quota, ok, err := q.of(ctx, t)
	if !ok || quota.Runs == 0 && quota.Concurrency == 0 {
		return nil, err
	}
	return q.limit(t, &quota), nil
}

func (q *Quotas) limit(t session.Tenant, quota *messages.Quota) *journal.QuotaLimit {
	l := &journal.QuotaLimit{Concurrency: quota.Concurrency, Daily: quota.Runs, Log: journal.QuotaLog(q.mint, t), Setting: quota.Setting}
	if o := quota.Opened; o != nil && o.Runs > 0 && quota.Runs > 0 {
		if day, err := time.Parse(time.DateOnly, quota.OpenedOn); err == nil {
			l.Opened, l.OpenedOn = o.Runs, journal.DayOf(day)
		}
	}
	return l
}

// dayText is a UTC day as in messages.Quota.
func dayText(day int64) string {
	return time.UnixMilli(journal.EndOf(day - 1)).UTC().Format(time.DateOnly)
}

// entry reads the entry of a tenant from the leader, for the current day.
func (q *Quotas) entry(ctx context.Context, t session.Tenant) (e quotaEntry, seq uint64, err error) {
	at, err := q.store.Read(ctx, quotaKey+string(t))
	if err == nil && len(at.Data) > 0 {
		err = json.Unmarshal(at.Data, &e)
	}
	if err != nil {
		return e, 0, fmt.Errorf("quota of tenant %s: %w: %w", t, session.ErrUnavailable, err)
	}
	if today := journal.DayOf(time.Now()); today > e.Day {
		e.Day, e.Processes = today, nil
	}
	return e, at.Seq, nil
}

func (e *quotaEntry) sum() (all spent) {
	for _, s := range e.Processes {
		all = all.plus(s)
	}
	return all
}

// update changes the entry of a tenant by compare-and-set.
func (q *Quotas) update(ctx context.Context, t session.Tenant, change func(*quotaEntry) error) error {
	ctx, cancel := context.WithTimeout(ctx, quotaTries)
	defer cancel()
	for {
		e, seq, err := q.entry(ctx, t)
		if err == nil {
			if err := change(&e); err != nil {
				return err
			}
			data, bad := json.Marshal(e)
			if bad != nil {
				return bad
			}
			if err = q.store.Write(ctx, quotaKey+string(t), seq, data); err == nil {
				return nil
			}
		}
		pause := quotaPause
		if errors.Is(err, limiter.ErrChanged) {
			pause = time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", session.ErrUnavailable, err)
		}
	}
}

// Change carries out a request about the quota of a tenant, and returns the limit of its
// runs. It is the same again for a request that is repeated.
func (q *Quotas) Change(ctx context.Context, t session.Tenant, verb, by string, c messages.Control) (*journal.QuotaLimit, error) {
	var l *journal.QuotaLimit
	err := q.update(ctx, t, func(e *quotaEntry) error {
		to := &e.Quota
		switch verb {
		case messages.VerbQuotaSet:
			for _, f := range []struct{ to, n *int64 }{
				{&to.Concurrency, &c.Quota.Concurrency}, {&to.MicroUSD, &c.Quota.MicroUSD}, {&to.Runs, &c.Quota.Runs}, {&to.Tokens, &c.Quota.Tokens},
			} {
				if *f.n > 0 {
					*f.to = *f.n
				}
			}
		case messages.VerbQuotaRemove:
			to.QuotaAmounts, to.Opened, to.OpenedOn = messages.QuotaAmounts{}, nil, ""
		case messages.VerbQuotaOpen:
			if to.QuotaAmounts == (messages.QuotaAmounts{}) {
				return fmt.Errorf("tenant %s has no quota to open: %w", t, run.ErrState)
			}
			open(to, dayText(e.Day), c.Quota)
		}
		to.At, to.By, to.Reason, to.Says = time.Now().UnixMilli(), by, c.Reason, c.By
		to.Setting++
		l = q.limit(t, to)
		return nil
	})
	return l, err
}

// open adds amounts to the quota on a day; nil opens it for any amount.
func open(q *messages.Quota, day string, more *messages.QuotaAmounts) {
	if q.Opened == nil || q.OpenedOn != day {
		q.Opened, q.OpenedOn = &messages.QuotaAmounts{}, day
	}
	if more == nil || *more == (messages.QuotaAmounts{}) {
		more = &messages.QuotaAmounts{MicroUSD: messages.MaxQuota, Runs: messages.MaxQuota, Tokens: messages.MaxQuota}
	}
	o := q.Opened
	o.MicroUSD, o.Runs, o.Tokens = min(o.MicroUSD+more.MicroUSD, messages.MaxQuota), min(o.Runs+more.Runs, messages.MaxQuota), min(o.Tokens+more.Tokens, messages.MaxQuota)
}

// Status returns the quota of a tenant with the usage of its model calls today.
func (q *Quotas) Status(ctx context.Context, t session.Tenant) (out messages.Quota, err error) {
	e, _, err := q.entry(ctx, t)
	if err != nil {
		return out, err
	}
	used := e.sum()
	out = e.Quota
	out.Day, out.Ends = dayText(e.Day), journal.EndOf(e.Day)
	out.Used.Tokens, out.Used.MicroUSD = used.Tokens, used.MicroUSD
	return out, nil
}

// Begin returns nil if a model call of a tenant may begin, or the wait for the end of the
// day or for another setting of the quota.
func (q *Quotas) Begin(ctx context.Context, t session.Tenant) (*journal.Wait, error) {
	quota, ok, err := q.of(ctx, t)
	if !ok || quota.Tokens == 0 && quota.MicroUSD == 0 {
		return nil, err
	}
	e, _, err := q.entry(ctx, t)
	if err != nil {
		return nil, err
	}
	most, used := e.Quota.On(dayText(e.Day)), e.sum().plus(q.unwritten(t))
	w := &journal.Wait{Kind: run.WaitQuota, Due: journal.EndOf(e.Day), Log: journal.QuotaLog(q.mint, t), After: e.Quota.Setting}
	switch {
	case most.Tokens > 0 && used.Tokens >= most.Tokens:
		w.Name, w.Title = "tokens", fmt.Sprintf("%d of %d tokens of tenant %s are used today", used.Tokens, most.Tokens, t)
	case most.MicroUSD > 0 && used.MicroUSD >= most.MicroUSD:
		w.Name, w.Title = "money", fmt.Sprintf("%d of %d micro-USD of tenant %s are used today", used.MicroUSD, most.MicroUSD, t)
	default:
		return nil, nil
	}
	w.Title += fmt.Sprintf(`; "rath cluster quota open %s" opens the day`, t)
	return w, nil
}

// unwritten is the usage of a tenant here that its entry does not have.
func (q *Quotas) unwritten(t session.Tenant) spent {
	q.mu.Lock()
	u := q.used[t]
	q.mu.Unlock()
	if u == nil {
		return spent{}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sum.minus(u.written)
}

// Charge stores the usage of a model call. If the store is away, this process counts the
// usage alone until its next call ends.
func (q *Quotas) Charge(ctx context.Context, t session.Tenant, used session.Usage) {
	quota, ok, _ := q.of(ctx, t) // without the store no call begins
	if s := (spent{used.MicroUSD, used.Tokens()}); ok && (quota.Tokens > 0 || quota.MicroUSD > 0) && s != (spent{}) {
		q.charge(ctx, t, s)
	}
}

func (q *Quotas) charge(ctx context.Context, t session.Tenant, s spent) {
	q.mu.Lock()
	u := q.used[t]
	if u == nil {
		u = &dayUse{}
		q.used[t] = u
	}
	q.mu.Unlock()
	u.mu.Lock()
	u.sum = u.sum.plus(s)
	u.mu.Unlock()
	u.writing.Lock() // calls that end meanwhile are written together
	defer u.writing.Unlock()
	if q.unwritten(t) == (spent{}) {
		return
	}
	var sum spent
	err := q.update(context.WithoutCancel(ctx), t, func(e *quotaEntry) error {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.day < e.Day { // the rest counts on the new day
			u.day, u.sum, u.written = e.Day, u.sum.minus(u.written), spent{}
		}
		if sum = u.sum; e.Processes == nil {
			e.Processes = map[string]spent{}
		}
		e.Processes[q.name] = sum
		return nil
	})
	if err == nil {
		u.mu.Lock()
		u.written = sum
		u.mu.Unlock()
	}
}
