package journal

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/run"
)

// Deferred is the value of a step that registers a compensation.
type Deferred struct {
	Always  bool   `json:"always,omitempty"` // it runs after success, too
	Effect  string `json:"effect"`
	Timeout int64  `json:"timeout_ms"` // of one execution
}

// MaxDeferred bounds the compensations of a run.
const MaxDeferred = 256

// cleanupLife is the time within which a cleanup run must end, besides the timeouts of its
// compensations.
const cleanupLife = 24 * time.Hour

// cleanupOf returns the submission of the run that executes the compensations of a run which
// ends now, or nil without any.
func cleanupOf(w *StateMachine, r *Record, end run.State, now time.Time) *Submitted {
	life, steps := cleanupLife, int64(0)
	for _, s := range r.steps {
		var d Deferred
		if s.Kind != StepDefer || s.Code != "" || json.Unmarshal([]byte(s.Value), &d) != nil || end == run.Succeeded && !d.Always {
			continue
		}
		life, steps = life+time.Duration(d.Timeout)*time.Millisecond, steps+1
	}
	if steps == 0 {
		return nil
	}
	t := r.Task
	t.ID, t.Input, t.Deadline, t.NotBefore, t.ForkOf, t.Budget = run.CleanupOf(r.ID), nil, now.Add(life), time.Time{}, nil, run.Budget{Steps: steps}
	t.Resumes = &run.Resumption{Commit: w.at.Seq + 1, Run: r.ID, Session: w.key.ID, Step: nextStep(r)}
	t.By, t.Via, t.Says, t.StartedBy, t.After = "", "", "", nil, nil
	cleanup := &Submitted{Behind: r.ID, By: r.By, Digest: t.Digest(), Task: t.wire()}
	if r.Limit != nil && r.Granted {
		kept := *r.Limit
		kept.Holder, cleanup.Limit = r.ID, &kept
	}
	return cleanup
}

// nextStep returns a path of the workflow itself that its code has not reached: after all
// steps that are recorded, announced or wait, and the one that may have been in flight.
func nextStep(r *Record) run.Path {
	next := 0
	see := func(p run.Path) {
		first, _, _ := strings.Cut(string(p), ".")
		if n, err := strconv.Atoi(first); err == nil {
			next = max(next, n+1)
		}
	}
	for p := range r.steps {
		see(p)
	}
	for p := range r.intents {
		see(p)
	}
	for p := range r.questions() {
		see(p)
	}
	if of := r.Task.Resumes; of != nil {
		first, _, _ := strings.Cut(string(of.Step), ".")
		n, _ := strconv.Atoi(first)
		next = max(next, n)
	}
	return run.Path("").Index(next + 1)
}

// placeInQueue returns the place of a task among the runs that wait for a session: a cleanup
// run is the first.
func placeInQueue(queue []run.ID, t *wireTask) int {
	if t.Resumes.Cleanup() {
		return 0
	}
	return len(queue)
}

// cleansBefore reports whether a cleanup run must end before a run may begin.
func (b *RunState) cleansBefore(id run.ID) bool {
	at := slices.IndexFunc(b.Queue, func(q run.ID) bool { return b.runs[q].Task.Resumes.Cleanup() })
	return at >= 0 && b.Queue[at] != id
}
