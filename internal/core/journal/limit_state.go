package journal

import (
	"fmt"
	"slices"

	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/run"
)

// LimitState is the fold of the log of a key.
type LimitState struct {
	Blocked []*LimitBlocked   `json:"blocked,omitempty"` // never changed
	Begun   int64             `json:"begun,omitempty"`   // the number of grants of the day
	Day     int64             `json:"day,omitempty"`     // see DayOf
	Limit   Limit             `json:"limit"`             // of the newest request
	Holders []run.ID          `json:"holders,omitempty"`
	Waiting []*LimitRequested `json:"waiting,omitempty"` // the next one first; never changed
	Starts  []int64           `json:"starts,omitempty"`  // the newest, as many as the rate looks at
}

func (l *LimitState) clone() LimitState {
	if l == nil {
		return LimitState{}
	}
	return LimitState{slices.Clone(l.Blocked), l.Begun, l.Day, l.Limit, slices.Clone(l.Holders), slices.Clone(l.Waiting), slices.Clone(l.Starts)}
}

func (l *LimitState) waits(id run.ID) int {
	return slices.IndexFunc(l.Waiting, func(r *LimitRequested) bool { return r.Run == id })
}

func (l *LimitState) open() int64 {
	return int64(len(l.Holders) + len(l.Waiting) + len(l.Blocked))
}

func (l *LimitState) state() KeyState { return KeyState{l.due(), l.open()} }

// idle reports whether the log can be removed: no run waits or holds, the rate counts no
// start, and a day of a quota is over.
func (l *LimitState) idle(now int64) bool {
	switch {
	case l == nil:
		return true
	case l.open() > 0 || l.Limit.isQuota() && now/dayMillis <= l.Day:
		return false
	}
	return len(l.Starts) == 0 || l.Starts[len(l.Starts)-1]+l.Limit.Per <= now
}

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
		l.set(v.Limit)
		l.Waiting = slices.Insert(l.Waiting, at, &v)
	case LimitSet:
		l.set(v.Limit)
		l.expire(now)
	case LimitBlocked:
		l.expire(now)
		l.Blocked = append(l.Blocked, &v)
	case LimitDecided:
		if v.Path != "" {
			l.unblock(v.Run, v.Path)
			return
		}
		limit := drop(v.Run)
		if v.Rejected != "" {
			return
		}
		if limit.Concurrency > 0 || limit.isQuota() {
			l.Holders = append(l.Holders, v.Run)
		}
		l.begin(now)
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

// free returns the time from which the rate and the day allow a grant, zero for any time.
func (l *LimitState) free() int64 {
	n := int(l.Limit.Rate)
	if n == 0 || len(l.Starts) < n {
		return l.Opens()
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
	for _, b := range l.Blocked {
		if b.Quota < l.Limit.setting() && b.Until > now {
			return LimitDecided{Path: b.Path, Run: b.Run, Session: b.Session}, true
		}
	}
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
