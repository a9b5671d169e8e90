package journal

import (
	"maps"
	"slices"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Record is what one log says of one run.
type Record struct {
	ID        run.ID
	Home      session.Key // the log that decides about the run
	State     run.State
	Task      Task   // only in the home log
	By        string `json:",omitempty"` // who submitted it, see Submitted
	Via       string `json:",omitempty"`
	Digest    string
	Submitted time.Time
	Started   time.Time // of the first claim
	Attempt   uint64
	Epoch     uint64 // of the attempt's claim
	Deaths    Deaths
	Cancel    *CancelRequested
	Review    *Review
	Suspended *RunWaiting // what a waiting run waits for
	Ended     *Ended
	EndedAt   time.Time
	// Base is the session as it was when the run first claimed it: what a
	// workflow is given, on every attempt.
	Base      session.Session
	Warnings  []string
	steps     map[run.Path]*Step
	intents   map[run.Path]StepStarted
	resolved  map[run.Path]resolution
	children  []session.ID // made by the run and not disposed of
	branches  []session.ID // of fan-outs, not disposed of
	warming   *FanOut      // of which only the first branch has begun
	inbox     []SignalReceived
	inboxed   uint64   // how much was ever received
	delivered []string // the ids of what was received, the newest maxInbox
	wake      uint64   // how often it was woken
	pinned    string   // the only revision that may go on with it
	late      int
	cut       int           // see CutOff
	lost      session.Usage // see Lost
	reserved  Reservations
	settled   *Settled      // the newest, of a run that has ended
	order     paged[*Step]  // the steps as they were recorded
	taskPage  *session.Page // of a long task
	place     int           // of a run that ended, in RunState.ended
}

// resolution is what a person decided about calls of attempts up to one.
type resolution struct {
	Resolved
	attempt uint64
}

// Step is a recorded step with the session as it was right after it.
type Step struct {
	StepCompleted
	Session session.Session
	Time    time.Time
}

// Steps yields the recorded steps in the order of their paths' recording.
func (r *Record) Steps() []*Step {
	all := slices.Collect(maps.Values(r.steps))
	slices.SortFunc(all, func(x, y *Step) int { return run.ComparePaths(x.Path, y.Path) })
	return all
}

// made returns the sessions that steps in this log made, also those that were
// disposed of since: the commit that closes them is in their own logs, and may be
// missing.
func (r *Record) made() (all []session.ID) {
	for _, s := range r.order.items {
		all = append(all, s.made()...)
	}
	return all
}

// made returns the sessions that a step made.
func (s *Step) made() (all []session.ID) {
	for _, l := range s.Links {
		if l.Seq == 0 {
			all = append(all, l.ID)
		}
	}
	return all
}

// OpenBranches returns the sessions of the run's fan-outs of which its home log does
// not say yet how they ended for it.
func (r *Record) OpenBranches() []session.ID { return r.branches }

// CutOff is how many claims since the last new step found an attempt at work:
// each may have ended a call of a model of which nothing is known. Steps in the
// logs of other sessions are not seen here.
func (r *Record) CutOff() int { return r.cut }

// Lost is what calls are taken to have used that were cut off when attempts
// gave the run back; see [StepCompleted].
func (r *Record) Lost() session.Usage { return r.lost }

// spent sums up what the log says of a run's usage, the part of it that is
// estimated, and the steps. Those in the logs of other sessions are not in it.
func (r *Record) spent() (used, lost session.Usage, steps int64) {
	used, lost = r.lost, r.lost
	for _, s := range r.order.items {
		used, lost, steps = used.Add(s.Usage), lost.Add(s.Lost), steps+1+s.Steps
	}
	return used, lost, steps
}

// copy returns a record that does not change with the book.
func (r *Record) copy() *Record {
	cp := *r
	cp.steps, cp.intents, cp.resolved = maps.Clone(r.steps), maps.Clone(r.intents), maps.Clone(r.resolved)
	cp.Warnings, cp.children = slices.Clone(r.Warnings), slices.Clone(r.children)
	cp.branches, cp.inbox = slices.Clone(r.branches), slices.Clone(r.inbox)
	cp.delivered, cp.reserved = nil, r.reserved.clone()
	cp.order = paged[*Step]{}
	return &cp
}
