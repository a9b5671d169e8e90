package journal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Each tenant, workflow and key of a limit has a log of its own, in which no run executes.
// The commit that submits a run with a limit sends a request there, the log decides, and
// the decision goes to the run's home. The end of the run releases its grant.

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
	Rate   int64      `json:"rate,omitempty"`
	Reject bool       `json:"reject,omitempty"`
}

// NewLimit evaluates the limit of a workflow for a task; nil for a workflow without one.
func NewLimit(l *run.Limit, mint commitlog.IDGenerator, t *Task) (*Limit, error) {
	if l == nil || t.Branch != nil {
		return nil, nil
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
		Per: l.Per.Milliseconds(), Rate: int64(l.Rate), Reject: l.Reject,
	}, nil
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
	From      session.ID      `json:"from,omitempty"` // the log of the decision
}

// LimitRequested records the request of a run. Due and Open of this event and the others
// are the state after it: the time in Unix milliseconds at which the clock allows a further
// decision, zero for never, and the number of runs that wait or hold a grant.
type LimitRequested struct {
	Due       int64      `json:"due,omitempty"`
	Limit     Limit      `json:"limit"`
	NotBefore int64      `json:"not_before,omitempty"`
	Open      int64      `json:"open,omitempty"`
	Priority  int64      `json:"priority,omitempty"`
	Run       run.ID     `json:"run"`
	Session   session.ID `json:"session"` // its home
	Workflow  string     `json:"workflow"`
}

// LimitDecided records the decision about a request: a grant, or a rejection with a reason.
type LimitDecided struct {
	Due      int64      `json:"due,omitempty"`
	Open     int64      `json:"open,omitempty"`
	Rejected string     `json:"rejected,omitempty"`
	Run      run.ID     `json:"run"`
	Session  session.ID `json:"session"`
}

// LimitReleased records that a run has ended: it holds no grant, and waits for none.
type LimitReleased struct {
	Due     int64      `json:"due,omitempty"`
	Open    int64      `json:"open,omitempty"`
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"`
}

// Granted records, in the home of a run, that its limit lets it begin.
type Granted struct {
	Revision string `json:"revision,omitempty"`
	Run      run.ID `json:"run"`
	Workflow string `json:"workflow"`
}

// LimitPlace names a grant or a request in the log of a key.
type LimitPlace struct {
	Log session.ID `json:"log"`
	Run run.ID     `json:"run"`
}

// LimitState is the fold of the log of a key.
type LimitState struct {
	Limit   Limit             `json:"limit"` // of the newest request
	Holders []run.ID          `json:"holders,omitempty"`
	Waiting []*LimitRequested `json:"waiting,omitempty"` // the next one first; never changed
	Starts  []int64           `json:"starts,omitempty"`  // the newest, as many as the rate looks at
}

func (l *LimitState) clone() LimitState {
	if l == nil {
		return LimitState{}
	}
	return LimitState{l.Limit, slices.Clone(l.Holders), slices.Clone(l.Waiting), slices.Clone(l.Starts)}
}

func (l *LimitState) waits(id run.ID) int {
	return slices.IndexFunc(l.Waiting, func(r *LimitRequested) bool { return r.Run == id })
}

func (l *LimitState) open() int64 { return int64(len(l.Holders) + len(l.Waiting)) }

// with returns the state after a fact. It may change l.
func (l *LimitState) with(fact any, now int64) *LimitState {
	if l == nil {
		l = &LimitState{}
	}
	l.fold(fact, now)
	return l
}

// fold applies a fact of the log.
func (l *LimitState) fold(fact any, now int64) {
	drop := func(id run.ID) (limit Limit) {
		if i := l.waits(id); i >= 0 {
			limit = l.Waiting[i].Limit
			l.Waiting = slices.Delete(l.Waiting, i, i+1)
		}
		return limit
	}
	switch v := fact.(type) {
	case LimitRequested:
		at := slices.IndexFunc(l.Waiting, func(r *LimitRequested) bool { return r.Priority < v.Priority })
		if at < 0 {
			at = len(l.Waiting)
		}
		l.Limit, l.Waiting = v.Limit, slices.Insert(l.Waiting, at, &v)
	case LimitDecided:
		limit := drop(v.Run)
		if v.Rejected != "" {
			return
		}
		if limit.Concurrency > 0 {
			l.Holders = append(l.Holders, v.Run)
		}
		if l.Limit.Rate > 0 {
			l.Starts = append(l.Starts, now)
			l.Starts = l.Starts[max(len(l.Starts)-int(l.Limit.Rate), 0):]
		}
	case LimitReleased:
		drop(v.Run)
		l.Holders = slices.DeleteFunc(l.Holders, func(id run.ID) bool { return id == v.Run })
	}
}

// full reports whether a release must come before the next grant.
func (l *LimitState) full() bool {
	return protection.LimitHolders && l.Limit.Concurrency > 0 && int64(len(l.Holders)) >= l.Limit.Concurrency
}

// free returns the time from which the rate allows a grant, zero for any time.
func (l *LimitState) free() int64 {
	n := int(l.Limit.Rate)
	if n == 0 || len(l.Starts) < n {
		return 0
	}
	return l.Starts[len(l.Starts)-n] + l.Limit.Per
}

// Before returns the runs that are before a run in the order of grants: the holders and the
// runs that wait before it.
func (l *LimitState) Before(id run.ID) (holders, waiting []run.ID) {
	for _, r := range l.Waiting[:max(l.waits(id), 0)] {
		waiting = append(waiting, r.Run)
	}
	return l.Holders, waiting
}

// next returns the next decision at a time; ok is false if there is none.
func (l *LimitState) next(now int64) (d LimitDecided, ok bool) {
	for _, r := range l.Waiting {
		d = LimitDecided{Run: r.Run, Session: r.Session}
		switch {
		case r.NotBefore > now:
		case !l.full() && l.free() <= now:
			return d, true
		case r.Limit.Reject:
			d.Rejected = fmt.Sprintf("the limit of workflow %s is %s", r.Workflow, &l.Limit)
			if len(l.Holders) > 0 {
				d.Rejected += fmt.Sprintf(", and run %s has not ended", l.Holders[0])
			}
			return d, true
		}
	}
	return d, false
}

// due returns the time of the next decision that the clock allows, zero for none.
func (l *LimitState) due() (first int64) {
	for _, r := range l.Waiting {
		at := r.NotBefore
		if !r.Limit.Reject {
			if l.full() {
				continue
			}
			at = max(at, l.free())
		}
		if first == 0 || at < first {
			first = at
		}
	}
	return first
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
		v.Due, v.Open = l.due(), l.open()
		events = append(events, event(KindLimitRequested, v))
	case s.Released != nil:
		v := *s.Released
		if !knows(v.Run) {
			return nil
		}
		l.fold(v, ms)
		v.Due, v.Open = l.due(), l.open()
		events = append(events, event(KindLimitReleased, v))
	}
	v, ok := l.next(ms)
	for n := 1; ok; n++ {
		d := v
		l.fold(d, ms)
		d.Due, d.Open = l.due(), l.open()
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
func limitDecided(w *StateMachine, r *Record, d LimitDecided, now time.Time) error {
	switch {
	case !ungranted(r):
		return nil // it arrived before
	case d.Rejected != "":
		return w.end(r, run.Failed, run.CodeBusy, d.Rejected, now)
	}
	return w.stage(now, event(KindGranted, Granted{Revision: r.Task.Revision, Run: r.ID, Workflow: r.Task.Workflow}))
}

// ungranted reports whether a run must not begin before its limit lets it.
func ungranted(r *Record) bool { return r.Limit != nil && !r.Granted }

// frees returns the grant or the request that ends with a run; nil for none.
func frees(r *Record) *LimitPlace {
	if r.Limit == nil || r.Granted && r.Limit.Concurrency == 0 {
		return nil
	}
	return &LimitPlace{r.Limit.Log, cmp.Or(r.Limit.Holder, r.ID)}
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
			if l := v.Limit; l != nil && l.Holder == "" && !taken[v.Task.Run] {
				send(l.Log, v.Task.Run, &LimitSignal{Requested: &LimitRequested{
					Limit: *l, NotBefore: v.Task.NotBefore, Priority: v.Task.Priority, Run: v.Task.Run, Session: k.ID, Workflow: v.Task.Workflow,
				}})
			}
		case Granted:
			work = append(work, Work{Task: &Task{ID: v.Run, Workflow: v.Workflow, Revision: v.Revision, Session: k, Resume: true}})
		case LimitDecided:
			send(v.Session, v.Run, &LimitSignal{Decided: &v})
		case Ended:
			if v.Limit != nil {
				send(v.Limit.Log, v.Limit.Run, &LimitSignal{Released: &LimitReleased{Run: v.Limit.Run, Session: k.ID}})
			}
		}
	}
	return work
}

// Unwanted returns the signal that releases the grant which s brings to a run that has
// ended; nil for other signals.
func (s Signal) Unwanted() *Signal {
	if s.Limit == nil || s.Limit.Decided == nil || s.Limit.Decided.Rejected != "" {
		return nil
	}
	return &Signal{To: session.Key{Tenant: s.To.Tenant, ID: s.Limit.From}, Run: s.Run, Limit: &LimitSignal{From: s.To.ID, Released: &LimitReleased{Run: s.Run, Session: s.To.ID}}}
}
