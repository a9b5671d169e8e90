package natsbus

import (
	"container/heap"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// timers are the times at which something about open runs is due, the earliest
// first. One that has changed since is dropped when it comes up.
type timers []timerAt

type timerAt struct {
	at  int64 // Unix milliseconds
	key session.Key
	run run.ID
}

// Len implements sort.Interface.
func (t timers) Len() int { return len(t) }

// Less implements sort.Interface.
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }

// Swap implements sort.Interface.
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push implements heap.Interface.
func (t *timers) Push(x any) { *t = append(*t, x.(timerAt)) }

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}

const (
	// What is due is told again until the log shows it: the message may have
	// been lost, or the clock of the node that took it is behind.
	dueFirst = time.Second
	dueMost  = 30 * time.Second
	// dueMargin is for clocks that differ a little.
	dueMargin = 20 * time.Millisecond
)

// arm sets a timer for the earliest time of a run that has not been told, or
// for the next attempt to tell one that has.
func (t *timers) arm(k session.Key, r *openRun, now time.Time) {
	first := int64(0)
	for at := range r.times {
		at += dueMargin.Milliseconds()
		if next := r.due.next.UnixMilli(); r.due.n > 0 && at <= now.UnixMilli() {
			at = max(at, next)
		}
		if first == 0 || at < first {
			first = at
		}
	}
	if first == r.armed {
		return
	}
	if r.armed = first; first != 0 {
		heap.Push(t, timerAt{first, k, r.ID})
	}
}

// wait returns how long it is until the first timer.
func (t timers) wait(now time.Time) time.Duration {
	if len(t) == 0 {
		return time.Hour
	}
	return min(max(time.UnixMilli(t[0].at).Sub(now), 0), time.Hour)
}

// pop returns a run whose timer has come, with its session; nil if there is
// none.
func (t *timers) pop(o *openRuns, now time.Time) (*openSession, *openRun) {
	for len(*t) > 0 && (*t)[0].at <= now.UnixMilli() {
		top := heap.Pop(t).(timerAt)
		s := o.sessions[top.key]
		if s == nil {
			continue
		}
		if r := s.run(top.run); r != nil && r.armed == top.at {
			r.armed = 0
			return s, r
		}
	}
	return nil, nil
}
