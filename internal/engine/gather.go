package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/filemerge"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// fanOutState is the state of a fan-out for a merge that is hidden from its author.
type fanOutState struct {
	path run.Path
	of   map[string]*fanOutBranch // by the branches' names
	// The result of MergeFiles, and the conflicts that it has asked about.
	files filemerge.Result
	asked []manifest.Conflict
}

// gather collects the outcomes of the branches, or waits for them.
func (f *fan) gather() (j flow.Joined, of any, err error) {
	ex := f.ex
	st, err := ex.substep(f.ctx, f.log, session.Session{}, journal.StepRequest{
		Path: journal.GatherPath(f.path), Kind: journal.StepGather, Name: f.name, Input: ex.sessions.inputDigest(session.Session{}, []string{f.name}),
	})
	if err != nil {
		return j, nil, err
	}
	st.began = time.Now()
	var all []journal.GatheredBranch
	ended := map[session.ID]*journal.BranchEnd{}
	err = st.make(func() error {
		f.used = st.record.Usage
		if all, err = st.record.Gathered(); err != nil || len(all) != len(f.bs) {
			return fmt.Errorf("%w: the branches gathered at step %s are not those of the code", run.ErrMismatch, st.asked.Path)
		}
		return nil
	}, func() (d journal.StepCompleted, err error) {
		inbox, err := ex.signals.wait(f.ctx, []journal.Wait{f.wait()}, 0, false)
		if err != nil {
			return d, err
		}
		all, d, err = f.record(st, inbox, ended)
		return d, err
	})
	if err != nil {
		return j, nil, err
	}
	if st.decision != journal.Replay {
		f.gathered = true
		ex.mu.Lock()
		ex.account.gather(st.asked.Path, slices.Collect(maps.Keys(ended)), ex.inbox.signals)
		ex.inbox.take(0, st.asked.Path)
		ex.mu.Unlock()
	}
	return f.joined(all)
}

// record returns the outcomes of the branches, and their record; branches that have not
// ended are cancelled. It adds the ended ones to ended.
func (f *fan) record(st *step, inbox []journal.SignalReceived, ended map[session.ID]*journal.BranchEnd) (all []journal.GatheredBranch, d journal.StepCompleted, err error) {
	why := "the join was decided without it"
	for _, v := range inbox {
		switch {
		case v.Path != st.asked.Path:
		case v.Kind == journal.Report:
			ended[v.Branch.Link.ID] = v.Branch
		case v.Kind == journal.Timer:
			why = "the deadline of the fan-out passed"
		}
	}
	all = make([]journal.GatheredBranch, len(f.bs))
	var lost []run.BranchOutcome
	succeeded := 0
	for i, b := range f.bs {
		g := journal.GatheredBranch{Name: b.Name, Session: f.ids[i], State: run.Cancelled, Code: run.CodeCancelled, Error: why}
		if one := f.standing(i); one != nil {
			g, succeeded = *one, succeeded+1
		} else if e := ended[f.ids[i]]; e != nil {
			g.Code, g.Error, g.Link, g.State = e.Code, excerpt.Clip(e.Error, 1<<10), e.Link, e.State
			d.Usage, d.Steps = d.Usage.Add(e.Usage), d.Steps+e.Steps
			if e.State == run.Succeeded {
				succeeded++
			}
		} else {
			lost = append(lost, run.BranchOutcome{Session: f.ids[i], State: session.ClosedCancelled, Reason: g.Error})
		}
		all[i] = g
	}
	if len(lost) > 0 {
		e, err := journal.NewEvent(journal.KindBranchOutcomes, journal.BranchOutcomes{Branches: lost, Run: f.ex.id})
		if err != nil {
			return nil, d, err
		}
		st.content = []session.Event{e}
	}
	f.used = d.Usage
	d.Summary = fmt.Sprintf("%d of %s succeeded", succeeded, excerpt.Counted(len(f.bs), "branch"))
	d.Value, err = canonical.Marshal(all)
	return all, d, err
}

// joined rebuilds the result of FanOut.
func (f *fan) joined(all []journal.GatheredBranch) (j flow.Joined, of any, err error) {
	values, err := f.values(all)
	if err != nil {
		return j, nil, err
	}
	in := &fanOutState{path: f.path, of: make(map[string]*fanOutBranch, len(all))}
	j.Base = f.base
	for i, g := range all {
		o := flow.Outcome{Name: g.Name, Session: values[i], State: g.State, Err: g.Code.Err(g.Error)}
		one := &fanOutBranch{key: session.Key{Tenant: f.ex.home.Tenant, ID: g.Session}, name: g.Name, link: g.Link, state: g.State, at: f.path, disposed: g.Link.Seq == 0 || f.calls != nil, standing: f.standing(i) != nil}
		j.Outcomes, in.of[g.Name] = append(j.Outcomes, o), one
		if !f.ex.levels.outer(f.path) && !one.standing {
			f.ex.mu.Lock()
			f.ex.sessions.fanOut = append(f.ex.sessions.fanOut, one)
			f.ex.mu.Unlock()
		}
	}
	return j, in, nil
}

// valuesAtOnce bounds the sessions of branches that are read concurrently.
const valuesAtOnce = 16

// values reads the sessions of branches, unborn for those that never began. Sessions of
// other nodes are read from the log, concurrently.
func (f *fan) values(all []journal.GatheredBranch) ([]session.Session, error) {
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	out := make([]session.Session, len(all))
	slots := make(chan struct{}, valuesAtOnce)
	var reads sync.WaitGroup
	for i, g := range all {
		if g.Link.Seq == 0 {
			continue
		}
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		reads.Go(func() {
			defer func() { <-slots }()
			var err error
			if out[i], err = f.ex.rt.Values.Link(ctx, g.Link); err != nil {
				cancel(fmt.Errorf("branch %s: %w", g.Name, err))
			}
		})
	}
	reads.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("flow: read how the fan-out at step %s ended: %w: %w", f.path, session.ErrUnavailable, err)
	}
	return out, nil
}
