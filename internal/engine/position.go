package engine

import (
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// position is the progress of the code in the record of its run. The execution's mu
// guards it.
type position struct {
	journal  *journal.Journal
	visited  map[run.Path]bool // recorded and cut off steps that the code reached
	mismatch *journal.Step     // the recorded step that the code did not match; nil if there is none
	newest   uint64            // the attempt of the newest recorded step
	last     time.Time         // of the last recorded step
	versions map[decided]version
	recorder *recorder // of a replay
}

// next asks the journal about a step that the code reaches.
func (p *position) next(asked journal.StepRequest) (journal.Decision, *journal.Step, error) {
	if p.recorder != nil {
		p.recorder.asked = append(p.recorder.asked, asked)
	}
	decision, record, err := p.journal.Next(asked)
	if _, open := p.journal.OpenIntent(asked.Path); open || record != nil {
		if p.visited == nil {
			p.visited = map[run.Path]bool{}
		}
		p.visited[asked.Path] = true
	}
	if err != nil && record != nil {
		p.mismatch = record
	}
	return decision, record, err
}

// has reports whether a step is recorded at a path.
func (p *position) has(ex *Execution, at run.Path) bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return p.journal.Has(at)
}

// advance takes over the time of a record. Calls of a round are replayed in call order,
// so the time may be earlier than the last one.
func (p *position) advance(t time.Time) {
	if t.After(p.last) {
		p.last = t
	}
}

// unreached returns an error for a recorded step, or a call that was cut off, that the
// code did not reach: the journal is of other code. Steps of the runs around it, which
// outer reports, are ignored.
func (p *position) unreached(outer func(run.Path) bool) error {
	path, name, found := p.journal.Unvisited(func(at run.Path) bool { return p.visited[at] || outer(at) })
	if !found {
		return nil
	}
	if s := p.journal.Step(path); s != nil {
		p.mismatch = s
	}
	return fmt.Errorf("%w: the workflow ended without step %s (%s), which is recorded or was cut off", run.ErrMismatch, path, name)
}

// resolution returns the operator's value for a call that was cut off, or that failed for
// the last time.
func (p *position) resolution(at run.Path) (journal.Resolved, bool) {
	v, ok := p.journal.Resolution(at)
	_, open := p.journal.OpenIntent(at)
	return v, ok && (open || p.journal.Has(tryPath(at).Index(1))) && v.Decision == run.Happened
}

// recorder records the steps that the code requests, in order.
type recorder struct {
	from   int // the iteration at which each loop begins
	asked  []journal.StepRequest
	result session.Session
	err    error // returned by the code
	stop   error // why the execution could not continue
}
