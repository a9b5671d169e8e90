package journal

import (
	"maps"
	"slices"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Record is the state of one run according to one log.
type Record struct {
	ID        run.ID
	Home      session.Key // the log that decides about the run
	State     run.State
	Task      Task   // only in the home log
	By        string `json:",omitempty"` // the user who submitted it, see Submitted
	Via       string `json:",omitempty"`
	Digest    string
	Submitted time.Time
	Started   time.Time // of the first claim
	Attempt   uint64
	Epoch     uint64 // of the attempt's claim
	Deaths    Deaths
	Cancel    *CancelRequested
	Review    *Review
	Suspended *RunWaiting // the waits of a waiting run
	// Due are the times of the waits of the last RunWaiting with Any, by their paths. A
	// later wait at one of these paths keeps its time.
	Due     map[run.Path]int64 `json:",omitempty"`
	Ended   *Ended
	EndedAt time.Time
	// Base is the session at the run's first claim. It is the input of the workflow on
	// every attempt.
	Base session.Session
	// After are the predecessors that do not let it begin yet. They are never changed in place.
	After     []Predecessor `json:",omitempty"`
	Limit     *Limit        `json:",omitempty"` // that it was submitted with; nil for none
	Granted   bool          `json:",omitempty"` // by that limit, and the next one
	Keyed     bool          `json:",omitempty"` // granted by the limit of its key
	Warnings  []string
	Status    Status `json:",omitzero"` // the newest
	steps     map[run.Path]*Step
	intents   map[run.Path]StepStarted
	resolved  map[run.Path]resolution
	children  []session.ID // made by the run and not disposed of
	branches  []session.ID // of fan-outs, not disposed of
	awaitedBy []Ancestor   // the runs that it is a predecessor of
	awaits    []session.ID // the logs of the events of its last wait
	warming   *FanOut      // only its first branch has started
	inbox     []SignalReceived
	inboxed   uint64   // the number of signals ever received
	delivered []string // the ids of the received signals, the newest maxInbox
	wake      uint64   // number of wakeups
	pinned    string   // the only revision that may continue it
	late      int
	cut       int           // see CutOff
	lost      session.Usage // see Lost
	reserved  Reservations
	settled   *Settled         // the newest, of a run that has ended
	order     paged[*Step]     // the steps as they were recorded
	loops     map[run.Path]int // the newest ended iteration, by the path of its loop
	past      past             // of ended iterations
	taskPage  *session.Page    // of a long task
	place     int              // of a run that ended, in RunState.ended
}

// resolution is the operator's decision about calls of attempts up to attempt.
type resolution struct {
	Resolved
	attempt uint64
}

// Step is a recorded step with the session right after it.
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

// made returns the sessions that steps in this log made, including those that were
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

// OpenBranches returns the sessions of the run's fan-outs whose outcome is not in its
// home log yet.
func (r *Record) OpenBranches() []session.ID { return r.branches }

// CutOff returns the number of claims since the last new step that found an attempt at
// work. Each of them may have ended a model call without a record. Steps in the logs of
// other sessions are not counted here.
func (r *Record) CutOff() int { return r.cut }

// Lost returns the estimated usage of calls that were cut off when attempts released
// the run; see [StepCompleted].
func (r *Record) Lost() session.Usage { return r.lost }

// spent returns the run's usage in this log, its estimated part, and the number of
// steps. Usage in the logs of other sessions is not included.
func (r *Record) spent() (used, lost session.Usage, steps int64) {
	used, lost, steps = r.lost.Add(r.past.Usage), r.lost.Add(r.past.Lost), r.past.Steps
	for _, s := range r.order.items {
		used, lost, steps = used.Add(s.Usage), lost.Add(s.Lost), steps+1+s.Steps
	}
	return used, lost, steps
}

// copy returns an independent copy of the record.
func (r *Record) copy() *Record {
	cp := *r
	cp.steps, cp.intents, cp.resolved = maps.Clone(r.steps), maps.Clone(r.intents), maps.Clone(r.resolved)
	cp.loops = maps.Clone(r.loops)
	cp.Warnings, cp.children = slices.Clone(r.Warnings), slices.Clone(r.children)
	cp.branches, cp.awaits, cp.inbox = slices.Clone(r.branches), slices.Clone(r.awaits), slices.Clone(r.inbox)
	cp.delivered, cp.awaitedBy, cp.reserved = nil, nil, r.reserved.clone()
	cp.order = paged[*Step]{}
	return &cp
}
