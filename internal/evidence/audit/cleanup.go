package audit

import (
	"encoding/json"
	"fmt"
)

// defers notes a compensation that a step registered.
func (g *runState) defers(d *doneData) {
	var v struct {
		Always bool `json:"always"`
	}
	if d.Code == "" && json.Unmarshal([]byte(d.Value), &v) == nil {
		g.deferred = append(g.deferred, v.Always)
	}
}

// compensated checks the end of a cleanup run, and notes the cleanup run that the end of a
// run with compensations owes.
func compensated(f *folding, d *endedData, r *logRun, g *runState) {
	if !r.home {
		return
	}
	if f.l.cleanup == d.Run {
		f.l.cleanup = ""
	}
	if g.cleans > 0 && d.State == "succeeded" {
		f.a.check(Cleanup, len(r.steps) == g.cleans, f.says(d.Run, fmt.Sprintf("%d compensations", g.cleans), fmt.Sprintf("success after %d steps", len(r.steps))))
	}
	n := 0
	for _, always := range g.deferred {
		if always || d.State != "succeeded" {
			n++
		}
	}
	if n > 0 {
		f.owed, f.owing = d.Run, n
	}
}

// cleanup checks the submission of a cleanup run by the end of another run.
func cleanup(f *folding, id, of string, d *submittedData) {
	want := d.Task.Resumes
	want.Run, want.Commit, want.Session = f.owed, f.c.seq, f.l.id
	f.a.check(Cleanup, f.owed != "" && want == d.Task.Resumes && id == of+"-cleanup",
		f.says(id, "a cleanup run in the commit that ends a run with compensations, and names it", fmt.Sprintf("it for run %s, commit %d of %s", of, d.Task.Resumes.Commit, d.Task.Resumes.Session)))
	f.a.check(Cleanup, d.Task.Budget.Steps == int64(f.owing), f.says(id, fmt.Sprintf("a budget of %d steps, one for each compensation", f.owing), fmt.Sprint(d.Task.Budget.Steps)))
	_, g := f.here(id)
	g.cleans, f.l.cleanup = f.owing, id
	f.owed = ""
}
