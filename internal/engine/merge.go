package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// joined is a fan-out being merged.
type joined struct {
	*flow.Joined
	*fanOutState
}

// verdict describes a merge.
type verdict flow.Verdict

// policy returns the name of a verdict's policy for the record of the join.
func (v verdict) policy() string {
	switch {
	case v.Adopt:
		return session.JoinAdopt
	case v.Text != "":
		return session.JoinSummarise
	}
	return session.JoinSinceAncestor
}

func (v verdict) reason(i int, otherwise string) string {
	if i < len(v.Reasons) && v.Reasons[i] != "" {
		return excerpt.Clip(v.Reasons[i], 1<<10)
	}
	return otherwise
}

func (v verdict) check(j *flow.Joined) error {
	switch {
	case len(v.Take) == 0:
		return flow.ErrNoOutcome
	case v.Adopt && len(v.Take) != 1:
		return fmt.Errorf("flow: a merge adopts one outcome, not %d", len(v.Take))
	}
	seen := map[int]bool{}
	for _, i := range v.Take {
		switch {
		case i < 0 || i >= len(j.Outcomes):
			return fmt.Errorf("flow: a merge takes outcome %d of %d", i, len(j.Outcomes))
		case seen[i]:
			return fmt.Errorf("flow: a merge takes branch %s twice", j.Outcomes[i].Name)
		case j.Outcomes[i].State != run.Succeeded:
			return fmt.Errorf("flow: a merge takes branch %s, which %s", j.Outcomes[i].Name, j.Outcomes[i].State.Past())
		}
		seen[i] = true
	}
	return nil
}

// Merge is flow.Merge.
func (p *place) Merge(ctx context.Context, all *flow.Joined, of any, decided flow.Verdict) (session.Session, error) {
	v := verdict(decided)
	if err := v.check(all); err != nil {
		return all.Base, err
	}
	in, ok := of.(*fanOutState)
	if !ok {
		return all.Base, errors.New("flow: a merge of what FanOut did not return")
	}
	j := joined{all, in}
	args := []string{string(j.path), v.Text}
	for _, i := range v.Take {
		args = append(args, j.Outcomes[i].Session.Ref().String())
	}
	if v.mergesFiles() && !j.files.Head.IsZero() {
		args = append(args, j.files.Head.String())
	}
	st, err := p.begin(ctx, journal.StepJoin, v.policy(), j.Base, true, "", args...)
	if err != nil {
		return j.Base, err
	}
	defer st.end()
	ex := st.ex
	ex.mu.Lock()
	at := ex.loops.around(st.asked.Path)
	ex.mu.Unlock()
	if at != "" && !j.path.Within(at) {
		return j.Base, fmt.Errorf("flow: iteration %s of a loop merges the fan-out at step %s, which is not in it: %w; merge it before the loop", at, j.path, run.ErrNotSupported)
	}
	if err := st.make(nil, func() (journal.StepCompleted, error) { return j.merge(st, v) }); err != nil {
		return j.Base, err
	}
	j.markDisposed()
	if st.log != ex.home && (st.decision != journal.Replay || ex.pos.recorder == nil && j.openIn(ex.granted.Record)) {
		err = st.tellHome(j, v)
	}
	return st.after, err
}

// merge returns the record of a merge, with the join and the outcome of each branch.
func (j joined) merge(st *step, v verdict) (d journal.StepCompleted, err error) {
	ex := st.ex
	for _, f := range j.of {
		if f.disposed && f.link.Seq != 0 {
			return d, fmt.Errorf("flow: the fan-out at step %s was merged before: merge it once", j.path)
		}
	}
	var taken []session.Session
	for _, i := range v.Take {
		if err := st.mayTake(j.Outcomes[i].Name, j.Outcomes[i].Session.Key()); err != nil {
			return d, err
		}
		taken = append(taken, j.Outcomes[i].Session)
	}
	reason := v.reason(v.Take[0], "taken")
	join, err := session.JoinOf(st.s, v.policy(), reason, 0, taken...)
	if err != nil {
		return d, err
	}
	if v.mergesFiles() {
		join.Placement = j.files.Placement(j.Base, taken)
	}
	for i := range join.Parents {
		if v.Text != "" {
			join.Parents[i].From = join.Parents[i].To // a reference without a chunk
		}
		d.Links = append(d.Links, join.Parents[i].Link)
	}
	content := []session.Event{session.JoinedEvent(join)}
	if v.Text != "" {
		o := session.Origin{Workflow: ex.reg.Name, Node: ex.rt.Node, Run: string(ex.id), Step: string(st.asked.Path)}
		content = append(content, session.ChunkEvent(session.UserText(v.Text).Of(o)))
	}
	rejected, disposed, err := j.disposals(ex.id, v)
	st.content = append(append(content, rejected...), disposed)
	d.Summary = excerpt.Clip(fmt.Sprintf("%s %s", v.policy(), j.names(v.Take)), 200)
	return d, err
}

// tellHome commits the outcomes of branches to the home log as well, if the step recorded
// them in the log of another session: the home log decides which branches the end of the
// run closes. After a crash between the two commits the replayed step repeats it.
func (st *step) tellHome(j joined, v verdict) error {
	_, disposed, err := j.disposals(st.ex.id, v)
	if err == nil {
		_, err = st.ex.log.commit(st.ctx, st.ex.home, session.Session{}, "", nil, disposed)
	}
	return err
}

// openIn reports whether the record of the run counts one of the branches as open.
func (j joined) openIn(r *journal.Record) bool {
	return slices.ContainsFunc(r.OpenBranches(), func(id session.ID) bool {
		return slices.ContainsFunc(j.Outcomes, func(o flow.Outcome) bool { return j.of[o.Name].key.ID == id })
	})
}

func (j joined) names(at []int) string {
	var names []string
	for _, i := range at {
		names = append(names, j.Outcomes[i].Name)
	}
	return strings.Join(names, ", ")
}

// markDisposed marks every branch as disposed of.
func (j joined) markDisposed() {
	for _, f := range j.of {
		f.disposed = true
	}
}

// disposals returns the events with the outcome of each branch for the base.
func (j joined) disposals(id run.ID, v verdict) (rejected []session.Event, disposed session.Event, err error) {
	d := journal.BranchOutcomes{Run: id}
	for i, o := range j.Outcomes {
		f := j.of[o.Name]
		switch {
		case f.link.Seq == 0 || f.standing:
			continue // it never began, was cancelled when the others were gathered, or stands
		case slices.Contains(v.Take, i):
			state := session.ClosedMerged
			if v.Adopt {
				state = session.ClosedAdopted
			}
			d.Branches = append(d.Branches, run.BranchOutcome{Session: f.key.ID, State: state, Reason: v.reason(i, "")})
			continue
		}
		state, why := session.ClosedRejected, v.reason(i, "not taken")
		if o.State != run.Succeeded {
			state, why = session.ClosedFailed, string(o.State)
			if o.Err != nil {
				why += ": " + excerpt.Clip(o.Err.Error(), 512)
			}
		}
		rejected = append(rejected, commitlog.RejectedEvent(commitlog.Rejection{Branch: f.link, Reason: why, State: state}))
		d.Branches = append(d.Branches, run.BranchOutcome{Session: f.key.ID, State: state, Reason: why})
	}
	disposed, err = journal.NewEvent(journal.KindBranchOutcomes, d)
	return rejected, disposed, err
}

// closeFanOuts disposes of branches that an iteration, or with "" the workflow, gathered and
// never merged, in one step. Branches that did not succeed keep their state, because no work is lost.
func (end *ending) closeFanOuts(ctx context.Context, of run.Path, state, reason string) error {
	var open []*fanOutBranch
	end.ex.mu.Lock()
	for _, f := range end.ex.sessions.fanOut {
		if !f.disposed && (of == "" || f.at.Within(of)) {
			open, f.disposed = append(open, f), true
		}
	}
	end.ex.mu.Unlock()
	if len(open) == 0 {
		return nil
	}
	// After a crash the run may end for another reason: the recorded one stays.
	st, err := end.ex.substep(ctx, end.ex.home, session.Session{}, journal.StepRequest{
		Path: of.Child("end.branches"), Kind: journal.StepReject, Name: "branches", Input: end.ex.sessions.inputDigest(session.Session{}, nil),
	})
	if err != nil {
		return err
	}
	return st.make(nil, func() (journal.StepCompleted, error) { return end.rejectAll(st, open, state, reason) })
}

// rejectAll returns the record of branches that were not merged.
func (end *ending) rejectAll(st *step, open []*fanOutBranch, state, reason string) (d journal.StepCompleted, err error) {
	all := journal.BranchOutcomes{Run: end.ex.id}
	for _, f := range open {
		state, reason := state, excerpt.Clip(reason, 1<<10)
		switch {
		case state == session.ClosedRejected && f.state != run.Succeeded:
			state, reason = session.ClosedFailed, string(f.state)
		case state == session.ClosedRejected:
			end.ex.log.warn(st.ctx, fmt.Sprintf("branch %s (%s) was not merged: use flow.Merge, or the branch is lost", f.name, f.key.ID))
		}
		d.Links = append(d.Links, f.link)
		st.content = append(st.content, commitlog.RejectedEvent(commitlog.Rejection{Branch: f.link, Reason: reason, State: state}))
		all.Branches = append(all.Branches, run.BranchOutcome{Session: f.key.ID, State: state, Reason: reason})
	}
	disposed, err := journal.NewEvent(journal.KindBranchOutcomes, all)
	st.content = append(st.content, disposed)
	d.Summary = fmt.Sprintf("closes %s", excerpt.Counted(len(open), "branch"))
	return d, err
}
