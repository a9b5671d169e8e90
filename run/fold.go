package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/session"
)

// Book is the fold of the run, step and writer events of one session's log:
// which runs there are, what they recorded, and who writes. It is not safe for
// concurrent use.
type Book struct {
	Epoch       uint64
	Incarnation string
	Active      ID   // the run that holds the session, "" when none does
	Queue       []ID // submitted runs that wait for the session, oldest first
	runs        map[ID]*Record
}

// Record is what one log says of one run.
type Record struct {
	ID        ID
	Home      session.Key // the log that decides about the run
	State     State
	Task      Task // only in the home log
	Digest    string
	Submitted time.Time
	Started   time.Time // of the first claim
	Attempt   uint64
	Epoch     uint64 // of the attempt's claim
	Claims    int    // since the last new step
	Cancel    *CancelRequested
	Review    *Review
	Ended     *Ended
	EndedAt   time.Time
	// Base is the session as it was when the run first claimed it: what a
	// workflow is given, on every attempt.
	Base     session.Session
	Warnings []string
	steps    map[Path]*Step
	intents  map[Path]Intent
	resolved map[Path]Resolved
	children []session.ID
	late     int
}

// Step is a recorded step with the session as it was right after it.
type Step struct {
	Done
	Session session.Session
	Time    time.Time
}

// Run returns what the log says of a run, nil if nothing.
func (b *Book) Run(id ID) *Record { return b.runs[id] }

// Runs yields every run that the log knows, in order of submission.
func (b *Book) Runs() []*Record {
	all := slices.Collect(maps.Values(b.runs))
	slices.SortFunc(all, func(x, y *Record) int {
		if c := x.Submitted.Compare(y.Submitted); c != 0 {
			return c
		}
		return strings.Compare(string(x.ID), string(y.ID))
	})
	return all
}

// Steps yields the recorded steps in the order of their paths' recording.
func (r *Record) Steps() []*Step {
	all := slices.Collect(maps.Values(r.steps))
	slices.SortFunc(all, func(x, y *Step) int { return ComparePaths(x.Path, y.Path) })
	return all
}

// ComparePaths orders paths the way a workflow takes them: numbers by value,
// names by letter, parents before children.
func ComparePaths(a, b Path) int {
	as, bs := strings.Split(string(a), "."), strings.Split(string(b), ".")
	for i := range min(len(as), len(bs)) {
		x, y := as[i], bs[i]
		if len(x) != len(y) && isNumber(x) && isNumber(y) {
			return len(x) - len(y)
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
	return len(as) - len(bs)
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// Apply folds one event; s is the session right after it. Events of other
// namespaces are skipped, an unknown one of its own is ErrTooOld.
func (b *Book) Apply(k session.Key, e session.Event, s session.Session) error {
	if !strings.HasPrefix(e.Kind, "run.") && !strings.HasPrefix(e.Kind, "step.") && !strings.HasPrefix(e.Kind, "writer.") {
		return nil
	}
	switch e.Kind {
	case KindWriter:
		w, err := Read[WriterOpened](e)
		if err != nil {
			return err
		}
		if w.Epoch <= b.Epoch {
			return fmt.Errorf("run: writer epoch %d after %d", w.Epoch, b.Epoch)
		}
		b.Epoch, b.Incarnation = w.Epoch, w.Incarnation
	case KindSubmitted:
		sub, err := Read[Submitted](e)
		if err != nil {
			return err
		}
		if b.runs[sub.Task.Run] != nil {
			return fmt.Errorf("run: %s is submitted twice", sub.Task.Run)
		}
		r := b.record(sub.Task.Run)
		r.Home, r.State, r.Task, r.Digest, r.Submitted = k, Queued, sub.Task.task(k), sub.Digest, e.Time
		b.Queue = append(b.Queue, r.ID)
	case KindClaimed:
		c, err := Read[Claimed](e)
		if err != nil {
			return err
		}
		r := b.record(c.Run)
		if c.Attempt < r.Attempt {
			return nil // the fold refuses lower attempts
		}
		r.Home, r.State, r.Attempt, r.Epoch, r.Review = c.Home, Running, c.Attempt, c.Epoch, nil
		r.Claims++
		if r.Started.IsZero() {
			r.Started, r.Base = e.Time, s
		}
		b.Active = c.Run
		if c.Home == k {
			b.Queue = slices.DeleteFunc(b.Queue, func(id ID) bool { return id == c.Run })
		}
	case KindReleased:
		rel, err := Read[Released](e)
		if err != nil {
			return err
		}
		r := b.runs[rel.Run]
		if r == nil || r.State != Running || r.Attempt != rel.Attempt {
			return nil
		}
		r.State, r.Claims = Queued, 0
		if r.Home != k && b.Active == r.ID {
			b.Active = "" // the run is done with this session, not over
		}
	case KindReview:
		v, err := Read[Review](e)
		if err != nil {
			return err
		}
		if r := b.runs[v.Run]; r != nil && !r.State.Terminal() {
			r.State, r.Review = NeedsReview, &v
		}
	case KindResolved:
		v, err := Read[Resolved](e)
		if err != nil {
			return err
		}
		if r := b.runs[v.Run]; r != nil && r.State == NeedsReview {
			r.State, r.Review, r.Claims = Queued, nil, 0
			r.resolved[v.Path] = v
		}
	case KindCancel:
		v, err := Read[CancelRequested](e)
		if err != nil {
			return err
		}
		if r := b.runs[v.Run]; r != nil && r.Cancel == nil {
			r.Cancel = &v
		}
	case KindWarning:
		v, err := Read[Warning](e)
		if err != nil {
			return err
		}
		if r := b.runs[v.Run]; r != nil {
			r.Warnings = append(r.Warnings, v.Text)
		}
	case KindEnded:
		v, err := Read[Ended](e)
		if err != nil {
			return err
		}
		r := b.runs[v.Run]
		if r == nil || r.State.Terminal() {
			return nil
		}
		r.State, r.Ended, r.EndedAt = v.State, &v, e.Time
		r.Review = nil
		if b.Active == v.Run {
			b.Active = ""
		}
		b.Queue = slices.DeleteFunc(b.Queue, func(id ID) bool { return id == v.Run })
		// A run that ended needs no journal any more; the log keeps it.
		r.steps, r.intents, r.resolved = nil, nil, nil
	case KindIntent:
		v, err := Read[Intent](e)
		if err != nil {
			return err
		}
		if r := b.runs[v.Run]; r != nil && r.intents != nil && v.Attempt >= r.Attempt {
			r.intents[v.Path] = v
		}
	case KindDone:
		v, err := Read[Done](e)
		if err != nil {
			return err
		}
		r := b.runs[v.Run]
		if r == nil || r.steps == nil || v.Attempt < r.Attempt || r.steps[v.Path] != nil {
			return nil // first write wins
		}
		r.steps[v.Path] = &Step{Done: v, Session: s, Time: e.Time}
		delete(r.intents, v.Path)
		r.Claims = 0
		if v.Kind == StepFork || v.Kind == StepDetach {
			for _, l := range v.Links {
				r.children = append(r.children, l.ID)
			}
		}
	case KindLate:
		v, err := Read[Done](e)
		if err != nil {
			return err
		}
		if r := b.runs[v.Run]; r != nil {
			r.late++
		}
	default:
		return fmt.Errorf("run: unknown event %s: %w", e.Kind, session.ErrTooOld)
	}
	return nil
}

func (b *Book) record(id ID) *Record {
	if b.runs == nil {
		b.runs = map[ID]*Record{}
	}
	r := b.runs[id]
	if r == nil {
		r = &Record{ID: id, steps: map[Path]*Step{}, intents: map[Path]Intent{}, resolved: map[Path]Resolved{}}
		b.runs[id] = r
	}
	return r
}
