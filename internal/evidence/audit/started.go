package audit

import (
	"encoding/json"
	"fmt"
	"slices"
)

// startedRun is a run as the step that started it describes it.
type startedRun struct {
	starter *runState
	log     *log
	seq     uint64
	path    string
	above   []string
	runs    string // the workflow of its task
	by      string
}

// starterData names the run that started another one.
type starterData struct {
	Above   []string `json:"above"`
	Run     string   `json:"run"`
	Session string   `json:"session"`
	Step    string   `json:"step"`
}

// toldRun is the outcome of a started run in the log of its starter.
type toldRun struct {
	log *log
	seq uint64
	run string
	end runEndData
	// before is set for the end of a run that the other one begins after.
	before bool
}

// maxStarted is the largest number of runs that start each other above a started run.
const maxStarted = 16

// starts checks the event with which a run starts another one.
func starts(f *folding, e *event, d startData) {
	r, g := f.here(d.Run)
	if !f.lives(d.Run, r, runStart) {
		return
	}
	id := d.Task.Run
	recorded := slices.ContainsFunc(f.c.events, func(o event) bool {
		v, ok := read[doneData](o.data)
		if o.kind != stepDone || o.batch != e.batch || !ok || v.Kind != "start" || v.Run != d.Run || v.Path != d.Path {
			return false
		}
		value, ok := read[startedValue](v.Value)
		return ok && value.Run == id
	})
	f.a.check(Starts, recorded, f.says(d.Run, "run.start of "+id+" in the batch of step.done "+d.Path+", which names it", "it in batch "+e.batch))
	f.a.check(Starts, r.home, f.says(d.Run, "run.start in the home of the run", "it elsewhere"))
	f.a.check(Starts, d.By == g.by, f.says(d.Run, fmt.Sprintf("a start for %q, who submitted the run", g.by), fmt.Sprintf("%q", d.By)))
	by := d.Task.StartedBy
	f.a.check(Starts, by != nil && by.Run == d.Run && by.Session == f.l.id && by.Step == d.Path && len(by.Above) < maxStarted,
		f.says(d.Run, "a task that this step starts, below at most 16 runs", fmt.Sprintf("%+v", by)))
	if by == nil {
		return
	}
	k := key{f.l.tenant, id}
	if f.a.starts == nil {
		f.a.starts = map[key][]startedRun{}
	}
	f.a.starts[k] = append(f.a.starts[k], startedRun{g, f.l, f.c.seq, d.Path, by.Above, d.Task.Workflow, d.By})
}

// startedEnd notes the outcome of a started run in its starter's log.
func startedEnd(f *folding, r *logRun, d *receivedData) {
	end := d.Ended
	f.a.check(Starts, end != nil && d.ID == "", f.says(d.Run, "the outcome of a started run", d.Kind+" without one"))
	if end == nil {
		return
	}
	f.a.check(Starts, !r.ends[end.Run], f.says(d.Run, "the outcome of run "+end.Run+" once", "it again"))
	if r.ends == nil {
		r.ends = map[string]bool{}
	}
	r.ends[end.Run] = true
	f.a.ends = append(f.a.ends, toldRun{f.l, f.c.seq, d.Run, *end, false})
}

// gotEnd checks the step that takes the outcome of a started run from the inbox.
func gotEnd(f *folding, r *logRun, d *doneData) {
	if d.Code != "" {
		return
	}
	var v runEndData
	ok := json.Unmarshal([]byte(d.Value), &v) == nil && v.Run == d.Name
	came := slices.ContainsFunc(r.inbox, func(i receivedData) bool { return i.Ended != nil && i.Ended.Run == d.Name && *i.Ended == v })
	f.a.check(Starts, ok && came, f.says(d.Run, "step "+d.Path+" to take the outcome of run "+d.Name+" that came", clip(d.Value, 60)))
}

// finishStarted compares the started runs and their outcomes with their own logs.
func finishStarted(a *audit) {
	for k, g := range a.runs {
		if g.home == nil || a.incomplete(g.home) {
			continue
		}
		if g.startedBy == nil {
			a.counts[Starts].Checked++
			continue
		}
		from := a.logs[key{k.tenant, g.startedBy.Session}]
		if from == nil || a.incomplete(from) {
			continue // it was purged
		}
		found := slices.ContainsFunc(a.starts[key{g.tenant, g.id}], func(s startedRun) bool {
			return s.starter.id == g.startedBy.Run && s.path == g.startedBy.Step && s.log == from && slices.Equal(s.above, g.startedBy.Above) && s.runs == g.workflow && s.by == g.by
		})
		a.check(Starts, found || a.o.Open, func() Violation {
			return g.home.says(1, g.id, fmt.Sprintf("run.start of it at step %s of run %s", g.startedBy.Step, g.startedBy.Run), "none like its task")
		})
	}
	for _, t := range a.ends {
		g := a.runIn(key{t.log.tenant, t.end.Run}, t.end.Session)
		if t.end.Session == "" || g == nil || g.home == nil || a.incomplete(g.home) {
			continue // no log took its task, or its log was purged
		}
		e := g.end
		if e == nil && a.o.Open {
			continue
		}
		a.check(Starts, e != nil && e.state == t.end.State && e.code == t.end.Code && (t.before || e.version == t.end.Version && e.usage == t.end.Usage && e.steps == t.end.Steps), func() Violation {
			return t.log.says(t.seq, t.run, "the outcome of run "+t.end.Run+" as its run.ended has it", fmt.Sprintf("%s %s at version %d", t.end.State, t.end.Code, t.end.Version))
		})
	}
}
