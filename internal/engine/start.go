package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// started is a run that the code has started. The execution's mu guards it.
type started struct {
	by  run.ID                 // the run whose step it is
	at  run.Path               // of the step that started it
	end *journal.StepCompleted // the record of its outcome, once a step has it
	of  map[*line]run.Path     // the steps that have it, by their lines
}

// Start is flow.Start.
func (p *waits) Start(ctx context.Context, t flow.Task) (run.ID, error) {
	task, digest, err := startTask(&p.spot, t)
	if err != nil {
		return "", fmt.Errorf("flow: start of workflow %q: %w", t.Workflow, err)
	}
	st, err := p.begin(ctx, journal.StepStart, t.Workflow, session.Session{}, false, "", digest)
	if err != nil {
		return "", err
	}
	defer st.end()
	ex, owner := st.ex, st.ex.levels.owner(st.asked.Path)
	err = st.make(func() error {
		v, err := st.record.Started()
		task.ID = v.Run
		return err
	}, func() (d journal.StepCompleted, err error) {
		task.StartedBy = ex.starter(owner, st.asked.Path)
		if task.ID == "" {
			task.ID = startedID(owner, st.asked.Path)
		}
		e, err := journal.NewEvent(journal.KindStart, journal.NewStart(owner.run, st.asked.Path, task))
		if err != nil {
			return d, err
		}
		st.content, d.Summary = []session.Event{e}, fmt.Sprintf("starts run %s of %s", task.ID, t.Workflow)
		d.Value, err = canonical.Marshal(journal.Started{Run: task.ID})
		return d, err
	})
	if err != nil {
		return "", err
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.started == nil {
		ex.started = map[run.ID]*started{}
	}
	ex.started[task.ID] = &started{by: owner.run, at: st.asked.Path, of: map[*line]run.Path{}}
	return task.ID, nil
}

// startTask returns the task of a run to start, without the parts that follow from the step,
// and its digest. It fails, without a step, where no run can start it.
func startTask(p *spot, t flow.Task) (task journal.Task, digest string, err error) {
	if p.in != nil {
		return task, "", nil // begin refuses it
	}
	ex := p.sc.ex
	task = journal.Task{
		ID: t.ID, Workflow: t.Workflow, Revision: t.Revision, Session: session.Key{Tenant: ex.home.Tenant, ID: session.ID(t.Session)},
		Input: t.Input, Model: t.Model, Tools: t.Tools, MCP: t.MCP, Budget: t.Budget, Deadline: journal.Moment(t.Deadline), NotBefore: journal.Moment(t.NotBefore), After: journal.Predecessors(t.After, t.AfterAny), OnFailure: t.OnFailure, Tags: t.Tags, Priority: t.Priority, Class: t.Class,
	}
	if t.ForkOf.ID != "" {
		if of := t.ForkOf.Tenant; of != "" && of != ex.home.Tenant {
			return task, "", fmt.Errorf("fork of %s: %w", t.ForkOf, session.ErrTenant)
		}
		task.ForkOf = new(t.ForkOf)
		task.ForkOf.Tenant = ex.home.Tenant
	}
	if len(t.Input) > 0 && !json.Valid(t.Input) {
		return task, "", fmt.Errorf("its input is not JSON: %w", run.ErrMalformed)
	}
	named := task
	if named.ID == "" {
		named.ID = "x"
	}
	if named.Session.ID == "" {
		named.Session.ID = "x"
	}
	if err := named.Valid(); err != nil {
		return task, "", err
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	owner := ex.levels.owner(p.sc.prefix.Index(p.sc.next))
	switch _, twice := ex.started[t.ID]; {
	case session.ID(t.Session) == owner.home.ID:
		return task, "", fmt.Errorf("it names session %s of the run that starts it, and would wait for that run to end: %w; set ForkOf instead", t.Session, run.ErrNotSupported)
	case twice || t.ID == owner.run:
		return task, "", fmt.Errorf("id %s: %w; choose another one", t.ID, run.ErrKeyReused)
	case len(ex.started) >= flow.MaxStarts:
		return task, "", fmt.Errorf("the run has started %d runs, the maximum: %w", flow.MaxStarts, run.ErrNotSupported)
	}
	if by := ex.starter(owner, ""); by.Depth() > run.MaxStarted {
		return task, "", tooDeep(by)
	}
	text, err := canonical.Marshal(journal.NewStart("", "", task))
	return task, text, err
}

// starter names a run as the starter of another one, by its step at a path.
func (ex *Execution) starter(owner level, at run.Path) *run.Starter {
	s := &run.Starter{Run: owner.run, Session: owner.home.ID, Step: at}
	if by := ex.around.outermost().StartedBy; by != nil {
		s.Above = append(slices.Clone(by.Above), by.Run)
	}
	return s
}

// tooDeep names the runs of a chain.
func tooDeep(by *run.Starter) error {
	var names []string
	for _, id := range append(slices.Clone(by.Above), by.Run) {
		names = append(names, string(id))
	}
	return fmt.Errorf("%w: %d runs start each other (%s), at most %d may; end the loop, or start them side by side",
		run.ErrTooDeep, len(names)+1, strings.Join(names, " -> "), run.MaxStarted+1)
}

// startedID returns the id of a run that a step starts without naming it.
func startedID(owner level, at run.Path) run.ID {
	sum := sha256.Sum256([]byte("start\x00" + owner.home.String() + "\x00" + string(owner.run) + "\x00" + string(at)))
	return run.ID(hex.EncodeToString(sum[:16]))
}

// awaitRun waits for the end of a started run, as Await does for other waits.
func awaitRun(ctx context.Context, p *spot, id run.ID, timeout time.Duration) (flow.RunEnd, error) {
	if p.in == nil {
		if end := p.sc.outcome(id); end != nil {
			return p.sc.ex.runEnd(*end)
		}
	}
	st, err := p.begin(ctx, journal.StepResult, string(id), session.Session{}, false, "")
	if err != nil {
		return flow.RunEnd{}, err
	}
	defer st.end()
	var record journal.StepCompleted
	err = st.make(func() error {
		record = st.record.StepCompleted
		return record.Code.Err(record.Error)
	}, func() (journal.StepCompleted, error) {
		record, err = st.result(id, timeout)
		return record, err
	})
	if err != nil {
		return flow.RunEnd{}, err
	}
	st.ex.mu.Lock()
	if one := st.ex.started[id]; one != nil {
		one.end, one.of[p.sc.line] = &record, st.asked.Path
	}
	st.ex.mu.Unlock()
	return st.ex.runEnd(record)
}

// outcome returns the record of the outcome of a started run, if an earlier step has it in
// each execution; else nil.
func (sc *scope) outcome(id run.ID) *journal.StepCompleted {
	ex := sc.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if one := ex.started[id]; one != nil {
		for l := range ex.lines.around(sc.line) {
			if _, has := one.of[l]; has {
				return one.end
			}
		}
	}
	return nil
}

// startedRun returns the record of the outcome of a started run that a step of any line
// has, nil without one. It fails if the step's run does not get the outcome.
func startedRun(st *step, id run.ID) (*journal.StepCompleted, error) {
	ex, owner := st.ex, st.ex.levels.owner(st.asked.Path)
	ex.mu.Lock()
	defer ex.mu.Unlock()
	one := ex.started[id]
	switch {
	case one != nil && one.end != nil:
		return one.end, nil
	case one == nil:
		return nil, came(fmt.Errorf("flow: run %s did not start run %s, or an ended iteration of a loop did: %w; get the outcome in that iteration, or read the other run's session with ReadSession", owner.run, id, run.ErrNotSupported))
	case one.by != owner.run:
		return nil, came(fmt.Errorf("flow: run %s started run %s, and gets its outcome, not run %s: %w; read the other run's session with ReadSession", one.by, id, owner.run, run.ErrNotSupported))
	}
	return ex.pos.journal.Outcome(id), nil
}

// result returns the record of the outcome of a started run, or waits for it.
func (st *step) result(id run.ID, timeout time.Duration) (d journal.StepCompleted, err error) {
	ex := st.ex
	if end, err := startedRun(st, id); err != nil || end != nil {
		if end != nil {
			d.Summary, d.Value = end.Summary, end.Value
		}
		return d, err
	}
	w := journal.Wait{Kind: run.WaitRun, Name: string(id), Path: st.asked.Path}
	inbox, err := ex.signals.wait(st.ctx, []journal.Wait{w}, timeout, false)
	if err != nil {
		return d, err
	}
	for _, v := range inbox {
		if v.Kind == journal.Outcome && v.Ended.Run == id {
			d.Summary = excerpt.Clip(fmt.Sprintf("run %s %s", id, v.Ended.State.Past()), 200)
			d.Value, err = canonical.Marshal(v.Ended)
			return d, err
		}
	}
	d.Code, d.Summary = run.CodeExpired, "the time is up"
	d.Error = fmt.Sprintf("flow: run %s did not end in %s", id, max(timeout, 0))
	return d, nil
}

// runEnd decodes the record of the outcome of a started run.
func (ex *Execution) runEnd(d journal.StepCompleted) (end flow.RunEnd, err error) {
	var v journal.RunEnd
	if err := json.Unmarshal([]byte(d.Value), &v); err != nil {
		return end, fmt.Errorf("%w: step %s recorded no outcome of a run: %w", run.ErrMismatch, d.Path, err)
	}
	end = flow.RunEnd{Run: v.Run, State: v.State, Output: v.Output, Code: v.Code, Steps: v.Steps, Usage: v.Usage}
	if v.Session != "" {
		end.Session = session.Ref{Key: session.Key{Tenant: ex.home.Tenant, ID: v.Session}, Version: v.Version}
	}
	if v.State != run.Succeeded {
		end.Err = ofOtherRun(v)
	}
	return end, nil
}

// ofOtherRun returns the error of a started run. It is not an error that run.IsControl
// reports: this run need not stop.
func ofOtherRun(v journal.RunEnd) error {
	text := fmt.Sprintf("run %s %s: %s", v.Run, v.State.Past(), v.Error)
	if err := v.Code.Err(text); err != nil && !run.IsControl(err) {
		return err
	}
	return errors.New(text)
}
