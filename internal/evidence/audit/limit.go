package audit

import (
	"encoding/json"
	"fmt"
	"slices"
)

// limitLog is the state of the log of a key.
type limitLog struct {
	first   int64     // the time of its first fact
	limit   limitData // of the newest request
	quota   quotaData // if it is that of a quota
	day     int64     // of begun
	begun   int64     // grants of the quota on the day
	blocked []blockedData
	waiting []requestedData
	holders []string
	starts  []int64
	asked   map[string]string // by run, its home
}

// The kinds of marks that are no kinds of events.
const (
	quotaWaits  = "run.waiting for a quota"
	quotaOpened = "run.received with an opened quota"
	callOpened  = "limit.decided of a call"
)

// limitMark is an event of the log of a key, or one of the home of a run, for the comparison
// with the other log, session.
type limitMark struct {
	log          *log
	seq          uint64
	kind         string
	at           int64
	run, session string
	limit        string // of a decision: the reason of a rejection
	path         string // of a model call that waits
}

func (l *limitLog) open() int { return len(l.waiting) + len(l.holders) + len(l.blocked) }

// set replaces the limit, unless it is an older setting of a quota.
func (l *limitLog) set(raw json.RawMessage) (to limitData, ok bool) {
	if json.Unmarshal(raw, &to) != nil {
		return to, false
	}
	if q, _ := to.quota(); q.Setting >= l.quota.Setting {
		l.limit, l.quota = to, q
		if q.Log != to.Log {
			l.quota = quotaData{}
		}
	}
	return to, true
}

func (l *limitLog) waits(run string) int {
	return slices.IndexFunc(l.waiting, func(r requestedData) bool { return r.Run == run })
}

// limitsOf returns the state of the log of a key.
func limitsOf(f *folding) *limitLog {
	if f.l.limit == nil {
		f.l.limit = &limitLog{first: f.c.events[f.i].time, asked: map[string]string{}}
	}
	return f.l.limit
}

func markLimit(f *folding, kind, run, session, limit, path string) {
	f.a.limits = append(f.a.limits, limitMark{f.l, f.c.seq, kind, f.c.events[f.i].time, run, session, limit, path})
}

func requested(f *folding, e *event, d requestedData) {
	l := limitsOf(f)
	f.a.check(Limits, l.waits(d.Run) < 0 && !slices.Contains(l.holders, d.Run), f.says(d.Run, "a request of a run that neither waits nor holds", "it again"))
	to, ok := l.set(d.Limit)
	ok = ok && to.Log == f.l.id
	f.a.check(Limits, ok, f.says(d.Run, "a limit of this log", clip(string(d.Limit), 60)))
	at := slices.IndexFunc(l.waiting, func(r requestedData) bool { return r.Priority < d.Priority })
	if at < 0 {
		at = len(l.waiting)
	}
	l.waiting = slices.Insert(l.waiting, at, d)
	l.asked[d.Run] = d.Session
	markLimit(f, e.kind, d.Run, d.Session, string(d.Limit), "")
	counts(f, d.Run, l, d.Open)
}

// counts checks the number of runs that wait or hold.
func counts(f *folding, run string, l *limitLog, open int64) {
	f.a.check(Limits, int64(l.open()) == open, f.says(run, fmt.Sprintf("%d runs that wait or hold", l.open()), fmt.Sprint(open)))
}

func decided(f *folding, e *event, d decidedData) {
	l := limitsOf(f)
	if d.Path != "" {
		unblocks(f, e, l, &d)
		return
	}
	at := l.waits(d.Run)
	f.a.check(Limits, at >= 0 && l.waiting[max(at, 0)].Session == d.Session, f.says(d.Run, "a decision about a run that waits", "another one"))
	if at < 0 {
		return
	}
	r := l.waiting[at]
	l.waiting = slices.Delete(l.waiting, at, at+1)
	f.a.check(Limits, r.NotBefore <= e.time, f.says(d.Run, "no decision before the run's time", "it earlier"))
	if d.Rejected == "" {
		grants(f, e, &r, l)
	}
	markLimit(f, e.kind, d.Run, d.Session, d.Rejected, "")
	counts(f, d.Run, l, d.Open)
}

// grants checks a grant against the limit.
func grants(f *folding, e *event, r *requestedData, l *limitLog) {
	var own limitData
	_ = json.Unmarshal(r.Limit, &own) // it was read before
	first := slices.IndexFunc(l.waiting, func(o requestedData) bool { return o.Priority > r.Priority && o.NotBefore <= e.time })
	f.a.check(Limits, first < 0, f.says(r.Run, "the run with the highest priority to go first", "another one"))
	most, rate := l.limit.Concurrency, int(l.limit.Rate)
	f.a.check(Limits, most == 0 || int64(len(l.holders)) < most, f.says(r.Run, fmt.Sprintf("at most %d runs that hold a grant", most), fmt.Sprint(len(l.holders)+1)))
	if n := len(l.starts); rate > 0 && n >= rate {
		f.a.check(Limits, l.starts[n-rate]+l.limit.Per <= e.time, f.says(r.Run, fmt.Sprintf("at most %d grants within %d ms", rate, l.limit.Per), "one more"))
	}
	_, itself := own.quota()
	if itself {
		l.begins(f, e, r.Run)
	}
	if own.Concurrency > 0 || itself {
		l.holders = append(l.holders, r.Run)
	}
	if rate > 0 {
		l.starts = append(l.starts[max(len(l.starts)-rate, 0):], e.time)
	}
}

func freed(f *folding, e *event, d decidedData) {
	l := limitsOf(f)
	at, holds := l.waits(d.Run), slices.Index(l.holders, d.Run)
	f.a.check(Limits, (at >= 0 || holds >= 0) && l.asked[d.Run] == d.Session, f.says(d.Run, "a release of a run that waits or holds", "it of another one"))
	if at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
	}
	if holds >= 0 {
		l.holders = slices.Delete(l.holders, holds, holds+1)
	}
	markLimit(f, e.kind, d.Run, d.Session, "", "")
	counts(f, d.Run, l, d.Open)
}

// granted notes the grant of a run in its home.
func granted(f *folding, e *event, d decidedData) {
	r, g := f.here(d.Run)
	if !f.lives(d.Run, r, runGranted) {
		return
	}
	if g.follows {
		cleared(f, g, &d)
		return
	}
	f.a.check(Limits, g.limit != nil && !g.granted, f.says(d.Run, "run.granted once, of a run with a limit", "it"))
	if g.limit == nil {
		return
	}
	q, itself := g.limit.quota()
	log, more := g.limit.Log, q.Log != "" && !itself && !g.keyed
	if g.keyed {
		log = q.Log
	}
	f.a.check(Limits, more == (d.Next != nil), f.says(d.Run, "the request of the quota after the grant of the key alone", "another one"))
	g.granted, g.keyed = !more, true
	markLimit(f, e.kind, d.Run, log, "", "")
}

// limited notes the limit of a submitted run.
func (g *runState) limited(f *folding, raw json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	g.limit, g.limitText = &limitData{}, string(raw)
	_ = json.Unmarshal(raw, g.limit) // its schema holds
	g.granted = g.limit.Holder != ""
	f.a.check(Limits, !g.granted || g.limit.Holder+"-cleanup" == g.id, f.says(g.id, "the grant of another run for its cleanup run alone", "it"))
}

// finishLimits compares the logs of keys with the homes of the runs.
func finishLimits(a *audit) {
	type fact struct {
		kind            string
		in              key
		of, run, detail string
	}
	have := map[fact]bool{}
	for _, m := range a.limits {
		if m.kind != limitDecided || m.limit == "" {
			have[fact{m.kind, m.log.key, m.session, m.run, m.path}] = true
		}
	}
	follows := map[string]string{runGranted: limitDecided, quotaOpened: callOpened, limitBlocked: quotaWaits}
	for _, m := range a.limits {
		if cause := follows[m.kind]; cause != "" {
			from := a.logs[key{m.log.tenant, m.session}]
			removed := from == nil || from.limit != nil && m.at < from.limit.first // and has begun anew
			ok := removed || a.incomplete(from) || a.o.Open && m.kind == limitBlocked
			a.check(Limits, ok || have[fact{cause, from.key, m.log.id, m.run, m.path}], func() Violation {
				return m.log.says(m.seq, m.run, "a "+cause+" of it in "+m.session, "none")
			})
			continue
		}
		g := a.runIn(key{m.log.tenant, m.run}, m.session)
		if g == nil || g.home == nil {
			a.check(Limits, a.o.Open || a.logs[key{m.log.tenant, m.session}] == nil, func() Violation { return m.log.says(m.seq, m.run, "run.submitted of it", "none") })
			continue
		}
		if a.incomplete(g.home) {
			continue
		}
		switch m.kind {
		case limitRequested:
			a.check(Limits, g.limitText == m.limit || g.asksQuota(m), func() Violation {
				return m.log.says(m.seq, m.run, "the limit of its run.submitted", clip(m.limit, 80))
			})
		case limitReleased:
			after := a.runIn(key{m.log.tenant, m.run + "-cleanup"}, m.session)
			cleaned := after == nil || after.home == nil || after.end != nil
			a.check(Limits, a.o.Open || g.end != nil && cleaned, func() Violation {
				return m.log.says(m.seq, m.run, "a release by a run that has ended", "it, and the run has not")
			})
		}
	}
}
