package engine

import (
	"context"
	"fmt"
	"strconv"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// ChangeVersion is flow.ChangeVersion.
func (p *place) ChangeVersion(ctx context.Context, change string, oldest, newest int) (int, error) {
	if change == "" || len(change) > maxChange || oldest < 0 || newest < oldest {
		return 0, fmt.Errorf("flow: version of change %.100q from %d to %d: name the change in 1 to %d bytes, and give versions from 0 on, the oldest first", change, oldest, newest, maxChange)
	}
	if p.in != nil {
		return 0, nested(journal.StepRequest{Kind: "version of change", Name: change}, p.in.asked)
	}
	ex := p.sc.ex
	ex.mu.Lock()
	var v version
	known := false
	for l := range ex.lines.around(p.sc.line) {
		if v, known = ex.pos.versions[decided{l, change}]; known {
			break
		}
	}
	ex.mu.Unlock()
	if !known {
		var err error
		if v, err = decideVersion(ctx, p, change, newest); err != nil {
			return 0, err
		}
		v.in = p.sc.prefix
		ex.mu.Lock()
		if ex.pos.versions == nil {
			ex.pos.versions = map[decided]version{}
		}
		ex.pos.versions[decided{p.sc.line, change}] = v
		ex.mu.Unlock()
	}
	if v.number >= oldest && v.number <= newest {
		return v.number, nil
	}
	ex.mu.Lock()
	ex.pos.mismatch = v.seen
	ex.mu.Unlock()
	if v.number > newest {
		return 0, ex.failed(fmt.Errorf("%w: run %s recorded version %d of change %q, and this code supports versions up to %d: the change was reverted. "+
			"Offer code with version %d again, or end the run: rath answer %s fail --reason TEXT", run.ErrMismatch, ex.id, v.number, change, newest, v.number, ex.id))
	}
	return 0, ex.failed(fmt.Errorf("%w: run %s is of version %d of change %q, and this code supports versions from %d on: the older version was dropped while the run was open. "+
		"Offer code with version %d again, or end the run: rath answer %s fail --reason TEXT", run.ErrMismatch, ex.id, v.number, change, oldest, v.number, ex.id))
}

// version is the version of a change, and a recorded step, or a question, of code that
// has the change; nil if there is none.
type version struct {
	number int
	in     run.Path // the scope that decided
	seen   *journal.Step
}

// decided names a decision about the version of a change: a line decides for itself and
// for the lines that it opens afterwards.
type decided struct {
	by     *line // nil for Forward
	change string
}

// maxChange bounds the name of a change.
const maxChange = 100

// decideVersion returns the version of a change that applies to the run: the recorded
// version; or else 0 if the run passed this place before the code had the change, which
// makes no step; or else the newest, which it records.
func decideVersion(ctx context.Context, p *place, change string, newest int) (version, error) {
	ex, at, name := p.sc.ex, p.sc.path(), "version of "+change
	input := ex.sessions.inputDigest(session.Session{}, []string{"version"})
	ex.mu.Lock()
	rec := ex.pos.journal.Step(at)
	marked := rec != nil && rec.Kind == journal.StepDo && rec.Name == name && rec.Input == input
	past := !marked && ex.past(at)
	if all := ex.pos.journal.Recorded(); past && len(all) > 0 {
		rec = all[len(all)-1]
	} else if past {
		rec = ex.pos.journal.Question(at)
	}
	ex.mu.Unlock()
	if past {
		return version{seen: rec}, nil
	}
	st, err := p.begin(ctx, journal.StepDo, name, session.Session{}, false, tool.ReadOnly.String(), "version")
	if err != nil {
		return version{}, err
	}
	defer st.end()
	v := version{number: newest, seen: st.record}
	err = st.make(func() error { return st.decode(&v.number) }, func() (journal.StepCompleted, error) {
		value := strconv.Itoa(newest)
		return journal.StepCompleted{Value: value, Summary: "version " + value + " of " + change}, nil
	})
	return v, err
}

// past reports whether the run was past a place before: it recorded a step there, waits
// or waited there, or has ended. ex.mu is held.
func (ex *Execution) past(at run.Path) bool {
	r := ex.granted.Record
	if ex.pos.journal.Began(at) || ex.pos.journal.Began("end") || ex.inbox.cameFor(at) || r.Ended != nil {
		return true
	}
	if r.Suspended != nil { // at the claim; a replay may read waiting runs
		for _, w := range r.Suspended.For {
			if w.Path.Within(at) {
				return true
			}
		}
	}
	return false
}
