package dossier

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/session"
)

// words returns the actor and the action of a step.
func (t *timeline) words(s *Step, p journal.StepCompleted, row session.Chunk) (actor, text string) {
	actor, text = s.Actor, p.Summary
	var branches []string
	for _, l := range p.Links {
		branches = append(branches, t.name(l.ID))
	}
	which := strings.Join(branches, ", ")
	switch p.Kind {
	case journal.StepModel:
		actor = p.Name
		switch {
		case p.Code != "" && p.Finish != "":
			text = "the answer is none: " + string(p.Code)
		case p.Code != "":
			text = "the model failed: " + string(p.Code)
		case p.Again != "":
			text = p.Summary
		case row.CallCount() > 0:
			text = "calls " + lineage.CallNames(row, "×")
		default:
			text = "answers " + quote(row.Text(), 120)
		}
	case journal.StepTool:
		if actor = "workflow"; row.Origin().Agent != "" {
			actor = row.Origin().Agent
		}
		if text = p.Name; which != "" { // a workflow did its work
			text += " by " + which
		}
		if p.Summary != "" && p.Summary != p.Name {
			text += ": " + p.Summary
		}
	case journal.StepFork:
		actor, text = "workflow", "forks "+which
		if p.Name == session.OpenImplicit {
			text = fmt.Sprintf("forks %s by extending an older value (%s)", which, p.Source)
		}
	case journal.StepDetach:
		actor, text = "workflow", "copies the session as "+which
	case journal.StepFanOut:
		actor, text = "workflow", cmp.Or(t.opened(p), "opens branches "+which)
	case journal.StepGather:
		actor, text = "workflow", cmp.Or(gathered(p), "gathers "+p.Name)
		s.Body = Text{}
	case journal.StepReject:
		actor, text = "workflow", fmt.Sprintf("closes %s as %s: %s", which, p.Name, quote(p.Summary, 160))
	case journal.StepJoin:
		verb := map[string]string{session.JoinAdopt: "adopts", session.JoinReplace: "goes on with", session.JoinConcatenate: "joins"}[p.Name]
		if p.Name == session.JoinConcatenate && len(branches) > 1 {
			which = strings.Join(branches[1:], " and ") + " into " + branches[0]
		}
		actor, text = "workflow", cmp.Or(verb, "merges")+" "+which
		if p.Summary != "" && p.Name != session.JoinConcatenate {
			text += ": " + quote(p.Summary, 160)
		}
	case journal.StepRecall, journal.StepRemember:
		actor, text = "memory "+p.Name, cmp.Or(p.Summary, p.Kind)
		t.memory(s, p)
	case journal.StepOpen:
		actor, text = "workflow", cmp.Or(p.Summary, "opens "+p.Name)
	case journal.StepAwait, journal.StepResult, journal.StepSelect:
		actor, text = "workflow", cmp.Or(p.Summary, "waited for "+p.Name)
	case journal.StepSelection, journal.StepCompress:
		actor = p.Name
	case journal.StepDo, journal.StepDefer, journal.StepStart, journal.StepParallel, journal.StepLoop, journal.StepIteration:
		actor, text = "workflow", cmp.Or(p.Summary, "did "+p.Name)
		if p.Name == "commit" {
			text = cmp.Or(p.Summary, "records pending edits")
		}
	default:
		actor, text = cmp.Or(actor, "workflow"), cmp.Or(text, p.Kind+" "+p.Name)
	}
	if p.Code != "" && p.Kind != journal.StepModel {
		text += " (" + string(p.Code) + ")"
	}
	return one(actor, 60), one(text, 200)
}

// quote returns the beginning of a text between quotation marks.
func quote(s string, limit int) string { return "“" + one(s, limit) + "”" }
