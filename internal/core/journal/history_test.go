package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// theatre plays random runs on pure writers over an in-memory log, on several
// nodes one after the other.
type theatre struct {
	t       testing.TB
	r       *rand.Rand
	log     *commitlog.Memory
	values  *Values
	writers map[session.Key]*StateMachine
	node    int
	now     time.Time
	n       int // names
	keys    []session.Key
	runs    []run.ID
	errs    map[string]int
}

func newTheatre(t testing.TB, seed uint64) *theatre {
	h := &theatre{
		t: t, r: rand.New(rand.NewPCG(seed, 7)), log: &commitlog.Memory{}, writers: map[session.Key]*StateMachine{},
		now: time.UnixMilli(1_700_000_000_000).UTC(), errs: map[string]int{},
	}
	h.values = NewValues(h.log)
	h.keys = []session.Key{{Tenant: "t", ID: "home"}}
	return h
}

func (h *theatre) writer(k session.Key) *StateMachine {
	h.t.Helper()
	if h.writers[k] == nil {
		w, err := LoadStateMachine(h.t.Context(), h.log, h.values, k, fmt.Sprint("node", h.node))
		if err != nil {
			h.t.Fatalf("Load: %v", err)
		}
		h.writers[k] = w
	}
	return h.writers[k]
}

// do calls decide on a writer and commits the staged events.
func (h *theatre) do(k session.Key, decide func(*StateMachine) error) error {
	h.t.Helper()
	w := h.writer(k)
	h.now = h.now.Add(time.Duration(h.r.IntN(50)) * time.Millisecond)
	err := decide(w)
	if c, ok := w.Take(); ok {
		at, err := h.log.Append(h.t.Context(), w.At(), c)
		if err != nil {
			h.t.Fatalf("Append: %v", err)
		}
		w.Committed(at)
	}
	if err != nil {
		h.errs[string(run.CodeOf(err))]++
	}
	return err
}

func (h *theatre) name(kind string) string { h.n++; return fmt.Sprint(kind, h.n) }

func pick[T any](r *rand.Rand, all []T) (one T, ok bool) {
	if len(all) == 0 {
		return one, false
	}
	return all[r.IntN(len(all))], true
}

func (h *theatre) batch(w *StateMachine, id run.ID, path run.Path, events ...session.Event) Batch {
	b := Batch{Session: w.key, Run: id, Path: path, Base: w.Session().Ref().Version, Events: events}
	if r := w.RunState().Run(id); r != nil {
		b.Attempt = r.Attempt
	}
	if h.r.IntN(20) == 0 && b.Attempt > 1 {
		b.Attempt--
	}
	return b
}

func (h *theatre) chunk() session.Event {
	text := h.name("chunk ") + strings.Repeat("x", []int{0, 10, 10, 3000}[h.r.IntN(4)])
	return session.ChunkEvent(session.AssistantText(text, session.ToolCall{ID: "c", Name: "tool", Args: `{}`}).Of(session.Origin{
		Agent: "a", Run: "r", Step: "0", Usage: session.Usage{Calls: 1, Input: int64(h.r.IntN(100))},
		Placement: session.Placement{Backend: []string{"", "local", "docker"}[h.r.IntN(3)]},
	}))
}

// act plays one random move.
func (h *theatre) act() {
	k, _ := pick(h.r, h.keys)
	if h.r.IntN(3) > 0 {
		k = h.keys[0]
	}
	w := h.writer(k)
	id := w.RunState().Active
	if id == "" || h.r.IntN(10) == 0 {
		id, _ = pick(h.r, h.runs)
	}
	if r := w.RunState().Run(id); r != nil && id == w.RunState().Active && (r.Epoch != w.Epoch() || r.State == run.Queued) && h.r.IntN(3) > 0 {
		h.claim(w, r)
		return
	}
	switch h.r.IntN(24) {
	case 0, 1:
		task := &Task{ID: run.ID(h.name("run")), Workflow: "w", Session: k, Input: []byte(`"` + strings.Repeat("i", h.r.IntN(2)*6000) + `"`), Tools: []string{"a"}}
		c := Claim{Session: k, Home: k, Run: task.ID, Task: task, Open: session.Opening{Kind: session.OpenLeaf}, Events: []session.Event{h.chunk()}}
		if h.do(k, func(w *StateMachine) error { _, err := w.Claim(c, h.now); return err }) == nil {
			h.runs = append(h.runs, task.ID)
		}
	case 2, 3:
		if q, ok := pick(h.r, w.RunState().Queue); ok && w.RunState().Active == "" {
			id = q
		}
		_ = h.do(k, func(w *StateMachine) error {
			_, err := w.Claim(Claim{Session: k, Home: k, Run: id}, h.now)
			return err
		})
	case 4, 5, 6, 7, 8:
		events := []session.Event{event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "i", Kind: StepModel, Name: "m", Path: run.Path(fmt.Sprint(h.n)), Run: id, Row: true, Inbox: uint64(h.n % 5)})}
		for range h.r.IntN(30) {
			events = append(events, h.chunk())
		}
		_ = h.do(k, func(w *StateMachine) error {
			_, err := w.Commit(h.batch(w, id, run.Path(fmt.Sprint(h.n)), events...), h.now)
			return err
		})
	case 9:
		p := run.Path(h.name(""))
		i := event(KindStepStarted, StepStarted{Attempt: 1, Call: "c", Input: "i", Name: "send", Path: p, Run: id})
		_ = h.do(k, func(w *StateMachine) error { _, err := w.Commit(h.batch(w, id, p, i), h.now); return err })
	case 10:
		h.fork(w, id)
	case 11:
		h.join(w, id)
	case 12:
		s := Signal{To: k, Run: id, Cancel: &CancelRequested{Reason: "r"}}
		if h.r.IntN(2) == 0 {
			_ = h.do(k, func(w *StateMachine) error { return w.Signal(s, h.now) })
		}
	case 13:
		v := event(KindReview, Review{Code: run.CodeReview, Path: run.Path(fmt.Sprint(h.n)), Reason: "r", Run: id})
		_ = h.do(k, func(w *StateMachine) error { _, err := w.Commit(h.batch(w, id, "", v), h.now); return err })
	case 14:
		s := Signal{To: k, Run: id, Resolve: &Resolved{Decision: []string{run.Happened, run.Again, run.Fail}[h.r.IntN(3)], Reason: "r", Value: "1"}}
		_ = h.do(k, func(w *StateMachine) error { return w.Signal(s, h.now) })
	case 15:
		var v session.Event
		if r := w.RunState().Run(id); r != nil {
			v = event(KindReleased, Released{Attempt: r.Attempt, Reason: "r", Run: id, Workflow: "w"})
		} else {
			v = event(KindWarning, Warning{Run: id, Text: "w"})
		}
		_ = h.do(k, func(w *StateMachine) error { _, err := w.Commit(h.batch(w, id, "", v), h.now); return err })
	case 16:
		events := []session.Event{
			event(KindWarning, Warning{Run: id, Text: "w"}),
			event(KindEnded, Ended{Run: id, State: []run.State{run.Succeeded, run.Failed, run.TimedOut}[h.r.IntN(3)], Output: "o", Workflow: "w"}),
		}
		_ = h.do(k, func(w *StateMachine) error { _, err := w.Commit(h.batch(w, id, "end", events...), h.now); return err })
	case 17, 18, 19, 20, 21, 22:
		h.outside(w, id)
	case 23:
		if h.r.IntN(4) == 0 { // another node takes over
			h.node++
			h.writers = map[session.Key]*StateMachine{}
			h.values = NewValues(h.log)
		}
	}
}

// outside plays the signals that a run waits for, other outside events, and branches
// that are separate runs.
func (h *theatre) outside(w *StateMachine, id run.ID) {
	r := w.RunState().Run(id)
	if r == nil {
		return
	}
	k, p := w.key, run.Path(h.name(""))
	commit := func(events ...session.Event) {
		_ = h.do(k, func(w *StateMachine) error { _, err := w.Commit(h.batch(w, id, p, events...), h.now); return err })
	}
	signal := func(s Signal) {
		s.To = k
		claims := r.State == run.Waiting && r.Home == k && h.r.IntN(2) == 0
		_ = h.do(k, func(w *StateMachine) error {
			err := w.Signal(s, h.now)
			if err == nil && claims && r.State == run.Queued { // in the commit that wakes it
				_, err = w.Claim(Claim{Session: k, Home: k, Run: id}, h.now)
			}
			return err
		})
	}
	wait := Wait{Kind: []string{run.WaitApproval, run.WaitResponse, run.WaitMessage, run.WaitTimer}[h.r.IntN(4)], Path: p, Title: "t"}
	if h.r.IntN(3) == 0 {
		wait.Due = h.now.UnixMilli() + int64(h.r.IntN(400))
	}
	asked := p
	if r.Suspended != nil {
		asked = r.Suspended.For[0].Path
	}
	switch h.r.IntN(10) {
	case 0:
		commit(event(KindRunWaiting, RunWaiting{Attempt: r.Attempt, For: []Wait{wait}, Run: id}))
	case 1, 2:
		v := SignalReceived{Kind: []string{Approve, Refuse, Respond}[h.r.IntN(3)], Path: asked, By: "b", Value: "1"}
		signal(Signal{Run: id, Received: &v})
	case 3:
		signal(Signal{Run: []run.ID{"", id}[h.r.IntN(2)], Received: &SignalReceived{Kind: Message, ID: fmt.Sprint("m", h.r.IntN(20)), Text: h.name("says ")}})
	case 4:
		signal(Signal{Tick: true})
	case 5:
		f := FanOut{Ancestors: []Ancestor{{Run: id, Session: k.ID}}, Path: p, Root: k.ID, Run: id, WarmFirst: h.r.IntN(2) == 0, Workflow: "w"}
		f.Base, _ = w.Session().Link()
		for range 1 + h.r.IntN(3) {
			f.Branches = append(f.Branches, FanOutBranch{Name: h.name("b"), Session: session.ID(h.name("fan"))})
		}
		var ids []session.ID
		for _, b := range f.Branches {
			ids = append(ids, b.Session)
		}
		waits := RunWaiting{Attempt: r.Attempt, Run: id, For: []Wait{{Branches: ids, Kind: run.WaitBranches, Need: h.r.IntN(2), Path: GatherPath(p)}}}
		commit(event(KindFanOut, f), event(KindStepCompleted, StepCompleted{Attempt: r.Attempt, Input: "i", Kind: StepFanOut, Path: p, Run: id}), event(KindRunWaiting, waits))
	case 6:
		if r.Suspended == nil || len(r.branches) == 0 {
			return
		}
		if h.r.IntN(4) == 0 {
			signal(Signal{Run: id, Received: &SignalReceived{Kind: cacheWarm, Path: asked}})
		}
		child, _ := pick(h.r, r.branches)
		end := BranchEnd{Link: session.Link{Ref: session.Ref{Key: session.Key{Tenant: "t", ID: child}}, Seq: 3}, State: []run.State{run.Succeeded, run.Failed}[h.r.IntN(2)]}
		signal(Signal{Run: id, Received: &SignalReceived{ID: string(child), Kind: Report, Path: asked, Branch: &end}})
	case 7:
		if child, ok := pick(h.r, r.branches); ok {
			commit(event(KindBranchOutcomes, BranchOutcomes{Run: id, Branches: []run.BranchOutcome{{Session: child, State: session.ClosedMerged}}}),
				event(KindStepCompleted, StepCompleted{Attempt: r.Attempt, Inbox: uint64(h.r.IntN(9)), Input: "i", Kind: StepGather, Path: asked, Run: id}))
		}
	case 8:
		switch h.r.IntN(3) {
		case 0:
			signal(Signal{Quarantine: &Quarantined{Reason: "r", Released: w.RunState().Quarantine() != nil}})
		case 1:
			part := Part{From: session.ID(h.name("part")), N: 1 + uint64(h.r.IntN(3)), Spent: Spending{Steps: 1, Usage: session.Usage{Input: 5}}}
			signal(Signal{Run: id, Settle: &part})
			signal(Signal{Run: id, Rebudget: &Rebudgeted{Budget: run.Budget{Tokens: int64(h.r.IntN(1000))}}})
		case 2:
			if h.r.IntN(8) > 0 {
				return // a pinned run continues nowhere here
			}
			v := event(KindReview, Review{Code: run.CodeMismatch, Reason: "r", Revision: "6", Run: id})
			commit(v)
			signal(Signal{Run: id, Resolve: &Resolved{Decision: run.Pin, Reason: "r"}})
		}
	}
}

// claim continues a run as an attempt does: its home first.
func (h *theatre) claim(w *StateMachine, r *Record) {
	c := Claim{Session: w.key, Home: r.Home, Run: r.ID}
	if r.Home != w.key {
		home := h.writer(r.Home).RunState().Run(r.ID)
		if home == nil {
			h.t.Fatalf("run %s is not in the log of its home %s", r.ID, r.Home)
		}
		c.Attempt = home.Attempt
	}
	err := h.do(w.key, func(w *StateMachine) error { _, err := w.Claim(c, h.now); return err })
	if suspect, ok := errors.AsType[*SuspectError](err); ok {
		c.Group, c.Death = 1+h.r.IntN(max(1, suspect.Group)), "exit status 3"
		_ = h.do(w.key, func(w *StateMachine) error { _, err := w.Claim(c, h.now); return err })
	}
}

func (h *theatre) fork(w *StateMachine, id run.ID) {
	r := w.RunState().Run(id)
	if r == nil || len(h.keys) > 8 {
		return
	}
	from := w.Session()
	child := session.Key{Tenant: "t", ID: session.ID(h.name("branch"))}
	p := run.Path(h.name(""))
	done := event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "i", Kind: StepFork, Path: p, Run: id, Links: []session.Link{{Ref: session.Ref{Key: child}}}})
	if err := h.do(w.key, func(w *StateMachine) error { _, err := w.Commit(h.batch(w, id, p, done), h.now); return err }); err != nil {
		return
	}
	if s := r.steps[p]; s != nil && h.r.IntN(2) == 0 { // a fork of an older value
		if older, ok := pick(h.r, r.Steps()); ok {
			from = older.Session
		}
	}
	l, ok := from.Link()
	if !ok {
		h.t.Fatalf("%s of a step is not committed", from.Ref())
	}
	open := session.Opening{Kind: []string{session.OpenFork, session.OpenDetach}[h.r.IntN(2)], Parents: []session.Link{l}, Run: string(id)}
	c := Claim{Session: child, Home: r.Home, Run: id, Attempt: r.Attempt, Open: open}
	if open.Kind == session.OpenFork {
		c.Root = from.Root()
	}
	if err := h.do(child, func(w *StateMachine) error { _, err := w.Claim(c, h.now); return err }); err == nil {
		h.keys = append(h.keys, child)
	} else {
		h.t.Fatalf("claim of a new branch: %v", err)
	}
}

func (h *theatre) join(w *StateMachine, id run.ID) {
	var branches []session.Session
	for range 1 + h.r.IntN(2) {
		if k, _ := pick(h.r, h.keys); k != w.key {
			branches = append(branches, h.writer(k).Session())
		}
	}
	policy := []string{session.JoinSinceAncestor, session.JoinReplace, session.JoinAdopt}[h.r.IntN(3)]
	j, err := session.JoinOf(w.Session(), policy, "", h.r.IntN(2), branches...)
	if err != nil || len(branches) == 0 {
		return
	}
	if w.Session().Len() > 1500 {
		return
	}
	p := run.Path(h.name(""))
	done := event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "i", Kind: StepJoin, Name: policy, Path: p, Run: id})
	err = h.do(w.key, func(w *StateMachine) error {
		_, err := w.Commit(h.batch(w, id, p, session.JoinedEvent(j), done), h.now)
		return err
	})
	if errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrForeign) {
		h.t.Fatalf("join: %v", err)
	}
}

// The rest shows the writer's whole state, for comparisons.

type shownStep struct {
	Done    StepCompleted
	Session shownSession
	Time    time.Time
}

type shownSession struct {
	Ref       session.Ref
	Root      session.ID
	Link      session.Link
	Linked    bool
	Placement session.Placement
	Usage     session.Usage
	Opening   session.Opening
	Closing   session.Closing
	Parents   []session.Link
	Line      []session.Ref
	Len       int
	First     session.Ref
	Last      session.Ref
	Mark      string
}

func showSession(s session.Session) shownSession {
	d := shownSession{
		Ref: s.Ref(), Root: s.Root(), Placement: s.Placement(), Usage: s.Usage(), Opening: s.Opening(), Closing: s.Closing(),
		Parents: slices.Collect(s.Parents()), Line: slices.Collect(s.Line()), Len: s.Len(),
	}
	d.Link, d.Linked = s.Link()
	if c, ok := s.At(0); ok {
		d.First = c.Ref()
	}
	if c, ok := s.At(s.Len() - 1); ok {
		d.Last = c.Ref()
	}
	mark, err := s.Mark().MarshalJSON()
	if err != nil {
		panic(err)
	}
	d.Mark = string(mark)
	return d
}

type shownRun struct {
	Record    Record
	Base      shownSession
	Steps     []shownStep
	Recorded  []run.Path // in the order of recording
	Decisions []string
	Late      int
	Children  []session.ID
	Branches  []session.ID
	Inbox     []SignalReceived
	Inboxed   uint64
	Wake      uint64
	Told      []string
	Pinned    string
}

type shownWriter struct {
	Session     shownSession
	Chunks      []session.Event
	Refs        []session.Ref
	Epoch       uint64
	Incarnation string
	Active      run.ID
	Branch      run.ID
	Quarantine  *Quarantined
	Queue       []run.ID
	Heard       []deliveredSignal
	Runs        []shownRun
	Ended       []run.ID
	At          commitlog.Position
	Root        session.ID
	Next        *Offer
	CommonLens  []string
	Joins       []session.Join
}

func (h *theatre) show(w *StateMachine) shownWriter {
	b := w.RunState()
	d := shownWriter{
		Session: showSession(w.value), Epoch: b.Epoch, Incarnation: b.Incarnation, Active: b.Active, Branch: b.branch, Quarantine: b.quarantine, Queue: slices.Clone(b.Queue), Heard: slices.Clone(b.delivered),
		At: w.at, Root: w.root, Next: w.next(b.Active, time.Now()),
	}
	for _, c := range w.value.Chunks() {
		d.Chunks = append(d.Chunks, session.ChunkEvent(c))
		d.Refs = append(d.Refs, c.Ref())
	}
	for _, r := range b.ended.items {
		d.Ended = append(d.Ended, r.ID)
	}
	for _, r := range b.Runs() {
		rec := *r
		rec.Base, rec.steps, rec.intents, rec.resolved, rec.order, rec.taskPage = session.Session{}, nil, nil, nil, paged[*Step]{}, nil
		rec.children, rec.late = nil, 0
		rec.branches, rec.inbox, rec.inboxed, rec.wake, rec.delivered, rec.pinned = nil, nil, 0, 0, nil, ""
		v := shownRun{Record: rec, Base: showSession(r.Base), Late: r.late, Children: slices.Clone(r.children)}
		v.Branches, v.Inbox, v.Inboxed = slices.Clone(r.branches), slices.Clone(r.inbox), r.inboxed
		v.Wake, v.Told, v.Pinned = r.wake, slices.Clone(r.delivered), r.pinned
		paths := []run.Path{"never"}
		for _, s := range r.Steps() {
			v.Steps = append(v.Steps, shownStep{s.StepCompleted, showSession(s.Session), s.Time})
			paths = append(paths, s.Path)
		}
		for _, s := range r.order.items {
			v.Recorded = append(v.Recorded, s.Path)
		}
		for p := range r.intents {
			paths = append(paths, p)
		}
		slices.Sort(paths)
		j := b.JournalOf(r.ID)
		for _, p := range paths {
			for _, a := range []StepRequest{{Path: p, Kind: StepModel, Name: "m", Input: "i"}, {Path: p, Kind: StepTool, Name: "send", Input: "i", Effect: "sandboxed"}} {
				dec, st, err := j.Next(a)
				res, ok := j.Resolution(p)
				i, open := j.OpenIntent(p)
				v.Decisions = append(v.Decisions, fmt.Sprintf("%s: %d %v %v %v %v %v %v", p, dec, st != nil, err, res, ok, i, open))
			}
		}
		d.Runs = append(d.Runs, v)
	}
	for _, k := range h.keys {
		other := h.writer(k).Session()
		n, at, ok := session.CommonLen(other, w.value)
		d.CommonLens = append(d.CommonLens, fmt.Sprint(k, n, at, ok))
		if j, err := session.JoinOf(other, session.JoinSinceAncestor, "", 0, w.value); err == nil {
			d.Joins = append(d.Joins, j)
		}
	}
	return d
}
