package journal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Each tenant, workflow and key of a limit has a log of its own, in which no run executes.
// The commit that submits a run with a limit sends a request there, the log decides, and
// the decision goes to the run's home. The end of the run releases its grant. The quota of a
// tenant is such a limit, see quota.go.

// The events of the log of a key, and KindGranted, which is in the home of the run.
const (
	KindLimitRequested = "limit.requested"
	KindLimitDecided   = "limit.decided"
	KindLimitReleased  = "limit.released"
	KindGranted        = "run.granted"
)

// Limit is the limit of a run, as it was evaluated when its task was taken.
type Limit struct {
	Concurrency int64 `json:"concurrency,omitempty"`
	// Holder is, for a cleanup run, the run whose grant it keeps.
	Holder run.ID     `json:"holder,omitempty"`
	Key    []string   `json:"key,omitempty"`
	Log    session.ID `json:"log"` // of the key
	Per    int64      `json:"per_ms,omitempty"`
	// Quota is the quota of the tenant. It is this limit itself if the logs are the same.
	// Otherwise the run needs a grant of the quota after this one's.
	Quota  *QuotaLimit `json:"quota,omitempty"`
	Rate   int64       `json:"rate,omitempty"`
	Reject bool        `json:"reject,omitempty"`
}

// NewLimit evaluates the limit of a workflow for a task, and puts the quota of its tenant
// after it; nil for a task without both.
func NewLimit(l *run.Limit, quota *QuotaLimit, mint commitlog.IDGenerator, t *Task) (*Limit, error) {
	switch {
	case t.Branch != nil || l == nil && quota == nil:
		return nil, nil
	case l == nil:
		return new(quota.Limit()), nil
	}
	key, err := l.KeyOf(t.Input, t.Tags)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", t.ID, err)
	}
	name, err := canonical.Marshal(append([]string{t.Workflow}, key...))
	if err != nil {
		return nil, err
	}
	return &Limit{
		Concurrency: int64(l.Concurrency), Key: key, Log: mint.Child(t.Session.Tenant, name, "limit"),
		Per: l.Per.Milliseconds(), Quota: quota, Rate: int64(l.Rate), Reject: l.Reject,
	}, nil
}

// request returns the request of the limit's grant for a task in the session home.
func (l *Limit) request(t wireTask, home session.ID) *LimitRequested {
	return &LimitRequested{Limit: *l, NotBefore: t.NotBefore, Priority: t.Priority, Run: t.Run, Session: home, Workflow: t.Workflow}
}

// kept reports whether the run keeps the grant of another one.
func (l *Limit) kept() bool { return l != nil && l.Holder != "" }

// String returns the limit as in "2 at a time for acme".
func (l *Limit) String() string {
	var bounds []string
	if l.Concurrency > 0 {
		bounds = append(bounds, fmt.Sprintf("%d at a time", l.Concurrency))
	}
	if l.Rate > 0 {
		bounds = append(bounds, fmt.Sprintf("%d per %v", l.Rate, time.Duration(l.Per)*time.Millisecond))
	}
	if l.isQuota() && l.Quota.Daily > 0 {
		bounds = append(bounds, fmt.Sprintf("%d per UTC day", l.Quota.Daily))
	}
	text := strings.Join(bounds, " and ")
	if len(l.Key) > 0 {
		text += " for " + strings.Join(l.Key, ", ")
	}
	return text
}

// LimitSignal is a fact for the log of a key, or the decision for the home of a run.
// Exactly one of its facts is set.
type LimitSignal struct {
	Requested *LimitRequested `json:"requested,omitempty"`
	Released  *LimitReleased  `json:"released,omitempty"`
	Decided   *LimitDecided   `json:"decided,omitempty"`
	Set       *LimitSet       `json:"set,omitempty"`
	Blocked   *LimitBlocked   `json:"blocked,omitempty"`
	From      session.ID      `json:"from,omitempty"` // the log of the decision
}

// LimitRequested records the request of a run.
type LimitRequested struct {
	KeyState
	Limit     Limit      `json:"limit"`
	NotBefore int64      `json:"not_before,omitempty"`
	Priority  int64      `json:"priority,omitempty"`
	Run       run.ID     `json:"run"`
	Session   session.ID `json:"session"` // its home
	Workflow  string     `json:"workflow"`
}

// LimitDecided records the decision about a request: a grant, or a rejection with a reason;
// with a path, that a blocked call of a model may begin.
type LimitDecided struct {
	KeyState
	Path     run.Path   `json:"path,omitempty"`
	Rejected string     `json:"rejected,omitempty"`
	Run      run.ID     `json:"run"`
	Session  session.ID `json:"session"`
}

// LimitReleased records that a run has ended: it holds no grant, and waits for none.
type LimitReleased struct {
	KeyState
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"`
}

// Granted records, in the home of a run, that its limit or the ends of its predecessors let
// it begin, or with Next that it needs a grant of the next limit.
type Granted struct {
	Next     *LimitRequested `json:"next,omitempty"`
	Revision string          `json:"revision,omitempty"`
	Run      run.ID          `json:"run"`
	Workflow string          `json:"workflow"`
}

// LimitPlace names a grant or a request in the log of a key.
type LimitPlace struct {
	Log   session.ID `json:"log"`
	Quota session.ID `json:"quota,omitempty"` // the log of a quota with another one of the run
	Run   run.ID     `json:"run"`
}

// decideLimit decides about a fact for the log of a key, or with nil about the time.
func decideLimit(w *StateMachine, s *LimitSignal, now time.Time) error {
	l, ms := w.state.limits.clone(), now.UnixMilli()
	knows := func(id run.ID) bool { return l.waits(id) >= 0 || slices.Contains(l.Holders, id) }
	var events []session.Event
	switch {
	case s == nil:
	case s.Requested != nil:
		v := *s.Requested
		if knows(v.Run) {
			return nil // it arrived before
		}
		if len(l.Waiting) >= maxLimited {
			return fmt.Errorf("journal: %d runs wait for the limit of %s: %w", len(l.Waiting), w.key, session.ErrUnavailable)
		}
		l.fold(v, ms)
		v.KeyState = l.state()
		events = append(events, event(KindLimitRequested, v))
	case s.Set != nil:
		v := *s.Set
		if !v.Limit.isQuota() || v.Limit.setting() <= l.Limit.setting() {
			return nil
		}
		l.fold(v, ms)
		v.KeyState = l.state()
		events = append(events, event(KindLimitSet, v))
	case s.Blocked != nil:
		v := *s.Blocked
		if l.blocks(v.Run, v.Path) >= 0 || v.Until <= ms {
			return nil
		}
		if len(l.Blocked) >= maxLimited {
			return fmt.Errorf("journal: %d calls wait for the quota of %s: %w", len(l.Blocked), w.key, session.ErrUnavailable)
		}
		l.fold(v, ms)
		v.KeyState = l.state()
		events = append(events, event(KindLimitBlocked, v))
	case s.Released != nil:
		v := *s.Released
		if !knows(v.Run) {
			return nil
		}
		l.fold(v, ms)
		v.KeyState = l.state()
		events = append(events, event(KindLimitReleased, v))
	}
	v, ok := l.next(ms)
	for n := 1; ok; n++ {
		d := v
		l.fold(d, ms)
		d.KeyState = l.state()
		if v, ok = l.next(ms); ok && n == maxDecided {
			ok, d.Due = false, ms // the rest at the next tick
		}
		events = append(events, event(KindLimitDecided, d))
	}
	if len(events) == 0 {
		return fmt.Errorf("journal: no event is due in session %s: %w", w.key, run.ErrState)
	}
	return w.stage(now, events...)
}

// limitDecided records the decision about a run in its home. A run that does not wait for it
// returns ErrState, and its grant is released.
func limitDecided(w *StateMachine, r *Record, s *LimitSignal, now time.Time) error {
	d, l := s.Decided, awaits(r)
	switch {
	case d.Path != "":
		return unblocked(w, r, d.Path, now)
	case l == nil || s.From != l.Log:
		return nil // it arrived before
	case d.Rejected != "":
		return w.end(r, run.Failed, run.CodeBusy, d.Rejected, now)
	}
	g := Granted{Revision: r.Task.Revision, Run: r.ID, Workflow: r.Task.Workflow}
	if q := l.Quota; q != nil && !l.isQuota() {
		g.Next = &LimitRequested{Limit: q.Limit(), Priority: r.Task.Priority, Run: r.ID, Session: w.key.ID, Workflow: r.Task.Workflow}
	}
	return w.stage(now, event(KindGranted, g))
}

// awaits returns the limit without whose grant a run must not begin; nil for none.
func awaits(r *Record) *Limit {
	switch {
	case r.Limit == nil || r.Granted:
		return nil
	case r.Keyed:
		return new(r.Limit.Quota.Limit())
	}
	return r.Limit
}

// frees returns the grants and the requests that end with a run; nil for none.
func frees(r *Record) *LimitPlace {
	if r.Limit == nil || len(r.After) > 0 {
		return nil
	}
	l, holder, granted := r.Limit, cmp.Or(r.Limit.Holder, r.ID), r.Granted || r.Keyed
	key := !l.isQuota() && (!granted || l.Concurrency > 0)
	quota := l.Quota != nil && (granted || l.isQuota())
	switch {
	case key && quota:
		return &LimitPlace{l.Log, l.Quota.Log, holder}
	case key:
		return &LimitPlace{Log: l.Log, Run: holder}
	case quota:
		return &LimitPlace{Log: l.Quota.Log, Run: holder}
	}
	return nil
}

// limitWork adds the follow-ups of a commit that are about limits. taken are the runs that
// it claims or ends.
func limitWork(work []Work, k session.Key, facts []Fact, taken map[run.ID]bool) []Work {
	send := func(to session.ID, about run.ID, s *LimitSignal) {
		s.From = k.ID
		work = append(work, Work{Signal: &Signal{To: session.Key{Tenant: k.Tenant, ID: to}, Run: about, Limit: s}})
	}
	for i := range facts {
		switch v := facts[i].What.(type) {
		case Submitted:
			if l := v.Limit; l != nil && l.Holder == "" && !taken[v.Task.Run] && len(v.Task.After) == 0 {
				send(l.Log, v.Task.Run, &LimitSignal{Requested: l.request(v.Task, k.ID)})
			}
		case RunWaiting:
			for _, w := range v.For {
				if w.Kind == run.WaitQuota {
					send(w.Log, v.Run, &LimitSignal{Blocked: &LimitBlocked{Path: w.Path, Quota: w.After, Run: v.Run, Session: k.ID, Until: w.Due}})
				}
			}
		case Granted:
			if v.Next != nil {
				send(v.Next.Limit.Log, v.Run, &LimitSignal{Requested: v.Next})
				continue
			}
			work = append(work, Work{Task: &Task{ID: v.Run, Workflow: v.Workflow, Revision: v.Revision, Session: k, Resume: true}})
		case LimitDecided:
			send(v.Session, v.Run, &LimitSignal{Decided: &v})
		case Ended:
			if at := v.Limit; at != nil {
				for _, log := range []session.ID{at.Log, at.Quota} {
					if log != "" {
						send(log, at.Run, &LimitSignal{Released: &LimitReleased{Run: at.Run, Session: k.ID}})
					}
				}
			}
		}
	}
	return work
}

// Unwanted returns the signal that releases the grant which s brings to a run that has
// ended; nil for other signals.
func (s Signal) Unwanted() *Signal {
	if s.Limit == nil || s.Limit.Decided == nil || s.Limit.Decided.Rejected != "" || s.Limit.Decided.Path != "" {
		return nil
	}
	return &Signal{To: session.Key{Tenant: s.To.Tenant, ID: s.Limit.From}, Run: s.Run, Limit: &LimitSignal{From: s.To.ID, Released: &LimitReleased{Run: s.Run, Session: s.To.ID}}}
}
