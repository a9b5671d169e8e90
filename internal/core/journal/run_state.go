package journal

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// RunState is the fold of the run, step and writer events of one session's log: the
// runs, their records, and the writer. It is not safe for concurrent use.
type RunState struct {
	Epoch       uint64
	Incarnation string
	Active      run.ID // the run that holds the session, "" when none does
	branch      run.ID // the run that this session is a branch for
	quarantine  *Quarantined
	delivered   []deliveredSignal
	limits      *LimitState // of the log of a key, nil for other logs
	events      *EventState // of the log of an event, nil for other logs
	closed      bool        // the log of a key or of an event, which is removed
	Queue       []run.ID    // submitted runs that wait for the session, oldest first
	runs        map[run.ID]*Record
	ended       paged[*Record] // in the order of their ends
	whole       bool           // the records keep the steps of ended iterations
}

// Run returns the record of a run in the log, nil if there is none.
func (b *RunState) Run(id run.ID) *Record { return b.runs[id] }

// Limits returns the state of the log of a key, nil for other logs. The caller must not
// change it.
func (b *RunState) Limits() *LimitState { return b.limits }

// OfKey reports whether no run executes in the log: it is the log of a key or of an event.
func (b *RunState) OfKey() bool { return b.limits != nil || b.events != nil }

// ofKey folds a fact of such a log.
func (b *RunState) ofKey(fact any, now int64) {
	switch fact.(type) {
	case LimitRequested, LimitDecided, LimitReleased, LimitSet, LimitBlocked:
		b.limits = b.limits.with(fact, now)
	case KeyClosed:
		b.closed = true
	default:
		b.events = b.events.with(fact, now)
	}
}

// Runs returns the records of all runs in the log, in order of submission.
func (b *RunState) Runs() []*Record {
	all := slices.Collect(maps.Values(b.runs))
	slices.SortFunc(all, func(x, y *Record) int {
		if c := x.Submitted.Compare(y.Submitted); c != 0 {
			return c
		}
		return strings.Compare(string(x.ID), string(y.ID))
	})
	return all
}

// Fold applies the facts of the next commit of the log of k, for a reader that needs
// the states of runs but no session values: values in the records are empty. It skips
// facts of other namespaces. It stops at the first fact that cannot be read or folded.
func (b *RunState) Fold(k session.Key, facts []Fact) error {
	for i := range facts {
		f := &facts[i]
		if strings.HasPrefix(f.Kind, "session.") {
			continue
		}
		if f.Err != nil {
			return f.Err
		}
		if err := b.check(f.What); err != nil {
			return err
		}
		b.fold(k, f.What, f.Time, session.Session{})
	}
	return nil
}

// read decodes an event and checks that it can be folded now. The fact is nil
// for events of other namespaces.
func (b *RunState) read(e session.Event) (fact any, err error) {
	if strings.HasPrefix(e.Kind, "session.") {
		return nil, nil
	}
	if fact, err = payload(e); err == nil {
		err = b.check(fact)
	}
	return fact, err
}

func (b *RunState) check(fact any) error {
	switch v := fact.(type) {
	case WriterOpened:
		if v.Epoch <= b.Epoch {
			return fmt.Errorf("journal: writer epoch %d after %d", v.Epoch, b.Epoch)
		}
	case Submitted:
		if b.runs[v.Task.Run] != nil {
			return fmt.Errorf("journal: %s is submitted twice", v.Task.Run)
		}
	case Ended:
		if !v.State.Terminal() {
			return fmt.Errorf("journal: %s ended as %q: %w", v.Run, v.State, session.ErrTooOld)
		}
	}
	return nil
}

// fold applies a fact that read returned. It returns in made the place of a value that
// needs the event's commit; nil if there is none.
func (b *RunState) fold(k session.Key, fact any, now time.Time, s session.Session) (made *session.Session) {
	switch v := fact.(type) {
	case WriterOpened:
		b.Epoch, b.Incarnation = v.Epoch, v.Incarnation
	case Submitted:
		r := b.record(v.Task.Run)
		r.Home, r.State, r.Task, r.Digest, r.Submitted, r.By, r.Via, r.Limit, r.Granted, r.After = k, run.Queued, v.Task.task(k), v.Digest, now, v.By, v.Via, v.Limit, v.Limit.kept(), v.Task.After
		if v.Task.Branch != nil {
			b.branch = r.ID
		}
		b.Queue = slices.Insert(b.Queue, placeInQueue(b.Queue, &v.Task), r.ID)
	case Granted:
		b.edit(v.Run, func(r *Record) {
			r.Granted, r.Keyed = v.Next == nil, r.Keyed || v.Next != nil && r.Limit != nil && v.Next.Limit.Log != r.Limit.Log
		})
	case Awaited:
		b.edit(v.Run, v.record)
	case LimitRequested, LimitDecided, LimitReleased, LimitSet, LimitBlocked, EventPublished, EventAwaited, EventDelivered, EventReleased, KeyClosed:
		b.ofKey(v, now.UnixMilli())
	case Claimed:
		return b.claimed(k, v, now, s)
	case Released:
		r := b.runs[v.Run]
		if r == nil || r.State != run.Running || r.Attempt != v.Attempt {
			return nil
		}
		r.State, r.Deaths, r.lost = run.Queued, Deaths{}, r.lost.Add(v.Lost)
		if r.Home != k && b.Active == r.ID {
			b.Active = "" // the run released this session, but has not ended
		}
	case Review:
		if r := b.runs[v.Run]; r != nil && !r.State.Terminal() {
			r.State, r.Review = run.NeedsReview, &v
		}
	case Resolved:
		b.deliver(v.ID, v.Run)
		// A run that the operator abandons ends by a separate event.
		if r := b.runs[v.Run]; r != nil && r.State == run.NeedsReview && v.Decision != run.Fail {
			r.State, r.Review, r.Deaths = run.Queued, nil, Deaths{}
			if v.Decision == run.Pin {
				r.pinned = v.Revision
				return nil
			}
			put(&r.resolved, v.Path, resolution{v, r.Attempt})
		}
	case CancelRequested:
		b.deliver(v.ID, v.Run)
		b.edit(v.Run, v.record)
	case Warning:
		b.edit(v.Run, func(r *Record) { r.Warnings = append(r.Warnings, v.Text) })
	case Status:
		b.edit(v.Run, func(r *Record) { r.Status = v })
	case RunWaiting:
		if r := b.runs[v.Run]; r != nil {
			r.wait(v)
		}
	case SignalReceived:
		if v.Kind != Report {
			b.deliver(v.ID, v.Run)
		}
		if r := b.runs[v.Run]; r != nil && !r.State.Terminal() {
			r.received(v)
		}
	case FanOut:
		if r := b.runs[v.Run]; r != nil && !r.State.Terminal() {
			r.fanOut(v)
		}
	case BranchesReleased:
		if r := b.runs[v.Run]; r != nil && r.warming != nil && r.warming.Path == v.Path {
			r.warming = nil
			r.reserved.releaseBranches(v.Path)
		}
	case BranchOutcomes:
		if r := b.runs[v.Run]; r != nil && !r.State.Terminal() {
			r.branchesEnded(v)
		}
	case Quarantined:
		b.deliver(v.ID, "")
		if b.quarantine = &v; v.Released {
			b.quarantine = nil
		}
	case Rebudgeted:
		b.deliver(v.ID, v.Run)
		if r := b.runs[v.Run]; r != nil && !r.State.Terminal() {
			r.Task.Budget, r.taskPage = v.Budget, nil
		}
	case Ended:
		b.end(v, now)
	case Settled:
		b.edit(v.Run, func(r *Record) { r.settle(v) })
	case StepStarted:
		if r := b.runs[v.Run]; r != nil && !r.State.Terminal() && v.Attempt >= r.Attempt {
			put(&r.intents, v.Path, v)
		}
	case StepCompleted:
		return b.done(v, now, s)
	case Late:
		b.edit(v.Run, func(r *Record) { r.late++ })
	}
	return nil
}

func (b *RunState) claimed(k session.Key, c Claimed, now time.Time, s session.Session) (made *session.Session) {
	r := b.record(c.Run)
	if c.Attempt < r.Attempt || r.State.Terminal() {
		return nil // the fold rejects lower attempts
	}
	if r.State == run.Running && c.Home == k && c.Attempt > r.Attempt {
		r.cut++
		if r.Deaths.nodeDied(c.Incarnation, c.Death) {
			r.Deaths = r.Deaths.died()
		}
	}
	if c.Home == k {
		r.Deaths.Group, r.Deaths.Node = int(min(c.Group, firstGroup)), c.Incarnation
	}
	r.Home, r.State, r.Attempt, r.Epoch, r.Review, r.Suspended = c.Home, run.Running, c.Attempt, c.Epoch, nil, nil
	if r.Started.IsZero() {
		r.Started, r.Base = now, s
		made = &r.Base
	}
	b.Active = c.Run
	if c.Home == k {
		b.Queue = slices.DeleteFunc(b.Queue, func(id run.ID) bool { return id == c.Run })
	}
	return made
}

// asksForTools reports whether a session ends with calls of which at least one has no
// result.
func asksForTools(s session.Session) bool {
	results := 0
	for i := s.Len() - 1; i >= 0; i-- {
		switch c, _ := s.At(i); c.Kind() {
		case session.ToolResult:
			results++
		case session.Assistant:
			return c.CallCount() > results
		default:
			return false
		}
	}
	return false
}

// touch notes a change of the record of a run that may have ended.
func (b *RunState) touch(r *Record) {
	if r.State.Terminal() {
		b.ended.unpage(r.place)
	}
}

func (b *RunState) end(v Ended, now time.Time) {
	r := b.runs[v.Run]
	if r == nil || r.State.Terminal() {
		return
	}
	r.State, r.Ended, r.EndedAt, r.Review = v.State, &v, now, nil
	if b.Active == v.Run {
		b.Active = ""
	}
	b.Queue = slices.DeleteFunc(b.Queue, func(id run.ID) bool { return id == v.Run })
	// A run that has ended needs no journal; the log keeps it.
	r.steps, r.intents, r.resolved, r.children, r.loops = nil, nil, nil, nil, nil
	r.reserved.keepOpen(r.inbox)
	r.branches, r.awaits, r.warming, r.inbox, r.delivered, r.Suspended, r.Due, r.After, r.awaitedBy = nil, nil, nil, nil, nil, nil, nil, nil, nil
	r.Base, r.order, r.taskPage = session.Session{}, paged[*Step]{}, nil
	r.Task.Input = nil
	r.place = len(b.ended.items)
	b.ended.items = append(b.ended.items, r)
}

func (b *RunState) done(v StepCompleted, now time.Time, s session.Session) (made *session.Session) {
	r := b.runs[v.Run]
	if r == nil || r.State.Terminal() || v.Attempt < r.Attempt || r.steps[v.Path] != nil || over(r, v.Path) {
		return nil // first write wins
	}
	step := &Step{StepCompleted: v, Session: s, Time: now}
	put(&r.steps, v.Path, step)
	r.order.items = append(r.order.items, step)
	delete(r.intents, v.Announced())
	if v.Kind == StepGather {
		r.gathered(v.Path)
	}
	r.took(v)
	if r.warming != nil && v.Path == GatherPath(r.warming.Path) {
		r.warming = nil
	}
	r.Deaths, r.cut = Deaths{Node: r.Deaths.Node}, 0
	for _, l := range v.Links {
		switch {
		case l.Seq == 0: // not committed before the step: the step makes it
			r.children = append(r.children, l.ID)
		case v.Kind == StepReject, v.Kind == StepJoin && v.Name != session.JoinConcatenate:
			r.children = slices.DeleteFunc(r.children, func(id session.ID) bool { return id == l.ID })
		}
	}
	if v.EndsIteration() {
		iterated(r, step, b.whole)
	}
	return &step.Session
}

// put adds to a map of a record, most of which stay empty.
func put[V any](m *map[run.Path]V, p run.Path, v V) {
	if *m == nil {
		*m = map[run.Path]V{}
	}
	(*m)[p] = v
}

func (b *RunState) record(id run.ID) *Record {
	if b.runs == nil {
		b.runs = map[run.ID]*Record{}
	}
	r := b.runs[id]
	if r == nil {
		r = &Record{ID: id}
		b.runs[id] = r
	}
	return r
}

// edit changes a run that the log has.
func (b *RunState) edit(id run.ID, change func(*Record)) {
	if r := b.runs[id]; r != nil {
		b.touch(r)
		change(r)
	}
}
