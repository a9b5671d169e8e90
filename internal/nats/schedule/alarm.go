package schedule

import (
	"container/heap"
	"time"
)

// alarm calls fire once its time has come. Its owner stops it when the owner is removed.
type alarm struct {
	at    time.Time
	fire  func(now time.Time)
	index int // in the heap, from one; zero is not set
}

// alarms are the set alarms, the earliest first.
type alarms []*alarm

// Len implements sort.Interface.
func (h alarms) Len() int { return len(h) }

// Less implements sort.Interface.
func (h alarms) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

// Swap implements sort.Interface.
func (h alarms) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push implements heap.Interface.
func (h *alarms) Push(x any) {
	a := x.(*alarm)
	*h = append(*h, a)
	a.index = len(*h)
}

// Pop implements heap.Interface.
func (h *alarms) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = 0
	return a
}

// set sets an alarm, or moves it.
func (h *alarms) set(a *alarm, at time.Time) {
	a.at = at
	if a.index == 0 {
		heap.Push(h, a)
		return
	}
	heap.Fix(h, a.index-1)
}

func (h *alarms) stop(a *alarm) {
	if a != nil && a.index != 0 {
		heap.Remove(h, a.index-1)
	}
}

// ring fires the alarms whose time has come.
func (h *alarms) ring(now time.Time) {
	for len(*h) > 0 && !(*h)[0].at.After(now) {
		a := heap.Pop(h).(*alarm)
		a.fire(now)
	}
}

// next returns the time of the first alarm, the zero time if none is set.
func (h alarms) next() time.Time {
	if len(h) == 0 {
		return time.Time{}
	}
	return h[0].at
}

// backoff paces repetitions until a log shows that the action was carried out.
type backoff struct{ n int }

// next counts an attempt and returns the pause after it, which doubles from
// first to most.
func (b *backoff) next(first, most time.Duration) time.Duration {
	d := most
	if b.n < 20 {
		d = min(first<<b.n, most)
	}
	b.n++
	return d
}
