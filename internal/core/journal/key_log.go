package journal

import "strings"

// Limits by key and published events have logs in which no run executes. A commit of a run
// or a request brings a fact there, the log decides, and its decisions go to the homes of
// runs. The clock has it decide again.

// maxLimited bounds the runs that wait in such a log. A node requests further ones later.
const maxLimited = 1 << 14

// maxDecided bounds the decisions of one commit.
const maxDecided = 128

// KeyLogEvent reports whether an event is only in such a log.
func KeyLogEvent(kind string) bool {
	return strings.HasPrefix(kind, "limit.") || strings.HasPrefix(kind, "event.")
}

// KeyWork returns the state of such a log after a fact: the time in Unix milliseconds at
// which the clock allows a further decision, zero for never, and the number of runs that
// wait or hold a grant. ok is false for a fact of another log.
func KeyWork(fact any) (due, open int64, ok bool) {
	switch v := fact.(type) {
	case LimitRequested:
		return v.Due, v.Open, true
	case LimitDecided:
		return v.Due, v.Open, true
	case LimitReleased:
		return v.Due, v.Open, true
	case LimitSet:
		return v.Due, v.Open, true
	case LimitBlocked:
		return v.Due, v.Open, true
	case EventPublished:
		return v.Due, v.Open, true
	case EventAwaited:
		return v.Due, v.Open, true
	case EventDelivered:
		return v.Due, v.Open, true
	case EventReleased:
		return v.Due, v.Open, true
	}
	return 0, 0, false
}

// ForKey reports whether a signal is for such a log.
func (s Signal) ForKey() bool { return s.Event != nil || s.Limit != nil && s.Limit.Decided == nil }
