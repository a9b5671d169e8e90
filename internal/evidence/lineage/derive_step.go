package lineage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// stepKinds are the kinds of the records of steps.
var stepKinds = map[string]messages.Kind{
	journal.StepModel: messages.KindModel, journal.StepTool: messages.KindTool, journal.StepDo: messages.KindDid, journal.StepDefer: messages.KindDid, journal.StepParallel: messages.KindDid, journal.StepLoop: messages.KindDid, journal.StepIteration: messages.KindDid, journal.StepFork: messages.KindBranched, journal.StepDetach: messages.KindBranched,
	journal.StepJoin: messages.KindMerged, journal.StepReject: messages.KindRejected, journal.StepRecall: messages.KindRecalled, journal.StepRemember: messages.KindRemembered,
	journal.StepOpen: messages.KindPlaced, journal.StepCompress: messages.KindCompressed, journal.StepSelection: messages.KindSelected, journal.StepFanOut: messages.KindFannedOut,
	journal.StepGather: messages.KindGathered, journal.StepAwait: messages.KindAwaited, journal.StepTag: messages.KindDid,
	journal.StepStart: messages.KindStarted, journal.StepResult: messages.KindAwaited, journal.StepSelect: messages.KindAwaited,
}

// step fills the record of a step, including its outcome in the same batch: the event
// with index made, -1 for none.
func (d *deriver) step(r *messages.Record, v journal.StepCompleted, made int) error {
	kind, ok := stepKinds[v.Kind]
	if !ok {
		return fmt.Errorf("unknown kind of step %q: %w", v.Kind, session.ErrTooOld)
	}
	r.Kind = kind
	fillDone(r, v)
	if made < 0 {
		switch {
		case v.Kind == journal.StepJoin:
			r.Kind = messages.KindBranched // the new session has the record of the join
			r.Branches = newborn(v.Links)
		case v.Kind == journal.StepOpen && v.Code == "":
			r.Kind = messages.KindDid // the beginning of a call without a model
			r.Summary = doneText(r, v)
		}
		return nil
	}
	if session.IsContent(d.facts[made].Kind) {
		r.Rows = d.events[made].rows
	}
	agent, summary := r.Agent, r.Summary
	switch o := d.facts[made].What.(type) {
	case session.Chunk:
		fillChunk(r, o)
		switch {
		case r.Role == string(session.Assistant) && v.Code == "":
			r.Summary += finishText(v)
		case r.Agent != agent:
			r.Summary = doneText(r, v)
		default:
			r.Summary = summary
		}
	case session.Placement:
		if fillPlaced(r, o); v.Code != "" {
			r.Summary = summary
		}
	case session.Join:
		fillJoined(r, o)
	case commitlog.Rejection:
		fillRejected(r, o)
	case journal.FanOut:
		fillFannedOut(r, o)
	case journal.Start:
		r.Starts = o.Task.Run
	}
	return nil
}

// newborn returns the sessions among links that had no commit yet.
func newborn(links []session.Link) []messages.Ref {
	var out []messages.Ref
	for _, l := range links {
		if l.Seq == 0 {
			out = append(out, refOf(l))
		}
	}
	return out
}

// fillDone fills a record from a step. The summary is the author's, or is made from the
// fields.
func fillDone(r *messages.Record, v journal.StepCompleted) {
	r.Effect, r.Elapsed, r.Name, r.Call, r.Model = v.Effect, v.Elapsed, maskedLine(v.Name, 64), v.Call, maskedLine(v.Model, 64)
	r.Cost = v.CostSource()
	r.Again, r.Finish, r.Word = v.Again, v.Finish, maskedLine(v.Word, 64)
	r.Head, r.HeadFrom, r.Source, r.Failure = hexOf(v.HeadAfter), hexOf(v.HeadBefore), v.Source, v.Failed
	switch v.Kind {
	case journal.StepModel, journal.StepCompress, journal.StepSelection:
		r.Agent = r.Name
	case journal.StepTag:
		var value string
		_ = json.Unmarshal([]byte(v.Value), &value) // a failed step has none
		r.Tags = run.Tags{v.Name: value}
	case journal.StepTool:
		r.Tool = r.Name
		fallthrough
	case journal.StepFork, journal.StepDetach, journal.StepFanOut, journal.StepGather:
		for _, l := range v.Links {
			r.Branches = append(r.Branches, refOf(l))
		}
	}
	if v.Kind == journal.StepSelection {
		fillSelection(r, v.Value)
	}
	r.Summary = doneText(r, v)
}

// fillSelection sets the candidates of a selection and the model's answer.
func fillSelection(r *messages.Record, value string) {
	var s struct {
		Answer     string   `json:"answer"`
		Candidates []string `json:"candidates"`
	}
	if json.Unmarshal([]byte(value), &s) != nil {
		return // a failed selection, or one too long for the record
	}
	r.Reason = cmp.Or(r.Reason, s.Answer)
	for _, name := range s.Candidates[:min(len(s.Candidates), MaxCandidates)] {
		r.Candidates = append(r.Candidates, maskedLine(name, 64))
	}
}

// finishText returns the finish of a failed answer of a model, and the server's own word
// for it.
func finishText(v journal.StepCompleted) (text string) {
	if v.Code != "" && v.Finish != "" {
		text = ", finish " + v.Finish
	}
	if v.Word != "" {
		text += ", in the server's word " + quote(v.Word, 64)
	}
	return text
}

func doneText(r *messages.Record, v journal.StepCompleted) string {
	actor := r.Actor()
	text := short(maskedLine(v.Summary, 4*MaxSummary), MaxSummary)
	switch {
	case v.Kind == journal.StepGather && v.Code == "":
		return gathers(v, text)
	case text != "":
	case v.Code != "":
		text = "fails: " + string(v.Code)
		if v.Error != "" {
			// The text already has the code.
			text += " " + quote(strings.TrimPrefix(v.Error, "llm: "+string(v.Code)+": "), 60)
		}
	default:
		switch v.Kind {
		case journal.StepTool:
			text = "answers"
			if r.HeadFrom != r.Head {
				text = "changes files"
			}
		case journal.StepModel:
			text = "answers"
		case journal.StepDo:
			text = "did " + r.Name
		case journal.StepFork, journal.StepDetach:
			text = "branches " + strings.Join(shorts(v.Links), ", ")
			if v.Source != "" {
				text += " (implicit, " + maskedLine(v.Source, 40) + ")"
			}
		case journal.StepFanOut:
			return fansOut(shorts(v.Links))
		case journal.StepRecall:
			text = "recalls"
		case journal.StepRemember:
			text = "remembers"
		case journal.StepCompress:
			text = "summarises"
		case journal.StepSelection:
			text = "selects " + r.Name
		case journal.StepAwait:
			text = "waited for " + r.Name
		case journal.StepResult:
			text = "waited for run " + r.Name
		default:
			text = v.Kind + " " + r.Name
		}
	}
	text += finishText(v)
	if actor == "" || strings.HasPrefix(text, actor+" ") || text == actor {
		return text
	}
	return actor + " " + text
}

func shorts(links []session.Link) []string {
	out := make([]string, len(links))
	for i, l := range links {
		out[i] = Short(l.ID)
	}
	return out
}

// fansOut lists the branches of a fan-out.
func fansOut(names []string) string {
	return "fans out into " + excerpt.Counted(len(names), "branch") + ": " + strings.Join(names, ", ")
}

// fillFannedOut fills the record of a fan-out from its event.
func fillFannedOut(r *messages.Record, v journal.FanOut) {
	r.Kind, r.Workflow, r.Revision = messages.KindFannedOut, v.Workflow, v.Revision
	r.Branches = nil
	var names []string
	for _, b := range v.Branches {
		r.Branches = append(r.Branches, messages.Ref{Session: b.Session, Version: v.Base.Version})
		names = append(names, maskedLine(b.Name, 40))
	}
	if r.Code == "" {
		r.Summary = fansOut(names)
	}
}

// gathers summarizes the outcomes of branches in a gather step: "2 of 3 branches joined;
// c cancelled". If the step's value cannot be read, it returns the author's summary.
func gathers(v journal.StepCompleted, author string) string {
	ends, err := v.Gathered()
	if err != nil || len(ends) == 0 {
		return cmp.Or(author, "joins "+excerpt.Counted(len(v.Links), "branch"))
	}
	joined := 0
	var others []run.State
	names := map[run.State][]string{}
	for _, e := range ends {
		if e.State == run.Succeeded {
			joined++
			continue
		}
		if names[e.State] == nil {
			others = append(others, e.State)
		}
		names[e.State] = append(names[e.State], maskedLine(e.Name, 40))
	}
	parts := []string{fmt.Sprintf("%d of %s joined", joined, excerpt.Counted(len(ends), "branch"))}
	for _, s := range others {
		parts = append(parts, strings.Join(names[s], ", ")+" "+strings.ReplaceAll(string(s), "_", " "))
	}
	return strings.Join(parts, "; ")
}
