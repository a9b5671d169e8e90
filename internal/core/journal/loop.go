package journal

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Iteration is the value of a step that ends an iteration of a loop, and of the step that
// opens the loop, which has only More and State. An execution goes on from the newest one.
type Iteration struct {
	// Events are the places of the last events that the code of the loop has, by their
	// logs, and Since their times in Unix milliseconds.
	Events map[session.ID]uint64 `json:"events,omitempty"`
	Since  map[session.ID]int64  `json:"since,omitempty"`
	// Finish and Word are those of the last answer to an agent, see Ended.
	Finish string `json:"finish,omitempty"`
	Word   string `json:"finish_word,omitempty"`
	From   string `json:"from,omitempty"` // StateDigest of the state that it began with
	// Lost, Steps and Usage are those of steps in the logs of sessions that the iteration
	// made.
	Lost     session.Usage `json:"lost,omitzero"`
	More     bool          `json:"more,omitempty"`     // another iteration follows
	State    string        `json:"state"`              // JSON text
	Statuses uint64        `json:"statuses,omitempty"` // see Status.N
	Steps    int64         `json:"steps,omitempty"`
	Tags     *run.Tags     `json:"tags,omitempty"` // of the run, if a step has changed them
	Usage    session.Usage `json:"usage,omitzero"`
}

// StateDigest returns the digest of a state of a loop.
func StateDigest(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:16])
}

// Iteration reads the value of a step of a loop.
func (d *StepCompleted) Iteration() (v Iteration, err error) {
	err = json.Unmarshal([]byte(d.Value), &v)
	return v, err
}

// EndsIteration reports whether a step ended an iteration of a loop.
func (d *StepCompleted) EndsIteration() bool { return d.Kind == StepIteration && d.Code == "" }

// IterationOf returns the number of the iteration of a loop that a path belongs to.
func IterationOf(loop, p run.Path) (n int, ok bool) {
	below, ok := strings.CutPrefix(string(p), string(loop)+".")
	first, _, _ := strings.Cut(below, ".")
	n, err := strconv.Atoi(first)
	return n, ok && err == nil
}

// Iterations returns the number of ended iterations of a loop.
func (j *Journal) Iterations(loop run.Path) (n int) {
	for _, s := range j.steps {
		if s.EndsIteration() && s.Path.Parent() == loop {
			i, _ := IterationOf(loop, s.Path)
			n = max(n, i+1)
		}
	}
	return n
}

// Over reports whether a path belongs to an iteration that has ended.
func (j *Journal) Over(p run.Path) bool {
	for _, s := range j.steps {
		if !s.EndsIteration() {
			continue
		}
		loop := s.Path.Parent()
		last, _ := IterationOf(loop, s.Path)
		if n, ok := IterationOf(loop, p); ok && n <= last {
			return true
		}
	}
	return false
}

// past is what the record of a run keeps of the steps of ended iterations.
type past struct {
	Lost     session.Usage `json:"lost,omitzero"`
	Steps    int64         `json:"steps,omitempty"`
	Unpriced string        `json:"unpriced,omitempty"` // see StepCompleted
	Usage    session.Usage `json:"usage,omitzero"`
}

// add adds the usage of a step.
func (p *past) add(used, lost session.Usage, steps int64) {
	p.Usage, p.Lost, p.Steps = p.Usage.Add(used), p.Lost.Add(lost), p.Steps+steps
}

// over reports whether a path belongs to an iteration that has ended.
func over(r *Record, p run.Path) bool {
	for at := p; len(r.loops) > 0 && at != ""; at = at.Parent() {
		if last, ok := r.loops[at.Parent()]; ok {
			if n, ok := IterationOf(at.Parent(), at); ok && n <= last {
				return true
			}
		}
	}
	return false
}

// iterated folds the end of an iteration. The code never reaches the steps of ended
// iterations again, so the record drops them, unless whole is set: all but that end, and
// the outcomes of runs that were started outside of the loop.
func iterated(r *Record, end *Step, whole bool) {
	loop := end.Path.Parent()
	n, _ := IterationOf(loop, end.Path)
	maps.DeleteFunc(r.loops, func(p run.Path, _ int) bool { return p.Within(end.Path) })
	put(&r.loops, loop, n)
	if whole {
		return
	}
	if v, err := end.Iteration(); err == nil {
		r.past.add(v.Usage, v.Lost, v.Steps)
	}
	drops := func(p run.Path) bool { return p != loop && p.Within(loop) }
	started := map[run.ID]bool{}
	for _, s := range r.order.items {
		if v, err := s.Started(); s.Kind == StepStart && err == nil && !drops(s.Path) {
			started[v.Run] = true
		}
	}
	dropped := func(s *Step) bool {
		return s != end && drops(s.Path) && !(s.Kind == StepResult && s.Code == "" && started[run.ID(s.Name)])
	}
	for i, s := range r.order.items {
		if !dropped(s) {
			continue
		}
		r.order.unpage(i)
		r.past.add(s.Usage, s.Lost, 1+s.Steps)
		r.past.Unpriced = cmp.Or(r.past.Unpriced, s.Unpriced())
		r.children = slices.DeleteFunc(r.children, func(id session.ID) bool { return slices.Contains(s.made(), id) })
		delete(r.steps, s.Path)
	}
	r.order.items = slices.DeleteFunc(r.order.items, dropped)
	r.inbox = slices.DeleteFunc(r.inbox, func(v SignalReceived) bool { return v.Kind != Message && drops(v.Path) })
	maps.DeleteFunc(r.resolved, func(p run.Path, _ resolution) bool {
		_, open := r.intents[p]
		return drops(p) && !open
	})
}
