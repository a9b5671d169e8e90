package journaltest

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// verbs are the commands of a transcript's node. A verb's output is shown after the
// commits that it made.
var verbs = map[string]func(*stage, *command, io.Writer) error{
	"submit": (*stage).submit, "claim": (*stage).claim, "asks": (*stage).asks, "carry": (*stage).carry,
	"step": (*stage).step, "record": (*stage).record, "end": (*stage).end,
	"fork": (*stage).fork, "open": (*stage).openBranch, "join": (*stage).join, "reject-branch": (*stage).rejectBranch,
	"fanout": (*stage).fanout, "gather": (*stage).gather, "outcome": (*stage).outcome,
	"cancel": (*stage).cancel, "resolve": (*stage).resolve, "say": (*stage).say, "answer": (*stage).answer,
	"tick": (*stage).tick, "quarantine": (*stage).quarantine, "rebudget": (*stage).rebudget, "archive": (*stage).archive, "restore": (*stage).restore,
	"signal": (*stage).signal, "late": (*stage).late, "close": (*stage).closeBranch,
}

// submit RUN [in=SESSION] [enqueue] [cancel=REASON] [fork_of=SESSION] [after=RUN,…]
// [after_any=RUN,…] [field=value of the task] …
func (s *stage) submit(c *command, out io.Writer) error {
	id := c.run()
	s.homes[id] = session.ID(c.take("in", "home"))
	k := s.home(id)
	task := &journal.Task{ID: id, Workflow: "work", Session: k}
	claim := journal.Claim{
		Session: k, Home: k, Run: id, Task: task, Enqueue: c.has("enqueue"), Revision: c.take("offers", ""),
		Open: session.Opening{Kind: session.OpenLeaf}, Events: []session.Event{session.ChunkEvent(session.UserText("hello"))},
	}
	if reason := c.take("cancel", ""); reason != "" {
		claim.Cancel = &journal.CancelRequested{Reason: reason, Run: id}
	}
	if of := c.take("fork_of", ""); of != "" {
		task.ForkOf = &session.Ref{Key: s.key(session.ID(of))}
	}
	task.After = append(predecessors(s, c.take("after", ""), false), predecessors(s, c.take("after_any", ""), true)...)
	s.fill(task, c.named)
	return s.claims(c, claim, out)
}

// predecessors are the named runs with their homes.
func predecessors(s *stage, names string, anyEnd bool) (all []journal.Predecessor) {
	for name := range strings.SplitSeq(names, ",") {
		if id := run.ID(name); id != "" {
			all = append(all, journal.Predecessor{Any: anyEnd, Run: id, Session: s.home(id).ID})
		}
	}
	return all
}

// claim RUN [in=SESSION] [offers=REVISION] [seen=ATTEMPT] [group=SUSPECTS] [death=WORDS]
func (s *stage) claim(c *command, out io.Writer) error {
	k := s.in(c)
	claim := journal.Claim{Session: k, Home: k, Run: c.run(), Revision: c.take("offers", "")}
	if seen := c.take("seen", ""); seen != "" {
		claim.Seen = &journal.Seen{Attempt: s.number(seen)}
	}
	claim.Group, claim.Death = int(s.number(c.take("group", "0"))), c.take("death", "")
	return s.claims(c, claim, out)
}

func (s *stage) claims(c *command, claim journal.Claim, out io.Writer) error {
	g, err := c.store.Claim(s.Context(), claim)
	if err != nil {
		return err
	}
	s.keep(c.node, g.Session)
	if claim.Session == claim.Home {
		s.grants[c.node+"/"+string(claim.Run)] = g
	} else {
		s.grant(c.node, claim.Run).Journal.Merge(g.Journal)
	}
	if g.State == run.Running {
		s.made(g.Session)
	}
	_, err = io.WriteString(out, claimText(g))
	return err
}

// asks RUN PATH KIND NAME [field=value of the request]: the journal's decision about a
// step.
func (s *stage) asks(c *command, out io.Writer) error {
	j := s.grant(c.node, c.run()).Journal
	a := journal.StepRequest{Path: run.Path(c.arg(1)), Kind: c.arg(2), Name: c.arg(3), Input: "in"}
	s.fill(&a, c.named)
	d, _, err := j.Next(a)
	names := map[journal.Decision]string{
		journal.Execute: "execute", journal.Replay: "replay", journal.Repeat: "repeat", journal.RestoreThenRepeat: "restore the files, then repeat",
		journal.Ambiguous: "ambiguous: a person decides", journal.Mismatch: "mismatch",
	}
	fmt.Fprint(out, names[d])
	if step := j.Step(a.Path); d == journal.Replay {
		fmt.Fprintf(out, " of attempt %d, which says %s", step.Attempt, says(step.Session))
	}
	if r, ok := j.Resolution(a.Path); ok {
		fmt.Fprintf(out, "; %s said %s", r.By, r.Decision)
	}
	fmt.Fprintln(out)
	return err
}

// commit commits a batch at the newest version that the node has seen, unless base and
// attempt are given.
func (s *stage) commit(c *command, k session.Key, p run.Path, out io.Writer, words ...string) error {
	v := s.value(c.node, k)
	b := journal.Batch{Session: k, Run: c.run(), Path: p, Base: v.Ref().Version, Attempt: 1}
	if g := s.grants[c.node+"/"+string(b.Run)]; g != nil {
		b.Attempt = g.Attempt
	}
	if at := c.take("attempt", ""); at != "" {
		b.Attempt = s.number(at)
	}
	if at := c.take("base", ""); at != "" {
		b.Base = session.Version(s.number(at))
	}
	b.Events = s.events(b, words)
	return s.submitBatch(c, b, out)
}

func (s *stage) submitBatch(c *command, b journal.Batch, out io.Writer) error {
	before, _ := s.log.Last(s.Context(), b.Session)
	a, err := c.store.Commit(s.Context(), b)
	if err != nil {
		return err
	}
	switch {
	case a.Recorded != nil:
		fmt.Fprintf(out, "recorded before, by attempt %d, which says %s\n", a.Recorded.Attempt, says(a.Recorded.Session))
		return nil
	case a.At.Seq > before.At.Seq:
		s.made(a.Session)
	}
	s.keep(c.node, a.Session)
	if a.State != run.Running {
		fmt.Fprintln(out, a.State)
	}
	for _, v := range a.Inbox {
		fmt.Fprintf(out, "go on: %s %q\n", v.Kind, v.Text)
	}
	return nil
}

// step RUN PATH TEXT [in=SESSION] [base=VERSION] [attempt=N]: a model answered.
func (s *stage) step(c *command, out io.Writer) error {
	return s.commit(c, s.in(c), run.Path(c.arg(1)), out, "assistant", c.arg(2), ";", journal.KindStepCompleted, "kind=model", "name=writer", "row")
}

// record RUN PATH [in=SESSION] [base=VERSION] [attempt=N] EVENT field=value … [; EVENT …]:
// a batch. The path "-" is none.
func (s *stage) record(c *command, out io.Writer) error {
	p, words := run.Path(c.arg(1)), c.words[2:]
	if p == "-" {
		p = ""
	}
	options := 0
	for options < len(words) {
		name, _, _ := strings.Cut(words[options], "=")
		if name != "in" && name != "base" && name != "attempt" {
			break
		}
		options++
	}
	return s.commit(c, s.in(c), p, out, words[options:]...)
}

// end RUN STATE [say=TEXT] [in=SESSION] [base=VERSION] [field=value of run.ended]
func (s *stage) end(c *command, out io.Writer) error {
	k := s.in(c)
	var words []string
	if text := c.take("say", ""); text != "" {
		words = append(words, "assistant", text, ";")
	}
	words = append(words, journal.KindEnded, "state="+c.arg(1))
	for name, value := range c.named {
		if name != "base" && name != "attempt" {
			words = append(words, name+"="+value)
		}
	}
	return s.commit(c, k, "end", out, words...)
}

// fork RUN PATH SESSION [in=SESSION]: the parent's step first, then the claim of the
// branch.
func (s *stage) fork(c *command, out io.Writer) error {
	k := s.in(c)
	v := s.value(c.node, k)
	child := session.Link{Ref: session.Ref{Key: s.key(session.ID(c.arg(2))), Version: v.Ref().Version}}
	b := journal.Batch{Session: k, Run: c.run(), Path: run.Path(c.arg(1)), Base: v.Ref().Version, Attempt: s.grant(c.node, c.run()).Attempt}
	e, err := journal.NewEvent(journal.KindStepCompleted, journal.StepCompleted{Attempt: b.Attempt, Input: "in", Kind: journal.StepFork, Path: b.Path, Run: b.Run, Links: []session.Link{child}})
	if err != nil {
		return err
	}
	b.Events = []session.Event{e}
	if err := s.submitBatch(c, b, out); err != nil {
		return err
	}
	return s.openBranch(c, out)
}

// open RUN PATH SESSION [in=SESSION] [attempt=N]: a claim of a branch that a fork made.
func (s *stage) openBranch(c *command, out io.Writer) error {
	from, id := s.value(c.node, s.in(c)), c.run()
	l, _ := from.Link()
	claim := journal.Claim{
		Session: s.key(session.ID(c.arg(2))), Home: s.home(id), Run: id, Root: from.Root(),
		Open: session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}, Run: string(id), Step: c.arg(1)},
	}
	if at := c.take("attempt", ""); at != "" {
		claim.Attempt = s.number(at)
	} else {
		claim.Attempt = s.grant(c.node, id).Attempt
	}
	return s.claims(c, claim, out)
}

// join RUN PATH SESSION: the branch's additions become part of the run's home.
func (s *stage) join(c *command, out io.Writer) error {
	v, branch := s.value(c.node, s.in(c)), s.value(c.node, s.key(session.ID(c.arg(2))))
	j, err := session.JoinOf(v, session.JoinSinceAncestor, "", -1, branch)
	if err != nil {
		return err
	}
	return s.links(c, v, branch, journal.StepJoin, session.JoinSinceAncestor, session.JoinedEvent(j), out)
}

// reject-branch RUN PATH SESSION: the run decides against a branch.
func (s *stage) rejectBranch(c *command, out io.Writer) error {
	v, branch := s.value(c.node, s.in(c)), s.value(c.node, s.key(session.ID(c.arg(2))))
	l, _ := branch.Link()
	return s.links(c, v, branch, journal.StepReject, session.ClosedRejected,
		commitlog.RejectedEvent(commitlog.Rejection{Branch: l, Reason: "no", State: session.ClosedRejected}), out)
}

func (s *stage) links(c *command, v, branch session.Session, kind, name string, e session.Event, out io.Writer) error {
	l, _ := branch.Link()
	b := journal.Batch{Session: v.Key(), Run: c.run(), Path: run.Path(c.arg(1)), Base: v.Ref().Version, Attempt: s.grant(c.node, c.run()).Attempt}
	done, err := journal.NewEvent(journal.KindStepCompleted, journal.StepCompleted{
		Attempt: b.Attempt, Input: "in", Kind: kind, Name: name, Path: b.Path, Run: b.Run, Links: []session.Link{l},
	})
	if err != nil {
		return err
	}
	b.Events = []session.Event{e, done}
	return s.submitBatch(c, b, out)
}

// fanout RUN PATH SESSION … [warm] [need=N] [field=value of run.fanout]: branches that are
// runs of their own, and the wait for them.
func (s *stage) fanout(c *command, out io.Writer) error {
	warm, need := c.has("warm"), int(s.number(c.take("need", "0")))
	id, p, v := c.run(), run.Path(c.arg(1)), s.value(c.node, s.home(c.run()))
	g := s.grant(c.node, id)
	f := journal.FanOut{Ancestors: []journal.Ancestor{{Run: id, Session: v.Key().ID}}, Path: p, Root: v.Root(), Run: id, WarmFirst: warm, Workflow: "work"}
	f.Base, _ = v.Link()
	s.fill(&f, c.named)
	w := journal.Wait{Kind: run.WaitBranches, Need: need, Path: journal.GatherPath(p)}
	for _, name := range c.plain[2:] {
		f.Branches = append(f.Branches, journal.FanOutBranch{Name: name, Session: session.ID(name)})
		w.Branches = append(w.Branches, session.ID(name))
	}
	b := journal.Batch{Session: v.Key(), Run: id, Path: p, Base: v.Ref().Version, Attempt: g.Attempt}
	for _, e := range []struct {
		kind    string
		payload any
	}{
		{journal.KindFanOut, f},
		{journal.KindStepCompleted, journal.StepCompleted{Attempt: g.Attempt, Input: "in", Kind: journal.StepFanOut, Path: p, Run: id}},
		{journal.KindRunWaiting, journal.RunWaiting{Attempt: g.Attempt, For: []journal.Wait{w}, Run: id}},
	} {
		ev, err := journal.NewEvent(e.kind, e.payload)
		if err != nil {
			return err
		}
		b.Events = append(b.Events, ev)
	}
	return s.submitBatch(c, b, out)
}

// gather RUN PATH [dropped=SESSION,…] [field=value of step.done]: the step that gathers
// the branches disposes of the dropped ones.
func (s *stage) gather(c *command, out io.Writer) error {
	b := journal.Batch{Session: s.home(c.run()), Run: c.run(), Path: run.Path(c.arg(1)), Attempt: s.grant(c.node, c.run()).Attempt}
	var dropped []session.ID
	if names := c.take("dropped", ""); names != "" {
		if err := setValue(reflect.ValueOf(&dropped).Elem(), names); err != nil {
			return err
		}
	}
	if len(dropped) > 0 {
		d := journal.BranchOutcomes{Run: b.Run}
		for _, id := range dropped {
			d.Branches = append(d.Branches, run.BranchOutcome{Session: id, State: session.ClosedCancelled, Reason: "not needed"})
		}
		e, err := journal.NewEvent(journal.KindBranchOutcomes, d)
		if err != nil {
			return err
		}
		b.Events = append(b.Events, e)
	}
	done := journal.StepCompleted{Attempt: b.Attempt, Input: "in", Kind: journal.StepGather, Path: b.Path, Run: b.Run}
	s.fill(&done, c.named)
	e, err := journal.NewEvent(journal.KindStepCompleted, done)
	if err != nil {
		return err
	}
	b.Events = append(b.Events, e)
	return s.submitBatch(c, b, out)
}

// outcome RUN SESSION: a branch's outcome in the run's log.
func (s *stage) outcome(c *command, out io.Writer) error {
	d, err := journal.NewValues(s.log).BranchOutcome(s.Context(), s.home(c.run()), c.run(), session.ID(c.arg(1)))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s %q\n", d.State, d.Reason)
	return err
}

// carry N [revision=REVISION]: the node executes a follow-up of a commit, as the relay
// does.
func (s *stage) carry(c *command, out io.Writer) error {
	n := s.number(c.arg(0))
	if n < 1 || int(n) > len(s.work) {
		s.Fatalf("there is no follow-up %d", n)
	}
	w := s.work[n-1]
	if w.Signal != nil {
		s.key(w.Signal.To.ID)
		return c.store.Apply(s.Context(), *w.Signal)
	}
	t := *w.Task
	claim := journal.Claim{Session: s.key(t.Session.ID), Home: t.Session, Run: t.ID}
	if b := t.Branch; b != nil {
		s.homes[t.ID] = t.Session.ID
		claim.Task, claim.Root = &t, b.Root
		claim.Open = session.Opening{Kind: session.OpenFork, Name: b.Name, Parents: []session.Link{b.Base}, Run: string(b.Parent().Run), Step: string(b.Path)}
	}
	return s.claims(c, claim, out)
}

func (s *stage) apply(c *command, sig journal.Signal) error {
	return c.store.Apply(s.Context(), sig)
}

// cancel RUN [in=SESSION] [field=value of run.cancel_requested]
func (s *stage) cancel(c *command, _ io.Writer) error {
	k, v := s.in(c), &journal.CancelRequested{By: "ann", Reason: "enough", Run: c.run()}
	s.fill(v, c.named)
	return s.apply(c, journal.Signal{To: k, Run: c.run(), Cancel: v})
}

// resolve RUN DECISION [field=value of run.resolved]
func (s *stage) resolve(c *command, _ io.Writer) error {
	v := &journal.Resolved{By: "ann", Decision: c.arg(1), Reason: "looked"}
	s.fill(v, c.named)
	return s.apply(c, journal.Signal{To: s.home(c.run()), Run: c.run(), Resolve: v})
}

// say TEXT [to=RUN] [in=SESSION] [id=ID]
func (s *stage) say(c *command, _ io.Writer) error {
	to := run.ID(c.take("to", ""))
	k := s.home(to)
	if in := c.take("in", ""); in != "" {
		k = s.key(session.ID(in))
	}
	v := &journal.SignalReceived{By: "ann", Kind: journal.Message, Run: to, Text: c.arg(0)}
	s.fill(v, c.named)
	return s.apply(c, journal.Signal{To: k, Run: to, Received: v})
}

// answer RUN PATH KIND [field=value of run.received]: an answer to a question.
func (s *stage) answer(c *command, _ io.Writer) error {
	k, v := s.in(c), &journal.SignalReceived{By: "ann", Kind: c.arg(2), Path: run.Path(c.arg(1)), Run: c.run()}
	s.fill(v, c.named)
	return s.apply(c, journal.Signal{To: k, Run: c.run(), Received: v})
}

// tick [SESSION]: timers may be due.
func (s *stage) tick(c *command, _ io.Writer) error {
	return s.apply(c, journal.Signal{To: s.session(c), Tick: true})
}

func (s *stage) session(c *command) session.Key {
	if id := c.arg(0); id != "" {
		return s.key(session.ID(id))
	}
	return s.key("home")
}

// quarantine [SESSION] [field=value of run.quarantined]
func (s *stage) quarantine(c *command, _ io.Writer) error {
	v := &journal.Quarantined{Reason: "odd", Released: c.has("released")}
	s.fill(v, c.named)
	return s.apply(c, journal.Signal{To: s.session(c), Quarantine: v})
}

// rebudget RUN [field=value of run.rebudgeted]
func (s *stage) rebudget(c *command, _ io.Writer) error {
	v := &journal.Rebudgeted{Run: c.run()}
	s.fill(v, c.named)
	return s.apply(c, journal.Signal{To: s.home(c.run()), Run: c.run(), Rebudget: v})
}

// archive [SESSION]
func (s *stage) archive(c *command, _ io.Writer) error {
	return s.apply(c, journal.Signal{To: s.session(c), Archive: &commitlog.Archival{By: "ann", File: "a.json"}})
}

// restore [SESSION]
func (s *stage) restore(c *command, _ io.Writer) error {
	return s.apply(c, journal.Signal{To: s.session(c), Restore: &commitlog.Restoration{By: "ann"}})
}

// late RUN PATH TEXT attempt=N: the outcome of an attempt that lost the run, which its
// node sends to the one that holds the session.
func (s *stage) late(c *command, _ io.Writer) error {
	b := journal.Batch{Session: s.home(c.run()), Run: c.run(), Path: run.Path(c.arg(1)), Attempt: s.number(c.named["attempt"])}
	b.Events = s.events(b, []string{"assistant", c.arg(2), ";", journal.KindStepCompleted, "kind=model", "name=writer", "row"})
	return s.apply(c, *b.Late())
}

// close SESSION STATE [field=value of a branch's outcome]
func (s *stage) closeBranch(c *command, _ io.Writer) error {
	k := s.session(c)
	d := &run.BranchOutcome{Session: k.ID, State: c.arg(1), Reason: "not needed"}
	s.fill(d, c.named)
	return s.apply(c, journal.Signal{To: k, Run: run.ID(k.ID), Close: d})
}

// signal RUN: an empty signal.
func (s *stage) signal(c *command, _ io.Writer) error {
	return s.apply(c, journal.Signal{To: s.home(c.run()), Run: c.run()})
}

func (s *stage) number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.Fatal(err)
	}
	return n
}
