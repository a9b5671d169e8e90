package dossier

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
)

// branch returns the branch of a run, or nil if the run is not a branch.
func (t *timeline) branch(id run.ID) *Branch {
	if n := t.fans[id]; n > 0 {
		return &t.f.Branches[n-1]
	}
	return nil
}

// fanOut lists the branches that a step opened.
func (t *timeline) fanOut(p journal.FanOut) {
	for _, b := range p.Branches {
		id := run.ID(b.Session)
		if t.fans[id] > 0 {
			continue
		}
		one := Branch{
			Name: one(b.Name, 60), Session: b.Session, Label: t.name(b.Session), In: t.number(b.Session), Workflow: one(b.Workflow, 60),
			opened: t.ref(p.Path),
		}
		t.f.Branches = append(t.f.Branches, one)
		t.fans[id] = len(t.f.Branches)
	}
}

// opened names the branches of a fan-out; its event is in the same commit.
func (t *timeline) opened(p journal.StepCompleted) string {
	for _, e := range t.at.facts() {
		f, ok := e.What.(journal.FanOut)
		if !ok || f.Run != p.Run || f.Path != p.Path {
			continue
		}
		var names []string
		for _, b := range f.Branches {
			names = append(names, b.Name)
		}
		return fmt.Sprintf("fans out into %s: %s", excerpt.Counted(len(names), "branch"), strings.Join(names, ", "))
	}
	return ""
}

// gathered summarizes the outcomes of the branches of a fan-out.
func gathered(p journal.StepCompleted) string {
	ends, err := p.Gathered()
	if p.Code != "" || err != nil || len(ends) == 0 {
		return p.Summary
	}
	succeeded := 0
	var others []string
	for _, e := range ends {
		if e.State == run.Succeeded {
			succeeded++
			continue
		}
		others = append(others, e.Name+" "+strings.ReplaceAll(string(e.State), "_", " "))
	}
	text := fmt.Sprintf("%d of %s succeeded", succeeded, excerpt.Counted(len(ends), "branch"))
	if len(others) > 0 {
		text += "; " + strings.Join(others, ", ")
	}
	return text
}

// disposed stores the outcomes of branches for the run that opened them.
func (t *timeline) disposed(p journal.BranchOutcomes) {
	for _, d := range p.Branches {
		if b := t.branch(run.ID(d.Session)); b != nil {
			b.End, b.Reason, b.decided = one(d.State, 20), one(d.Reason, 400), t.recorded(p.Run)
		}
	}
}

// recorded returns the step of a run that the commit records.
func (t *timeline) recorded(id run.ID) stepRef {
	for _, e := range t.at.facts() {
		if _, ok := e.What.(journal.StepCompleted); ok && e.Run == id {
			return t.ref(e.Step)
		}
	}
	return stepRef{}
}

// waits adds the waits of a run. Its questions to users are pending decisions.
func (t *timeline) waits(e journal.Fact, p journal.RunWaiting) {
	if !t.decides(p.Run) {
		return
	}
	var what []string
	for _, w := range p.For {
		text := asked(w)
		what = append(what, text)
		if w.Kind == run.WaitApproval || w.Kind == run.WaitResponse {
			t.asks[t.ref(w.Path)] = cmp.Or(w.Title, w.Name)
		}
	}
	all := " and "
	if p.Any {
		all = " or "
	}
	s := t.line(e, "waiting", "run", "waits "+strings.Join(what, all))
	for _, w := range p.For {
		s.Path = w.Path
		if w.Detail != "" {
			s.Body = textOf(w.Detail)
		}
		if w.Kind == run.WaitApproval || w.Kind == run.WaitResponse {
			t.f.Decisions = append(t.f.Decisions, Decision{s.N, "asked: " + one(cmp.Or(w.Title, w.Name), 200), "run " + one(string(p.Run), 64), one(due(w), 60)})
		}
	}
}

// asked describes a wait.
func asked(w journal.Wait) string {
	text := "for " + w.Kind
	switch w.Kind {
	case run.WaitTimer:
		return due(w)
	case run.WaitMessage:
		text = "for a message"
	case run.WaitQuota:
		text = "for the quota"
	case run.WaitBranches:
		text = "for " + excerpt.Counted(len(w.Branches), "branch")
		if w.Need > 0 && w.Need < len(w.Branches) {
			text = fmt.Sprintf("for %d of %s", w.Need, excerpt.Counted(len(w.Branches), "branch"))
		}
	default:
		if what := cmp.Or(w.Title, w.Name); what != "" {
			text += ": " + what
		}
		if w.Kind == run.WaitEvent {
			text += " " + one(w.Key, 100)
		}
	}
	if d := due(w); d != "" {
		text += ", " + d
	}
	return text
}

func due(w journal.Wait) string {
	if w.Due == 0 {
		return ""
	}
	return "until " + when(time.UnixMilli(w.Due))
}

// received adds a signal to a run. Answers are decisions.
func (t *timeline) received(e journal.Fact, p journal.SignalReceived) {
	if !t.decides(p.Run) {
		return
	}
	question := t.asks[t.ref(p.Path)]
	decide := func(s *Step, what string) {
		if question != "" {
			what += ": " + question
		}
		t.decision(e, s, one(what, 200))
	}
	var s *Step
	switch p.Kind {
	case journal.Approve, journal.Refuse, journal.Respond:
		verb := map[string]string{journal.Approve: "approve", journal.Refuse: "reject", journal.Respond: "answer"}[p.Kind]
		text, past := verb+"s", strings.TrimSuffix(verb, "e")+"ed"
		if p.Kind == journal.Approve && p.Value != "" {
			text, past = text+" with changes", past+" with changes"
		}
		if question != "" {
			text += ": " + question
		}
		if p.Reason != "" {
			text += " " + quote(p.Reason, 120)
		}
		s = t.line(e, "answer", cmp.Or(journal.Named(p.By, p.Says), "somebody"), text)
		s.Body = textOf(p.Value)
		decide(s, past)
	case journal.Message:
		text := "says " + quote(p.Text, 120)
		if p.Interrupt {
			text = "interrupts: " + quote(p.Text, 120)
		}
		s = t.line(e, "message", cmp.Or(journal.Named(p.By, p.Says), "user"), text)
		s.Body = textOf(p.Text)
	case journal.Timer:
		s = t.line(e, "timer", "clock", "the time of step "+string(p.Path)+" has come")
		if question != "" {
			decide(s, "nobody answered in time")
		}
	case journal.Event:
		if p.Event == nil {
			return
		}
		s = t.line(e, p.Kind, cmp.Or(journal.Named(p.By, p.Says), "somebody"), fmt.Sprintf("publishes event %s %s", one(p.Event.Name, 128), one(p.Event.Key, 100)))
		s.Body = textOf(p.Event.Value)
	case journal.Opened:
		s = t.line(e, "timer", "operator", "the quota that step "+string(p.Path)+" waits for was set")
	case journal.Outcome:
		if p.Ended == nil {
			return
		}
		s = t.line(e, "reported", "run", "run "+string(p.Ended.Run)+" "+strings.ReplaceAll(string(p.Ended.State), "_", " "))
		s.Code, s.Error = p.Ended.Code, textOf(p.Ended.Error)
	case journal.Report:
		if p.Branch == nil {
			return
		}
		name := t.name(p.Branch.Link.ID)
		if b := t.branch(run.ID(p.Branch.Link.ID)); b != nil {
			name += " (" + b.Name + ")"
		}
		s = t.line(e, "branch", "branch", name+" "+strings.ReplaceAll(string(p.Branch.State), "_", " "))
		s.Code, s.Error = p.Branch.Code, textOf(p.Branch.Error)
	default:
		s = t.line(e, p.Kind, cmp.Or(journal.Named(p.By, p.Says), "somebody"), "sends "+p.Kind)
	}
	s.Path = p.Path
}

// branches completes the list from the sessions.
func (t *timeline) branches() {
	decided := t.a.decided()
	for i := range t.f.Branches {
		b := &t.f.Branches[i]
		b.Step, b.Decided = t.index[b.opened], t.index[b.decided]
		if d, ok := decided[b.Session]; ok && b.End == "" {
			b.End, b.Reason = one(d.state, 20), one(d.reason, 400)
		}
		if b.State == "" {
			b.State = "never began"
		}
		if b.Tokens == 0 && b.In > 0 { // it is open: the sum over its steps so far
			for _, e := range slices.Concat(t.a.byID[b.Session].facts...) {
				if d, ok := e.What.(journal.StepCompleted); ok && d.Kind != journal.StepGather && run.ID(b.Session) == d.Run {
					b.Tokens += d.Usage.Tokens()
				}
			}
		}
	}
}

// unanswered returns the open questions of a waiting run.
func (t *timeline) unanswered() string {
	var open []string
	for _, facts := range t.a.logs[0].facts {
		for _, e := range facts {
			if e.Run != t.a.run {
				continue
			}
			switch p := e.What.(type) {
			case journal.RunWaiting:
				open = nil
				for _, w := range p.For {
					open = append(open, asked(w))
				}
			case journal.Claimed:
				open = nil
			}
		}
	}
	return strings.Join(open, " and ")
}
