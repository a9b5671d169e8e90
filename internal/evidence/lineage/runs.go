package lineage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Run is the state of one run in the graph.
type Run struct {
	ID       run.ID
	Home     session.Key // the log that decides about it
	Root     session.ID
	Workflow string
	Revision string
	Asked    string    // the beginning of its task: of the first row of a user
	State    run.State // "" while the records of its home are missing
	Attempt  uint64
	Node     string          // the incarnation of its last attempt, valid only while it runs
	Behind   run.ID          // the run it waits for, while queued
	By, Via  string          // who submitted it, see journal.Submitted
	Says     string          // the claim of the sender
	BranchOf *messages.Place // the step that opened it, for a branch of a fan-out
	Branch   string          // its name
	// StartedBy is the run that started it, and its step; Starts are the runs that it
	// started, at most MaxStarts.
	StartedBy *messages.Place
	Starts    []run.ID
	Waits     []messages.Wait // the pending waits, while it waits
	Wake      uint64          // number of resumptions after a wait
	// Due is the time of the next timeout: when a review expires, when the first wait
	// of a waiting run ends, when a queued run may start.
	Due       time.Time
	Cancelled bool // cancellation was requested
	// Quarantine is the reason for the quarantine of its session, "" for none.
	Quarantine string
	Tags       run.Tags // of its task, as its workflow changed them
	Code       run.Code
	Reason     string // of its end, or of its review
	Result     *messages.Ref
	Usage      session.Usage
	Steps      int
	Warnings   []string
	Status     string       // that its workflow set last: JSON text
	Sessions   []session.ID // that it wrote to: the home first, then by time
	// Whole reports that the graph holds the records of its home from the first
	// commit on without a gap.
	Whole     bool
	Submitted time.Time
	Queued    time.Time // when it was queued last
	Started   time.Time
	Ended     time.Time
}

// Run returns the state of a run.
func (g *Graph) Run(t session.Tenant, id run.ID) (Run, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, ok := g.index.run(runKey{t, id})
	if !ok {
		return r, fmt.Errorf("lineage: run %s of tenant %s: %w", id, t, ErrNotFound)
	}
	return r, nil
}

// Choose returns the state of a run, and reports whether a selector matches it; nil
// matches all. Ages are relative to now.
func (g *Graph) Choose(t session.Tenant, id run.ID, s *Selector, now time.Time) (r Run, chosen bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := runKey{t, id}
	r, ok := g.index.run(k)
	if !ok {
		return r, false, fmt.Errorf("lineage: run %s of tenant %s: %w", id, t, ErrNotFound)
	}
	return r, s.chooses(&subject{g: &g.index, key: k, run: &r, now: now, trees: map[session.ID]map[session.Key]bool{}}), nil
}

// run folds the records of a run. As in the log's own fold the state comes from the home
// session alone; other sessions add steps and usage.
func (g *index) run(k runKey) (Run, bool) {
	home := g.home(k)
	r := Run{ID: k.run, Home: home}
	type member struct {
		id    session.ID
		first int64
	}
	var members []member
	var used session.Usage
	for key := range g.runs[k] {
		t := g.sessions[key].tidy()
		if of := t.homeOf(k.run); of != "" && of != home.ID {
			continue // the record of another run with this id, see Homes
		}
		first := int64(-1)
		if key == home {
			r.Quarantine, r.Whole, r.Asked = t.quarantine, t.whole, t.asked(k.run)
		}
		for _, rec := range t.of(k.run) {
			if opens(rec.Kind) { // the run that opens a branch need not write to it
				continue
			}
			if first < 0 {
				first = rec.Time
			}
			if spends(rec) || rec.Kind == messages.KindGathered { // the sum over its branches
				used = used.Add(rec.Usage)
			}
			if rec.Step != "" && stepDone(rec.Kind) {
				r.Steps++
			}
			if key == home {
				before := r.State
				r.fold(rec)
				if r.State == run.Queued && before != run.Queued {
					r.Queued = rec.When()
				}
				r.Root = t.root
			}
		}
		if first >= 0 {
			members = append(members, member{key.ID, first})
		}
	}
	if len(members) == 0 {
		return r, false
	}
	if r.Ended.IsZero() {
		r.Usage = used // so far
	}
	slices.SortFunc(members, func(a, b member) int {
		switch {
		case a.id == home.ID:
			return -1
		case b.id == home.ID:
			return 1
		}
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.id, b.id))
	})
	for _, m := range members {
		r.Sessions = append(r.Sessions, m.id)
	}
	if r.Submitted.IsZero() {
		r.Submitted = time.UnixMilli(members[0].first).UTC()
	}
	return r, true
}

// askedAmong bounds the records of a run among which its task is searched.
const askedAmong = 64

// asked returns the summary of the first row of a user in the log since the run's first
// record.
func (t *history) asked(id run.ID) string {
	of := t.runs[id]
	if len(of) == 0 {
		return ""
	}
	for _, r := range t.records[of[0]:min(of[0]+askedAmong, len(t.records))] {
		if r.Kind == messages.KindChunk && r.Role == string(session.User) && r.Agent == "" && (r.Run == "" || r.Run == id) {
			return strings.Trim(strings.TrimPrefix(r.Action(), "asks "), `"`)
		}
	}
	return ""
}

func stepDone(k messages.Kind) bool {
	for _, v := range stepKinds {
		if v == k {
			return true
		}
	}
	return k == messages.KindAdopted
}

// home returns the session whose log decides about a run: the one set by SetHome, else the
// first by id in which the run was submitted, else the first that a claim elsewhere names.
func (g *index) home(k runKey) session.Key {
	if id, ok := g.homes[k]; ok {
		return session.Key{Tenant: k.tenant, ID: id}
	}
	var own, named session.ID
	for key := range g.runs[k] {
		switch of := g.sessions[key].homeOf(k.run); {
		case of == key.ID && (own == "" || of < own):
			own = of
		case of != "" && (named == "" || of < named):
			named = of
		}
	}
	return session.Key{Tenant: k.tenant, ID: cmp.Or(own, named)}
}

// Homes returns the sessions in which a run with this id was submitted. A session restored
// from an archive may have a run with the id of another one.
func (g *Graph) Homes(t session.Tenant, id run.ID) []session.ID {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []session.ID
	k := runKey{t, id}
	for key := range g.index.runs[k] {
		if g.index.sessions[key].homeOf(id) == key.ID {
			out = append(out, key.ID)
		}
	}
	slices.Sort(out)
	return out
}

// Continuation returns the run that was submitted to continue a run which ended without
// success; "" for none. The run that executes its compensations is no continuation.
func (g *Graph) Continuation(t session.Tenant, id run.ID) run.ID {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, h := range g.index.sessions {
		if key.Tenant != t {
			continue
		}
		for _, r := range h.tidy().records {
			if of := r.Resumes; of != nil && of.Run == id && r.Run != run.CleanupOf(id) {
				return r.Run
			}
		}
	}
	return ""
}

// SetHome sets the home of the run with an id that has several homes.
func (g *Graph) SetHome(t session.Tenant, id run.ID, home session.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.index.homes == nil {
		g.index.homes = map[runKey]session.ID{}
	}
	g.index.homes[runKey{t, id}] = home
}

// MaxStarts bounds the started runs that the state of a run names: the first ones.
const MaxStarts = 64

// fold applies a record to the state of a run, as package run does.
func (r *Run) fold(rec *messages.Record) {
	if r.State.Terminal() {
		if rec.Kind == messages.KindSettled {
			r.Usage = rec.Usage
		}
		return
	}
	switch rec.Kind {
	case messages.KindSubmitted, messages.KindQueued:
		r.State, r.Submitted, r.Workflow, r.Revision, r.Behind, r.By, r.Via, r.Says = run.Queued, rec.When(), rec.Workflow, rec.Revision, rec.Behind, rec.By, rec.Via, rec.Says
		r.Due, r.Tags, r.Waits = dueOf(rec), maps.Clone(rec.Tags), slices.Clone(rec.Waits)
		if rec.BranchOf != nil {
			r.BranchOf, r.Branch = new(*rec.BranchOf), rec.Name
		}
		if rec.StartedBy != nil {
			r.StartedBy = new(*rec.StartedBy)
		}
	case messages.KindStarted:
		if rec.Starts != "" && len(r.Starts) < MaxStarts {
			r.Starts = append(r.Starts, rec.Starts)
		}
	case messages.KindClaimed:
		if rec.Attempt < r.Attempt {
			return
		}
		r.State, r.Attempt, r.Node, r.Behind, r.Code, r.Reason = run.Running, rec.Attempt, rec.Node, "", "", ""
		r.Waits, r.Due = nil, time.Time{}
		r.Workflow, r.Revision = cmp.Or(rec.Workflow, r.Workflow), cmp.Or(rec.Revision, r.Revision)
		if r.Started.IsZero() {
			r.Started = rec.When()
		}
	case messages.KindReleased:
		if r.State == run.Running && r.Attempt == rec.Attempt {
			r.State, r.Reason = run.Queued, rec.Reason
		}
	case messages.KindWaiting:
		if r.State == run.Running && r.Attempt == rec.Attempt {
			r.State = run.Waiting
			r.waitFor(cloneRecord(rec).Waits)
		}
	case messages.KindAnswered, messages.KindDue, messages.KindMessage, messages.KindReported:
		r.receive(rec)
	case messages.KindDid:
		for key, value := range rec.Tags {
			r.Tags = r.Tags.With(key, value)
		}
	case messages.KindReview:
		r.State, r.Code, r.Reason, r.Due = run.NeedsReview, rec.Code, rec.Reason, dueOf(rec)
	case messages.KindResolved:
		if r.State == run.NeedsReview {
			r.State, r.Code, r.Reason, r.Due = run.Queued, "", rec.Reason, time.Time{}
		}
	case messages.KindCancel:
		r.Cancelled = true
	case messages.KindStatus:
		r.Status = rec.Status
	case messages.KindWarning:
		r.Warnings = append(r.Warnings, rec.Reason)
	case messages.KindEnded:
		r.State, r.Code, r.Reason, r.Usage = run.State(rec.State), rec.Code, rec.Reason, rec.Usage
		r.Ended, r.Due, r.Waits = rec.When(), time.Time{}, nil
		if rec.Result != nil {
			r.Result = new(*rec.Result)
		}
	}
}

// dueOf returns the record's due time, zero for none.
func dueOf(r *messages.Record) time.Time {
	if r.Due == 0 {
		return time.Time{}
	}
	return time.UnixMilli(r.Due).UTC()
}

func (r *Run) waitFor(waits []messages.Wait) {
	r.Waits, r.Due = waits, time.Time{}
	for _, w := range waits {
		if at := time.UnixMilli(w.Due).UTC(); w.Due > 0 && (r.Due.IsZero() || at.Before(r.Due)) {
			r.Due = at
		}
	}
}

// receive removes the waits that a record ends, and queues a run that it wakes.
func (r *Run) receive(rec *messages.Record) {
	if r.State == run.Queued && rec.Kind == messages.KindReported {
		r.Waits = slices.DeleteFunc(r.Waits, func(w messages.Wait) bool { return w.Name == string(rec.Starts) })
	}
	if r.State != run.Waiting {
		return
	}
	if rec.Wake > r.Wake {
		r.State, r.Wake = run.Queued, rec.Wake
		r.waitFor(nil)
		return
	}
	r.waitFor(slices.DeleteFunc(r.Waits, func(w messages.Wait) bool {
		return rec.Kind == messages.KindMessage && w.Kind == run.WaitMessage || (rec.Kind == messages.KindAnswered || rec.Kind == messages.KindDue) && w.Step == rec.Step
	}))
}
