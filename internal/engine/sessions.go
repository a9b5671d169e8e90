package engine

import (
	"slices"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// sessions are the sessions that an execution reads and writes. The execution's mu guards
// them.
type sessions struct {
	held     map[session.Key]*heldSession
	branches []session.Key // branches in the order of their making
	aliases  map[session.Ref][]alias
	fanOut   []*fanOutBranch // branches of fan-outs that are not disposed of
	// continuations lead from the homes of resumed runs to that of this run, the oldest
	// first. They do not change once Forward begins.
	continuations []continuation
}

// heldSession is a session that the run writes to.
type heldSession struct {
	version  session.Version // the newest that the code has reached: during replay older than the log
	outer    bool            // of a run around this one: read, never written
	parent   session.Key     // zero for the home and for detached sessions
	detached bool
	source   string // file:line of an implicit fork
	disposed bool   // adopted, merged or rejected by the code
	closed   string // its closing state in the log
	link     session.Link
	at       run.Path // of the step that made it; "" for a home
	// The usage of the run's steps in its log, the estimated part, and their number.
	used, lost session.Usage
	steps      int64
}

// alias maps a value with pending edits to the value of the step that committed it
// without adding to it, so that the author's variable and the committed value are one.
type alias struct {
	edits     int
	digest    string // of the edits
	committed session.Session
}

// hold adds a session with its newest value. made means that the run created the session.
func (l *sessions) hold(k session.Key, h *heldSession, base, newest session.Session, made bool) {
	h.version, h.closed = base.Ref().Version, newest.Closing().State
	if l.held == nil {
		l.held = map[session.Key]*heldSession{}
	}
	if made && l.held[k] == nil {
		l.branches = append(l.branches, k)
	}
	l.held[k] = h
}

// observe records the newest value of a session that the run holds.
func (l *sessions) observe(s session.Session) {
	h := l.held[s.Key()]
	if h == nil || s.Ref().Version < h.version {
		return
	}
	h.version = s.Ref().Version
	if link, ok := s.Link(); ok {
		h.link = link
	}
}

// older reports whether s is not the newest value of its session, so that it cannot be
// extended.
func (l *sessions) older(s session.Session) bool {
	h := l.held[s.Key()]
	return h != nil && s.Ref().Version != h.version
}

// rebase returns s on top of the commit that holds its pending edits, or the first of
// them, if a step committed those.
func (l *sessions) rebase(s session.Session) session.Session {
	known := l.aliases[s.Ref()]
	if len(known) == 0 {
		return s
	}
	edits := slices.Collect(s.Pending())
	for _, a := range known { // the longest first
		if a.edits <= len(edits) && s.Committed().Edited(edits[:a.edits]...).PendingDigest() == a.digest {
			return a.committed.Edited(edits[a.edits:]...)
		}
	}
	return s
}

// alias records that an author's value with pending edits is now committed.
func (l *sessions) alias(s, committed session.Session) {
	a := alias{digest: s.PendingDigest(), committed: committed}
	if a.digest == "" {
		return
	}
	for range s.Pending() {
		a.edits++
	}
	if l.aliases == nil {
		l.aliases = map[session.Ref][]alias{}
	}
	known := slices.DeleteFunc(l.aliases[s.Ref()], func(o alias) bool { return o.digest == a.digest })
	at, _ := slices.BinarySearchFunc(known, a, func(o, a alias) int { return a.edits - o.edits })
	l.aliases[s.Ref()] = slices.Insert(known, at, a)
}

// firstBatch splits events after those that fit into the first commit of a session.
func firstBatch(events []session.Event) (first, rest []session.Event) {
	for first := range commitlog.Batches(events) {
		return first, events[len(first):]
	}
	return nil, nil
}

// fanOutBranch is a branch of a fan-out of this run.
type fanOutBranch struct {
	key      session.Key
	name     string
	link     session.Link // its last commit; zero if it never began
	state    run.State
	at       run.Path // of the fan-out
	disposed bool
	standing bool // of the run that this one resumes, which disposed of it
}
