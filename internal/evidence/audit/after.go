package audit

import (
	"fmt"
	"slices"
)

// predecessorData is a run that must have ended before another one begins.
type predecessorData struct {
	Any     bool   `json:"any"`
	Run     string `json:"run"`
	Session string `json:"session"`
}

// awaitedRun is the event with which a run waits for the end of another one.
type awaitedRun struct {
	By      string      `json:"by"`
	Ended   *runEndData `json:"ended"`
	Run     string      `json:"run"`
	Session string      `json:"session"`
}

// awaitedMark is such an event, for the comparison with the task of the run that waits.
type awaitedMark struct {
	log *log
	seq uint64
	awaitedRun
}

// codeAfter is the code of a run whose predecessor did not succeed.
const codeAfter = "after_failed"

// awaitedBy checks the event with which a run waits for the end of another one.
func awaitedBy(f *folding, _ *event, d awaitedRun) {
	r, g := f.here(d.Run)
	f.a.check(Waits, r.home, f.says(d.Run, runAwaited+" in the home of the run", "it elsewhere"))
	f.a.awaits = append(f.a.awaits, awaitedMark{f.l, f.c.seq, d})
	by := ancestor{Run: d.By, Session: d.Session}
	if d.Ended != nil {
		f.a.check(Waits, g.end != nil && g.end.state == d.Ended.State && g.end.code == d.Ended.Code, f.says(d.Run, "the end of the run in an answer to run "+d.By, d.Ended.State+" "+d.Ended.Code))
		return
	}
	f.a.check(Waits, g.end == nil && !slices.Contains(g.awaitedBy, by), f.says(d.Run, "run "+d.By+" to wait once for the end of a run, or the end", "neither"))
	g.awaitedBy = append(g.awaitedBy, by)
}

// preceded checks the end of a predecessor in the home of the run that begins after it.
func preceded(f *folding, g *runState, d *receivedData) {
	at := -1
	if d.Ended != nil {
		at = slices.IndexFunc(g.after, func(p predecessorData) bool { return p.Run == d.Ended.Run })
	}
	f.a.check(Waits, at >= 0 && d.ID == "" && d.Wake == 0, f.says(d.Run, "the end of a run that must have ended before, once", "another one"))
	if at < 0 {
		return
	}
	f.a.ends = append(f.a.ends, toldRun{f.l, f.c.seq, d.Run, *d.Ended, true})
	if d.Ended.State != "succeeded" && !g.after[at].Any {
		f.fails = append(f.fails, g)
		return
	}
	if g.after = slices.Delete(slices.Clone(g.after), at, at+1); len(g.after) == 0 {
		f.clears = append(f.clears, g)
	}
}

// cleared checks the grant of a run whose predecessors have ended.
func cleared(f *folding, g *runState, d *decidedData) {
	at := slices.Index(f.clears, g)
	f.a.check(Waits, at >= 0, f.says(d.Run, "run.granted with the end of the last run that it begins after", "it elsewhere"))
	f.a.check(Limits, (g.limit != nil) == (d.Next != nil), f.says(d.Run, "the request of its limit once it may begin", "another one"))
	g.follows = false
	if at >= 0 {
		f.clears = slices.Delete(f.clears, at, at+1)
	}
}

// endAfter checks the commit as a whole: the end of a predecessor ends the run, or lets it
// begin if it is the last one.
func endAfter(f *folding) {
	for _, g := range f.fails {
		f.a.check(Waits, g.end != nil && g.end.code == codeAfter, f.says(g.id, "run.ended as "+codeAfter+" with the end of a run that must succeed before it", "it open"))
	}
	for _, g := range f.clears {
		f.a.check(Waits, false, f.says(g.id, "run.granted with the end of the last run that it begins after", "none: it would wait for ever"))
	}
}

// finishAfter compares the waits of runs for others with the homes of both.
func finishAfter(a *audit) {
	for _, m := range a.awaits {
		g := a.runIn(key{m.log.tenant, m.By}, m.Session)
		if g == nil || g.home == nil || a.incomplete(g.home) {
			continue
		}
		named := slices.ContainsFunc(g.named, func(p predecessorData) bool { return p.Run == m.Run && p.Session == m.log.id })
		a.check(Waits, named, func() Violation {
			return m.log.says(m.seq, m.Run, "a task of run "+m.By+" that begins after the run", "none")
		})
	}
	if a.o.Open {
		return
	}
	for _, g := range a.runs {
		if g.home == nil || g.end != nil || a.incomplete(g.home) {
			continue
		}
		for _, p := range g.after {
			of := a.runIn(key{g.tenant, p.Run}, p.Session)
			a.check(Waits, of == nil || of.home == nil || of.end == nil, func() Violation {
				return g.home.says(0, g.id, fmt.Sprintf("the end of run %s, which the run waits for", p.Run), "none")
			})
		}
	}
}
