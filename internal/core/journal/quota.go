package journal

import (
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The quota of a tenant is a limit of all its runs, with the number of runs that may begin on
// a UTC day. The operator sets it in its log. A run with a limit by key requests a grant of
// the quota after the grant of the key: always in this order, so that no two runs wait for
// each other. Model calls that the day's tokens or money do not allow are blocked: their runs
// wait until the end of the day or the next setting.

// The events of the log of a quota, besides those of limits.
const (
	KindLimitSet     = "limit.set"
	KindLimitBlocked = "limit.blocked"
)

// LimitSet records that an operator set the quota. A setting with a lower number than the
// known one has no effect.
type LimitSet struct {
	KeyState
	By    string `json:"by,omitempty"`
	Limit Limit  `json:"limit"`
	Says  string `json:"says,omitempty"`
}

// LimitBlocked records that a run waits with a model call until a time, or until a setting
// of the quota after the one with the number Quota.
type LimitBlocked struct {
	KeyState
	Path    run.Path   `json:"path"` // of the wait
	Quota   uint64     `json:"quota"`
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"` // its home
	Until   int64      `json:"until"`
}

// QuotaLog returns the log of the quota of a tenant.
func QuotaLog(mint commitlog.IDGenerator, t session.Tenant) session.ID {
	return mint.Child(t, "quota", "quota")
}

// QuotaPath is the path below which a model call waits for the quota.
func QuotaPath(step run.Path) run.Path { return step.Child("quota") }

const dayMillis = int64(24 * time.Hour / time.Millisecond)

// DayOf returns the UTC day of a time, as the number of days since 1970, and EndOf the time
// in Unix milliseconds at which a day ends.
func DayOf(now time.Time) int64 { return now.UnixMilli() / dayMillis }

// EndOf returns the end of a day, see DayOf.
func EndOf(day int64) int64 { return (day + 1) * dayMillis }

// QuotaLimit is the quota of a tenant for its runs.
type QuotaLimit struct {
	Concurrency int64 `json:"concurrency,omitempty"`
	// Daily is the number of runs that may begin on a UTC day, zero for any number.
	Daily int64      `json:"daily,omitempty"`
	Log   session.ID `json:"log"`
	// Opened are further runs on the day OpenedOn, see DayOf.
	Opened   int64  `json:"opened,omitempty"`
	OpenedOn int64  `json:"opened_on,omitempty"`
	Setting  uint64 `json:"setting"` // its number, from one
}

// Limit returns the quota as the limit of its own log.
func (q *QuotaLimit) Limit() Limit {
	return Limit{Concurrency: q.Concurrency, Log: q.Log, Quota: q}
}

// isQuota reports whether the limit is the quota of a tenant.
func (l *Limit) isQuota() bool { return l.Quota != nil && l.Quota.Log == l.Log }

// setting returns the number of the setting of a quota, zero for other limits.
func (l *Limit) setting() uint64 {
	if !l.isQuota() {
		return 0
	}
	return l.Quota.Setting
}

// on returns the number of runs that may begin on a day, zero for any number.
func (q *QuotaLimit) on(day int64) int64 {
	if q.Daily > 0 && q.OpenedOn == day {
		return q.Daily + q.Opened
	}
	return q.Daily
}

// set replaces the limit, unless it is a newer setting of the quota.
func (l *LimitState) set(to Limit) {
	if to.setting() >= l.Limit.setting() {
		l.Limit = to
	}
}

// begin counts a grant of a quota. The day never goes back.
func (l *LimitState) begin(now int64) {
	if !l.Limit.isQuota() {
		return
	}
	if day := now / dayMillis; day > l.Day {
		l.Day, l.Begun = day, 0
	}
	l.Begun++
}

// Opens returns the time from which the quota of the day allows a grant, zero for any time.
func (l *LimitState) Opens() int64 {
	if l.Limit.isQuota() && protection.LimitHolders {
		if most := l.Limit.Quota.on(l.Day); most > 0 && l.Begun >= most {
			return EndOf(l.Day)
		}
	}
	return 0
}

// BegunOn returns the number of runs that the quota let begin on a day.
func (l *LimitState) BegunOn(day int64) int64 {
	if l.Day != day {
		return 0
	}
	return l.Begun
}

// IsQuota reports whether the log is that of a quota.
func (l *LimitState) IsQuota() bool { return l.Limit.isQuota() }

func (l *LimitState) blocks(id run.ID, at run.Path) int {
	return slices.IndexFunc(l.Blocked, func(b *LimitBlocked) bool { return b.Run == id && b.Path == at })
}

func (l *LimitState) unblock(id run.ID, at run.Path) {
	if i := l.blocks(id, at); i >= 0 {
		l.Blocked = slices.Delete(l.Blocked, i, i+1)
	}
}

// expire removes the blocked calls of former days: the timer of their waits has woken them.
func (l *LimitState) expire(now int64) {
	l.Blocked = slices.DeleteFunc(l.Blocked, func(b *LimitBlocked) bool { return b.Until <= now })
}

// unblocked wakes a run whose model call the quota allows. A run that no longer waits there
// needs no signal.
func unblocked(w *StateMachine, r *Record, at run.Path, now time.Time) error {
	if r.State != run.Waiting || !slices.ContainsFunc(r.Suspended.For, func(q Wait) bool { return q.Path == at && !q.Came(r.inbox) }) {
		return nil
	}
	return w.stage(now, event(KindSignalReceived, w.place(r, SignalReceived{Kind: Opened, Path: at})))
}
