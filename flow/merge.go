package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Policy decides what a [Merge] takes of the outcomes of a fan-out.
type Policy interface {
	// Decide may run steps on the way, such as a model call. It must not
	// change j.
	Decide(ctx context.Context, j *Joined) (Verdict, error)
}

// Verdict is what a merge does.
type Verdict struct {
	// Take are the indexes of the outcomes whose chunks go into the base, in
	// this order; all others are rejected. The files are those of the first.
	Take []int
	// Adopt says that the one outcome in Take becomes the base's next version,
	// as [Adopt] does.
	Adopt bool
	// Text, if set, goes into the base instead of the chunks: what somebody
	// made of them.
	Text string
	// Reasons say why, by outcome; they may be short of the outcomes.
	Reasons []string
}

// SinceAncestor takes what every branch that succeeded added, one branch after
// the other.
func SinceAncestor() Policy { return sinceAncestor{} }

type sinceAncestor struct{}

func (sinceAncestor) Decide(_ context.Context, j *Joined) (Verdict, error) {
	return Verdict{Take: j.Succeeded()}, nil
}

// Pick takes the outcome at an index; -1 is the first that succeeded.
func Pick(i int) Policy { return pick(i) }

type pick int

func (p pick) Decide(_ context.Context, j *Joined) (Verdict, error) {
	i := int(p)
	if all := j.Succeeded(); i == -1 && len(all) > 0 {
		i = all[0]
	}
	if i < 0 || i >= len(j.Outcomes) {
		return Verdict{}, fmt.Errorf("flow: pick of outcome %d of %d: %w", i, len(j.Outcomes), ErrNoOutcome)
	}
	return Verdict{Take: []int{i}, Adopt: true}, nil
}

// ErrNoOutcome is returned by a merge of a fan-out whose branches all failed.
var ErrNoOutcome = errors.New("flow: no branch succeeded")

// Judge chooses the best of the outcomes that succeeded: it returns the index
// in j.Outcomes and, by outcome, its reasons.
type Judge func(ctx context.Context, j *Joined) (best int, reasons []string, err error)

// PickBest takes what a judge chooses.
func PickBest(judge Judge) Policy { return pickBest{judge} }

type pickBest struct{ judge Judge }

func (p pickBest) Decide(ctx context.Context, j *Joined) (Verdict, error) {
	all := j.Succeeded()
	if len(all) == 0 {
		return Verdict{}, ErrNoOutcome
	}
	best, reasons, err := p.judge(ctx, j)
	if err != nil {
		return Verdict{}, err
	}
	if !slices.Contains(all, best) {
		return Verdict{}, fmt.Errorf("flow: the judge chose outcome %d, which did not succeed", best)
	}
	return Verdict{Take: []int{best}, Adopt: true, Reasons: reasons}, nil
}

// AgentJudge lets an agent choose. It is asked on a fork of the base, so that
// its deliberation does not become part of the session; the first integer of
// its answer names the outcome, the rest is the reason.
func AgentJudge(a *Agent) Judge {
	return func(ctx context.Context, j *Joined) (int, []string, error) {
		s, err := Fork(ctx, j.Base)
		if err != nil {
			return 0, nil, err
		}
		out, err := a.Forward(ctx, s.With(session.UserText(menu(j))))
		if err != nil {
			return 0, nil, scrap(ctx, err, s)
		}
		best, answer := -1, out.Text()
		if m := firstInteger.FindString(answer); m != "" {
			if n, err := strconv.Atoi(m); err == nil {
				best = n
			}
		}
		if err := Reject(ctx, out, "it only judged"); err != nil {
			return 0, nil, err
		}
		reasons := make([]string, len(j.Outcomes))
		for i := range reasons {
			reasons[i] = clip(firstLine(answer), 200)
		}
		return best, reasons, nil
	}
}

func menu(j *Joined) string {
	var b strings.Builder
	b.WriteString("These are the results of branches that worked on the same task. Answer with the number of the best one, then why in one line.")
	for _, i := range j.Succeeded() {
		fmt.Fprintf(&b, "\n\n%d. %s:\n%s", i, j.Outcomes[i].Name, clip(j.Outcomes[i].Session.Text(), 8<<10))
	}
	return b.String()
}

// scrap disposes of the fork on which a policy failed to decide, and returns why
// it did: the author may go on with another policy.
func scrap(ctx context.Context, why error, s session.Session) error {
	if run.IsControl(why) {
		return why // no step follows
	}
	if err := Reject(ctx, s, "nothing was decided on it"); err != nil {
		return err
	}
	return why
}

// Summarise puts a summary of the branches that succeeded into the base
// instead of all that they said. The compressor's prompt and provider make it,
// on a fork of the base that is rejected afterwards.
func Summarise(c *Compressor) Policy { return summarise{c} }

type summarise struct{ c *Compressor }

func (p summarise) Decide(ctx context.Context, j *Joined) (Verdict, error) {
	all := j.Succeeded()
	if len(all) == 0 {
		return Verdict{}, ErrNoOutcome
	}
	s, err := Fork(ctx, j.Base)
	if err != nil {
		return Verdict{}, err
	}
	for _, i := range all {
		s = s.With(session.UserText(fmt.Sprintf("Result of branch %s:\n%s", j.Outcomes[i].Name, j.Outcomes[i].Session.Text())))
	}
	short, err := p.c.Forward(ctx, s)
	if err != nil {
		return Verdict{}, scrap(ctx, err, s)
	}
	text := ""
	for _, c := range short.Chunks() {
		text = c.Text()
	}
	for _, made := range []session.Session{short, s} {
		if err := Reject(ctx, made, "it only summarised"); err != nil {
			return Verdict{}, err
		}
	}
	return Verdict{Take: all, Text: text}, nil
}

// Merge brings the outcomes of a fan-out into its base and returns the base's
// next version. Every branch is disposed of: taken, or rejected with a reason.
// It fails with [ErrNoOutcome] when the policy takes none.
func Merge(ctx context.Context, j *Joined, p Policy) (session.Session, error) {
	v, err := p.Decide(ctx, j)
	if err != nil {
		return j.Base, err
	}
	return j.merge(ctx, v)
}

// policy names what a verdict does, as the join records it.
func (v Verdict) policy() string {
	switch {
	case v.Adopt:
		return session.JoinAdopt
	case v.Text != "":
		return session.JoinSummarise
	}
	return session.JoinSinceAncestor
}

func (v Verdict) reason(i int, otherwise string) string {
	if i < len(v.Reasons) && v.Reasons[i] != "" {
		return clip(v.Reasons[i], 1<<10)
	}
	return otherwise
}

func (v Verdict) check(j *Joined) error {
	switch {
	case len(v.Take) == 0:
		return ErrNoOutcome
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

func (j *Joined) merge(ctx context.Context, v Verdict) (session.Session, error) {
	if err := v.check(j); err != nil {
		return j.Base, err
	}
	args := []string{string(j.path), v.Text}
	for _, i := range v.Take {
		args = append(args, j.Outcomes[i].Session.Ref().String())
	}
	st, err := begin(ctx, run.StepJoin, v.policy(), j.Base, true, "", args...)
	if err != nil {
		return j.Base, err
	}
	defer st.end()
	ex := st.ex
	if st.decision == run.Replay {
		j.settled()
		return st.record.Session, st.record.Code.Err(st.record.Error)
	}
	for _, f := range j.of {
		if f.disposed && f.link.Seq != 0 {
			return j.Base, st.fail(fmt.Errorf("flow: the fan-out at step %s was merged before: merge it once", j.path))
		}
	}
	var taken []session.Session
	for _, i := range v.Take {
		if err := st.mayTake(j.Outcomes[i].Name, j.Outcomes[i].Session.Key()); err != nil {
			return j.Base, st.fail(err)
		}
		taken = append(taken, j.Outcomes[i].Session)
	}
	reason := v.reason(v.Take[0], "taken")
	join, err := session.JoinOf(st.s, v.policy(), reason, 0, taken...)
	if err != nil {
		return j.Base, st.fail(err)
	}
	var links []session.Link
	for i := range join.Parents {
		if v.Text != "" {
			join.Parents[i].From = join.Parents[i].To // a reference, and no chunk
		}
		links = append(links, join.Parents[i].Link)
	}
	content := []session.Event{session.JoinedEvent(join)}
	if v.Text != "" {
		o := session.Origin{Workflow: ex.reg.Name, Node: ex.rt.Node, Run: string(ex.id), Step: string(st.asked.Path)}
		content = append(content, session.ChunkEvent(session.UserText(v.Text).Of(o)))
	}
	rejected, disposed, err := j.disposals(ex.id, v)
	if err != nil {
		return j.Base, st.fail(err)
	}
	content = append(append(content, rejected...), disposed)
	ack, err := st.commit(run.StepCompleted{Links: links, Summary: clip(fmt.Sprintf("%s %s", v.policy(), j.names(v.Take)), 200)}, content...)
	if err != nil {
		return j.Base, err
	}
	j.settled()
	if st.log != ex.home {
		// The home log decides which branches are still open.
		if _, err := ex.commit(ctx, ex.home, session.Session{}, "", nil, disposed); err != nil {
			return j.Base, err
		}
	}
	return ack.Session, nil
}

// mayTake fails for a session that was set apart: it goes into no other one, and
// the run waits for a person. branch is its name in a fan-out, "" for another.
func (st *step) mayTake(branch string, k session.Key) error {
	what := "session " + string(k.ID)
	if branch != "" {
		what = fmt.Sprintf("branch %s (%s)", branch, what)
	}
	q, err := st.ex.rt.Values.Quarantined(st.ctx, k)
	switch {
	case err != nil:
		return fmt.Errorf("flow: %s: %w: %w", what, session.ErrUnavailable, err)
	case q == nil:
		return nil
	}
	return &reviewError{run.Review{
		Attempt: st.ex.attempt, Code: run.CodeQuarantined, Name: branch, Path: st.asked.Path, Run: st.ex.id,
		Reason: fmt.Sprintf("%s is quarantined: %s; release it and resolve with %q", what, q.Reason, run.Again),
	}}
}

func (j *Joined) names(at []int) string {
	var names []string
	for _, i := range at {
		names = append(names, j.Outcomes[i].Name)
	}
	return strings.Join(names, ", ")
}

// settled notes that every branch was disposed of.
func (j *Joined) settled() {
	for _, f := range j.of {
		f.disposed = true
	}
}

// disposals are the events that say how each branch ended for the base.
func (j *Joined) disposals(id run.ID, v Verdict) (rejected []session.Event, disposed session.Event, err error) {
	d := run.BranchOutcomes{Run: id}
	for i, o := range j.Outcomes {
		f := j.of[o.Name]
		switch {
		case f.link.Seq == 0:
			continue // it never began, or was cancelled when the others were gathered
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
				why += ": " + clip(o.Err.Error(), 512)
			}
		}
		rejected = append(rejected, session.RejectedEvent(session.Rejection{Branch: f.link, Reason: why, State: state}))
		d.Branches = append(d.Branches, run.BranchOutcome{Session: f.key.ID, State: state, Reason: why})
	}
	disposed, err = run.NewEvent(run.KindDisposed, d)
	return rejected, disposed, err
}

// closeFanned disposes of branches that the workflow gathered and never merged,
// in one step. Those that did not succeed are no loss: they ended as what they
// are.
func (ex *Execution) closeFanned(ctx context.Context, state, reason string) error {
	var open []*fanned
	for _, f := range ex.sessions.fanned {
		if !f.disposed {
			open, f.disposed = append(open, f), true
		}
	}
	if len(open) == 0 {
		return nil
	}
	// After a crash the run may end for another reason: what was recorded stays.
	st := &step{ex: ex, ctx: ctx, log: ex.home}
	st.asked = run.StepRequest{Path: "end.branches", Kind: run.StepReject, Name: "branches", Input: inputDigest(session.Session{}, nil)}
	if err := st.decide(); err != nil || st.decision == run.Replay {
		return err
	}
	d := run.BranchOutcomes{Run: ex.id}
	var links []session.Link
	var events []session.Event
	for _, f := range open {
		state, reason := state, clip(reason, 1<<10)
		switch {
		case state == session.ClosedRejected && f.state != run.Succeeded:
			state, reason = session.ClosedFailed, string(f.state)
		case state == session.ClosedRejected:
			ex.warn(ctx, fmt.Sprintf("branch %s (%s) was not merged: use flow.Merge, or the branch is lost", f.name, f.key.ID))
		}
		links = append(links, f.link)
		events = append(events, session.RejectedEvent(session.Rejection{Branch: f.link, Reason: reason, State: state}))
		d.Branches = append(d.Branches, run.BranchOutcome{Session: f.key.ID, State: state, Reason: reason})
	}
	disposed, err := run.NewEvent(run.KindDisposed, d)
	if err != nil {
		return err
	}
	_, err = st.commit(run.StepCompleted{Links: links, Summary: fmt.Sprintf("closes %s", count(len(open), "branch"))}, append(events, disposed)...)
	return err
}
