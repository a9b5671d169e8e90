package schedule

import (
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Options configure a scheduler.
type Options struct {
	// Self is the incarnation of this process: it lives.
	Self string
	// Known returns, without blocking, whether an incarnation is alive, and whether that is
	// known at all; the scheduler sends an unknown one a Ping. A nil Known knows no
	// incarnation.
	Known func(incarnation string) (alive, known bool)
}

func (o *Options) known(incarnation string) (alive, known bool) {
	if o.Known == nil {
		return false, false
	}
	return o.Known(incarnation)
}

// Scheduler schedules the runs of one partition. It is not safe for concurrent
// use.
type Scheduler struct {
	Slots slots
	Pages pages

	o        Options
	sessions map[session.Key]*openSession
	alarms   alarms
	actions  actions
	holders  map[string]*holder
	fresh    map[freshKey]*freshRuns
	states   map[run.State]int // of the open runs
	sweep    alarm             // for the next recheck

	urgent  lane[*followUp]
	later   lane[*followUp]
	results lane[*followUp]
	looks   lane[*followUp]
	loads   lane[*followUps]
}

// freshKey is whose runs are counted that no node has begun.
type freshKey struct {
	tenant   session.Tenant
	workflow string
	limit    session.ID // the log of the key of their limit
}

type freshRuns struct {
	n     int
	moved time.Time // when one of them was last begun
}

// holder is an incarnation that executes runs, by the logs.
type holder struct {
	incarnation string
	alive       bool
	asking      bool
	sessions    map[*openSession]struct{}
}

// lane holds the actions that wait to be carried out, in order, at most most concurrently.
type lane[T any] struct {
	waiting []T
	busy    int
	most    int
}

func (l *lane[T]) next() (v T, ok bool) {
	if l.busy >= l.most || len(l.waiting) == 0 {
		return v, false
	}
	v = l.waiting[0]
	var none T
	l.waiting[0] = none
	l.waiting = l.waiting[1:]
	return v, true
}

// New returns a scheduler with an empty open set. Until [Scheduler.Begin] it only folds.
func New(o *Options) *Scheduler {
	s := &Scheduler{
		o: *o, sessions: map[session.Key]*openSession{}, actions: actions{idle: true, asked: map[uint64]any{}},
		fresh: map[freshKey]*freshRuns{}, states: map[run.State]int{}, holders: map[string]*holder{},
	}
	s.Slots = slots{alarms: &s.alarms, actions: &s.actions, groups: map[groupKey]*group{}, queues: map[queueKey]*queue{}, nodes: nodes{}, flights: map[uint64]*flight{}}
	s.Pages.make(minPages)
	s.urgent.most, s.later.most, s.results.most, s.looks.most, s.loads.most = signalsAtOnce, laterAtOnce, resultsAtOnce, looksAtOnce, looksAtOnce
	s.sweep.fire, s.Slots.reminder.fire = s.recheck, func(time.Time) {}
	return s
}

// Begin ends the history: the scheduler now acts on the open set, after it has asked which
// holders are alive.
func (s *Scheduler) Begin(now time.Time) {
	if !s.actions.idle {
		return
	}
	s.actions.idle = false
	for _, h := range s.holders {
		h.alive = true // until recheck finds it dead
	}
	s.recheck(now)
	for _, o := range s.sessions {
		s.refresh(now, o)
		for _, d := range o.FollowUps {
			if d.items == nil {
				s.loads.waiting = append(s.loads.waiting, d)
				continue
			}
			for _, f := range d.items {
				s.start(now, f)
			}
		}
	}
}

// Fold folds the next commit of the partition, with its facts. It returns an error for
// unreadable parts; the rest of the commit counts.
func (s *Scheduler) Fold(now time.Time, e commitlog.Entry, facts []journal.Fact) error {
	k := e.Commit.Key
	o := s.sessions[k]
	items, err := derive(e, facts)
	before := freshOf(o)
	s.tally(o, -1)
	for i := range facts {
		if o == nil && opens(&facts[i]) {
			o = s.open(e, facts)
		}
		if o == nil {
			continue
		}
		if ended := o.fold(k, &facts[i]); ended != nil {
			s.ended(o, ended)
		}
	}
	if len(items) > 0 {
		if o == nil {
			o = s.open(e, facts)
		}
		s.owe(now, o, e.At.Token, items)
	}
	s.tally(o, 1)
	if o != nil {
		s.Pages.changed(o)
		s.count(now, before, freshOf(o))
		s.refresh(now, o)
	}
	return err
}

// freshOf returns the kinds of a session's runs that no node has begun.
func freshOf(o *openSession) (kinds []freshKey) {
	if o == nil {
		return nil
	}
	for _, r := range o.Runs {
		if r.Attempt == 0 {
			kinds = append(kinds, freshKey{o.Tenant, r.Workflow, r.Limit})
		}
	}
	return kinds
}

// count follows the number of runs that no node has begun.
func (s *Scheduler) count(now time.Time, before, after []freshKey) {
	if slices.Equal(before, after) {
		return
	}
	add := func(k freshKey, n int) {
		f := s.fresh[k]
		if f == nil {
			f = &freshRuns{}
			s.fresh[k] = f
		}
		if f.n += n; n < 0 {
			f.moved = now
		}
		if f.n <= 0 {
			delete(s.fresh, k)
		}
	}
	for _, w := range after {
		add(w, 1)
	}
	for _, w := range before {
		add(w, -1)
	}
}

// tally follows how many runs are open in each state.
func (s *Scheduler) tally(o *openSession, n int) {
	if o == nil {
		return
	}
	for _, r := range o.Runs {
		s.states[r.State] += n
	}
}

// Fresh returns how many runs of a tenant and workflow, and of a key if they have a limit,
// no node has begun, and when one of them was last begun.
func (s *Scheduler) Fresh(t session.Tenant, workflow string, limit session.ID) (n int, moved time.Time) {
	if f := s.fresh[freshKey{t, workflow, limit}]; f != nil {
		return f.n, f.moved
	}
	return 0, time.Time{}
}

func (s *Scheduler) open(e commitlog.Entry, facts []journal.Fact) *openSession {
	o := openedBy(e, facts)
	s.sessions[e.Commit.Key] = o
	s.Pages.add(o)
	return o
}

// writerOf returns the incarnation that a commit names as the session's
// writer. The commit that submits a session's first open run names none if
// the writer was there before: then its claim does.
func writerOf(facts []journal.Fact) string {
	for _, f := range facts {
		switch v := f.What.(type) {
		case journal.WriterOpened:
			return v.Incarnation
		case journal.Claimed:
			return v.Incarnation
		}
	}
	return ""
}

// owe notes the follow-ups of a commit, once.
func (s *Scheduler) owe(now time.Time, o *openSession, token uint64, items []*followUp) {
	if slices.ContainsFunc(o.FollowUps, func(d *followUps) bool { return d.Token == token }) {
		return
	}
	d := &followUps{Token: token, session: o, items: items}
	for _, f := range items {
		f.of, f.before = d, s.actions.idle
		d.Open = append(d.Open, f.place)
		if f.begin != nil {
			f.begin.branch = f
		}
	}
	o.FollowUps = append(o.FollowUps, d)
	if !s.actions.idle {
		for _, f := range items {
			s.start(now, f)
		}
	}
}

// ended drops the pending actions for a run that has ended.
func (s *Scheduler) ended(o *openSession, r *openRun) {
	s.alarms.stop(r.timer)
	for _, d := range slices.Clone(o.FollowUps) {
		for _, f := range d.items {
			if f.begin != nil && opener(f.begin.task) == r.ID {
				s.settle(f)
			}
		}
	}
}

// opener returns the run that opened a branch.
func opener(t journal.Task) run.ID { return t.Branch.Ancestors[len(t.Branch.Ancestors)-1].Run }

// settle ends a follow-up.
func (s *Scheduler) settle(f *followUp) {
	if f.over {
		return
	}
	s.alarms.stop(f.again)
	if f.begin != nil {
		s.Slots.drop(f.begin)
	}
	d := f.of
	d.settle(f)
	if len(d.Open) == 0 {
		d.session.settled(d)
	}
	s.Pages.changed(d.session)
}

// refresh updates the state that depends on a session: its place among the sessions of its
// holder, its timers and its dispatch.
func (s *Scheduler) refresh(now time.Time, o *openSession) {
	s.hold(o)
	if o.done() {
		s.forget(o)
		return
	}
	if s.actions.idle {
		return
	}
	for _, r := range o.Runs {
		s.arm(now, o, r)
	}
	armLimit(s, now, o)
	r := o.runnable(now, s.lives)
	it := o.ready
	if it != nil && (r == nil || it.task.ID != r.ID || it.task.Seen.Attempt != r.Attempt || it.task.Revision != r.Revision) {
		s.Slots.drop(it)
		o.ready, it = nil, nil
	}
	if r != nil && it == nil {
		o.ready = &item{
			task: journal.Task{
				ID: r.ID, Workflow: r.Workflow, Revision: r.Revision, Session: o.key(), Resume: true, Seen: &journal.Seen{Attempt: r.Attempt},
			},
			derived: r.Attempt > 0, priority: r.Priority, batch: r.Batch, prefer: o.Writer, session: o,
		}
		s.Slots.enqueue(now, o.ready, false)
	}
}

// forget drops a session without open work.
func (s *Scheduler) forget(o *openSession) {
	if o.ready != nil {
		s.Slots.drop(o.ready)
		o.ready = nil
	}
	s.alarms.stop(o.limit)
	s.Pages.remove(o)
	delete(s.sessions, o.key())
}

// hold updates the index of sessions by the incarnation that executes their run.
func (s *Scheduler) hold(o *openSession) {
	held := ""
	if r := o.run(o.Active); r != nil && r.State == run.Running {
		held = r.Incarnation
	}
	if held == o.holder {
		return
	}
	if h := s.holders[o.holder]; h != nil {
		if delete(h.sessions, o); len(h.sessions) == 0 {
			delete(s.holders, o.holder)
		}
	}
	if o.holder = held; held == "" {
		return
	}
	h := s.holders[held]
	if h == nil {
		// Its commit has just been read, or the holder is checked when history ends.
		h = &holder{incarnation: held, alive: true, sessions: map[*openSession]struct{}{}}
		s.holders[held] = h
	}
	h.sessions[o] = struct{}{}
}

func (s *Scheduler) lives(incarnation string) bool {
	if incarnation == s.o.Self {
		return true
	}
	h := s.holders[incarnation]
	return h != nil && h.alive
}

// Recheck checks again which nodes and holders are alive, after a change of the membership
// or the end of another relay.
func (s *Scheduler) Recheck(now time.Time) {
	if !s.actions.idle {
		s.recheck(now)
	}
}

func (s *Scheduler) recheck(now time.Time) {
	s.alarms.set(&s.sweep, now.Add(holdersEvery))
	for _, h := range s.holders {
		if h.incarnation == s.o.Self {
			continue
		}
		switch alive, known := s.o.known(h.incarnation); {
		case known:
			s.setAlive(now, h, alive)
		case !h.asking:
			h.asking = true
			s.actions.ask(h, Action{Kind: Ping, Node: h.incarnation})
		}
	}
	for _, n := range s.Slots.nodes {
		if alive, known := s.o.known(n.Incarnation); known && !alive && n.Incarnation != s.o.Self {
			s.Slots.lose(now, n)
		}
	}
}

func (s *Scheduler) setAlive(now time.Time, h *holder, alive bool) {
	if h.alive == alive {
		return
	}
	h.alive = alive
	for o := range h.sessions {
		s.refresh(now, o)
	}
}

// arm sets the timer of a run for its next time, or for the next attempt to notify its
// session of a time that has come.
func (s *Scheduler) arm(now time.Time, o *openSession, r *openRun) {
	var first time.Time
	for ms := range r.times {
		at := time.UnixMilli(ms).Add(tickMargin)
		if at.After(now) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if r.due(now.Add(-tickMargin)) && !o.executes(r, s.lives) {
		next := now
		if r.ticks.n > 0 && r.timer != nil && r.timer.index != 0 && r.timer.at.After(now) {
			next = r.timer.at
		} else if r.ticks.n > 0 {
			next = now.Add(tickFirst)
		}
		if first.IsZero() || next.Before(first) {
			first = next
		}
	}
	if first.IsZero() {
		s.alarms.stop(r.timer)
		return
	}
	if r.timer == nil {
		r.timer = &alarm{fire: func(now time.Time) { s.timed(now, o, r) }}
	}
	if r.timer.index == 0 || !r.timer.at.Equal(first) {
		s.alarms.set(r.timer, first)
	}
}

// armLimit sets the timer of the log of a key for its next decision.
func armLimit(s *Scheduler, now time.Time, o *openSession) {
	if o.Due == 0 {
		s.alarms.stop(o.limit)
		return
	}
	if o.limit == nil {
		o.limit = &alarm{fire: func(now time.Time) { tick(s, now, o, "", o.limit, &o.ticks) }}
	}
	if at := time.UnixMilli(o.Due).Add(tickMargin); o.ticks.n == 0 && (o.limit.index == 0 || !o.limit.at.Equal(at)) {
		s.alarms.set(o.limit, at)
	}
}

// tick has a session check the clock, and again after a pause.
func tick(s *Scheduler, now time.Time, o *openSession, id run.ID, a *alarm, tries *backoff) {
	pause := tries.next(tickFirst, tickMost)
	if !o.ticking {
		o.ticking = true
		s.urgent.waiting = append(s.urgent.waiting, &followUp{tick: o, signal: &journal.Signal{To: o.key(), Run: id, Tick: true}})
	}
	s.alarms.set(a, now.Add(pause))
}

// timed handles due times: a run whose time has come is dispatched, and a session checks
// the clock. A run that a node executes ends at its deadline by itself.
func (s *Scheduler) timed(now time.Time, o *openSession, r *openRun) {
	if r.due(now.Add(-tickMargin)) && !o.executes(r, s.lives) {
		tick(s, now, o, r.ID, r.timer, &r.ticks)
	}
	s.refresh(now, o)
}

// Open returns how many runs are open.
func (s *Scheduler) Open() int {
	n := 0
	for _, o := range s.sessions {
		n += len(o.Runs)
	}
	return n
}

// Wake returns when Next has something to do by the clock, the zero time if
// never.
func (s *Scheduler) Wake() time.Time { return s.alarms.next() }
