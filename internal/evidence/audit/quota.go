package audit

import (
	"encoding/json"
	"fmt"
	"slices"
)

const dayMillis = 24 * 60 * 60 * 1000

// quotaSet folds the setting of a quota.
func quotaSet(f *folding, _ *event, d setData) {
	l := limitsOf(f)
	before := l.quota.Setting
	_, ok := l.set(d.Limit)
	f.a.check(Limits, d.By != "", f.says("", "a setting by an operator", "it by nobody"))
	f.a.check(Limits, ok && l.quota.Log == f.l.id && l.quota.Setting > before, f.says("", fmt.Sprintf("a setting of this quota after number %d", before), clip(string(d.Limit), 60)))
	l.expire(f)
	counts(f, "", l, d.Open)
}

// blocked folds that a model call waits for the quota.
func blocked(f *folding, _ *event, d blockedData) {
	l := limitsOf(f)
	markLimit(f, limitBlocked, d.Run, d.Session, "", d.Path)
	f.a.check(Limits, l.blocks(d.Run, d.Path) < 0, f.says(d.Run, "a model call that was not blocked before", d.Path))
	l.expire(f)
	l.blocked = append(l.blocked, d)
	counts(f, d.Run, l, d.Open)
}

// openedQuota notes that a run goes on with a model call, because the quota was set.
func openedQuota(f *folding, r *logRun, d *receivedData) {
	for i := 0; d.Kind == "opened" && r.state == "waiting" && i < len(r.suspended.For); i++ {
		if w := r.suspended.For[i]; w.Path == d.Path {
			markLimit(f, quotaOpened, d.Run, w.Log, "", d.Path)
		}
	}
}

func (l *limitLog) blocks(run, path string) int {
	return slices.IndexFunc(l.blocked, func(b blockedData) bool { return b.Run == run && b.Path == path })
}

// expire removes the blocked calls of former days.
func (l *limitLog) expire(f *folding) {
	now := f.c.events[f.i].time
	l.blocked = slices.DeleteFunc(l.blocked, func(b blockedData) bool { return b.Until <= now })
}

// unblocks folds that a blocked model call may begin.
func unblocks(f *folding, e *event, l *limitLog, d *decidedData) {
	at := l.blocks(d.Run, d.Path)
	markLimit(f, callOpened, d.Run, d.Session, "", d.Path)
	f.a.check(Limits, at >= 0 && l.blocked[max(at, 0)].Quota < l.quota.Setting && e.time < l.blocked[max(at, 0)].Until, f.says(d.Run, "a blocked model call, after another setting of the quota", d.Path))
	if at >= 0 {
		l.blocked = slices.Delete(l.blocked, at, at+1)
	}
	counts(f, d.Run, l, d.Open)
}

// begins checks a grant of a quota against the runs of the day.
func (l *limitLog) begins(f *folding, e *event, run string) {
	if day := e.time / dayMillis; day > l.day {
		l.day, l.begun = day, 0
	}
	most := l.quota.Daily
	if most > 0 && l.quota.OpenedOn == l.day {
		most += l.quota.Opened
	}
	f.a.check(Limits, most == 0 || l.begun < most, f.says(run, fmt.Sprintf("at most %d runs that begin on a UTC day", most), fmt.Sprint(l.begun+1)))
	l.begun++
}

// asksQuota reports whether a request is that of the run for the quota after its key.
func (g *runState) asksQuota(m limitMark) bool {
	var asked limitData
	if g.limit == nil || json.Unmarshal([]byte(m.limit), &asked) != nil {
		return false
	}
	q, itself := asked.quota()
	return itself && q.Log == m.log.id && string(asked.Quota) == string(g.limit.Quota)
}
