package journal

import (
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Limits by key and published events have logs in which no run executes. A commit of a run
// or a request brings a fact there, the log decides, and its decisions go to the homes of
// runs. The clock has it decide again. A log in which no run waits or holds a grant, and whose
// past does not matter any more, can be closed and removed as a whole; the next fact begins
// it anew.

// KindKeyClosed is the last event of such a log.
const KindKeyClosed = "key.closed"

// KeyClosed records that the log is about to be removed. It accepts no fact until then.
type KeyClosed struct {
	By string `json:"by,omitempty"`
}

// closeKey decides about the removal of such a log.
func closeKey(w *StateMachine, v KeyClosed, now time.Time) error {
	switch ms := now.UnixMilli(); {
	case w.state.closed:
		return nil
	case !w.state.OfKey() || !w.state.limits.idle(ms) || !w.state.events.idle(ms):
		return fmt.Errorf("journal: %s is used as the log of a limit or an event, or is none: %w", w.key, run.ErrState)
	}
	return w.stage(now, event(KindKeyClosed, v))
}

// errClosing rejects a fact for a closed log, for another try.
func errClosing(k session.Key) error {
	return fmt.Errorf("journal: %s is removed, after which it begins anew: %w", k, session.ErrUnavailable)
}

// maxLimited bounds the runs that wait in such a log. A node requests further ones later.
const maxLimited = 1 << 14

// maxDecided bounds the decisions of one commit.
const maxDecided = 128

// KeyLogEvent reports whether an event is only in such a log.
func KeyLogEvent(kind string) bool {
	return strings.HasPrefix(kind, "limit.") || strings.HasPrefix(kind, "event.") || kind == KindKeyClosed
}

// KeyState is part of each fact of such a log but the last one: the state after it.
type KeyState struct {
	Due  int64 `json:"due,omitempty"`  // when the clock allows a further decision, in Unix milliseconds; zero for never
	Open int64 `json:"open,omitempty"` // the number of runs that wait or hold a grant
}

func (s KeyState) after() KeyState { return s }

// KeyWork returns the state of such a log after a fact; ok is false for a fact of another log.
func KeyWork(fact any) (s KeyState, ok bool) {
	v, ok := fact.(interface{ after() KeyState })
	if ok {
		s = v.after()
	}
	return s, ok
}

// ForKey reports whether a signal is for such a log.
func (s Signal) ForKey() bool { return s.Event != nil || s.Limit != nil && s.Limit.Decided == nil }
