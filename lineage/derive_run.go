package lineage

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// stepKinds says which records steps become.
var stepKinds = map[string]Kind{
	run.StepModel: Model, run.StepTool: Tool, run.StepDo: Did, run.StepFork: Branched, run.StepDetach: Branched,
	run.StepJoin: Merged, run.StepReject: Rejected, run.StepRecall: Recalled, run.StepRemember: Remembered,
	run.StepOpen: Placed, run.StepCompress: Compressed, run.StepSelection: Selected, run.StepFanOut: FannedOut,
	run.StepAwait: Awaited,
}

func (d *deriver) fillStep(r *Record, ev session.Event) error {
	switch ev.Kind {
	case run.KindIntent:
		v, err := run.Read[run.Intent](ev)
		if err != nil {
			return err
		}
		r.Kind, r.Run, r.Step, r.Attempt = Intent, v.Run, v.Path, v.Attempt
		r.Call, r.Tool = v.Call, tell(v.Name, 64)
		r.Summary = r.Tool + " is about to start, once"
	case run.KindDone:
		v, err := d.step(r.K)
		if err != nil {
			return err
		}
		kind, ok := stepKinds[v.Kind]
		if !ok {
			return fmt.Errorf("unknown kind of step %q: %w", v.Kind, session.ErrTooOld)
		}
		r.Kind = kind
		done(r, v)
		switch {
		case v.Kind == run.StepJoin && !d.has(session.KindJoined, ev.Batch):
			r.Kind = Branched // the session that it makes tells of the join
			r.Branches = newborn(v.Links)
		case v.Kind == run.StepOpen && v.Code == "" && !d.has(session.KindPlaced, ev.Batch):
			r.Kind = Did // the beginning of a call without a model
			r.Summary = r.doneText(v)
		}
	case run.KindLate:
		v, err := run.Read[run.Done](ev)
		if err != nil {
			return err
		}
		r.Kind = Late
		done(r, v)
		r.Summary = fmt.Sprintf("%s answered attempt %d too late: kept as evidence", or(r.Actor(), r.Name), v.Attempt)
	default:
		return fmt.Errorf("unknown event %s: %w", ev.Kind, session.ErrTooOld)
	}
	return nil
}

// has reports whether a batch holds an event of a kind.
func (d *deriver) has(kind, batch string) bool {
	for _, ev := range d.entry.Commit.Events {
		if ev.Kind == kind && ev.Batch == batch {
			return true
		}
	}
	return false
}

// newborn returns the sessions among links that no commit had made yet.
func newborn(links []session.Link) []Ref {
	var out []Ref
	for _, l := range links {
		if l.Seq == 0 {
			out = append(out, refOf(l))
		}
	}
	return out
}

// done takes over what a step's record says. The summary is what its author
// gave, or else what its fields tell.
func done(r *Record, v run.Done) {
	r.Run, r.Step, r.Attempt, r.Effect, r.Elapsed = v.Run, v.Path, v.Attempt, v.Effect, v.Elapsed
	r.Name, r.Call, r.Code, r.Model = tell(v.Name, 64), v.Call, v.Code, tell(v.Model, 64)
	r.Head, r.HeadFrom = hexOf(v.HeadAfter), hexOf(v.HeadBefore)
	r.Revision, r.Source, r.Usage, r.Failure = v.Revision, v.Source, v.Usage, v.Failed
	switch v.Kind {
	case run.StepTool:
		r.Tool = r.Name
	case run.StepModel, run.StepCompress, run.StepSelection:
		r.Agent = r.Name
	case run.StepFork, run.StepDetach, run.StepFanOut:
		for _, l := range v.Links {
			r.Branches = append(r.Branches, refOf(l))
		}
	}
	if v.Error != "" {
		r.Reason = v.Error
	}
	r.Summary = r.doneText(v)
}

func (r *Record) doneText(v run.Done) string {
	actor := r.Actor()
	text := tell(v.Summary, MaxSummary)
	switch {
	case text != "":
	case v.Code != "":
		text = "fails: " + string(v.Code)
		if v.Error != "" {
			text += " " + quote(v.Error, 60)
		}
	default:
		switch v.Kind {
		case run.StepTool:
			text = "answers"
			if r.HeadFrom != r.Head {
				text = "changes files"
			}
		case run.StepModel:
			text = "answers"
		case run.StepDo:
			text = "did " + r.Name
		case run.StepFork, run.StepDetach, run.StepFanOut:
			var to []string
			for _, l := range v.Links {
				to = append(to, Short(l.ID))
			}
			text = "branches " + strings.Join(to, ", ")
			if v.Source != "" {
				text += " (implicit, " + tell(v.Source, 40) + ")"
			}
		case run.StepRecall:
			text = "recalls"
		case run.StepRemember:
			text = "remembers"
		case run.StepCompress:
			text = "summarises"
		case run.StepSelection:
			text = "selects " + r.Name
		case run.StepAwait:
			text = "waited for " + r.Name
		default:
			text = v.Kind + " " + r.Name
		}
	}
	if actor == "" || strings.HasPrefix(text, actor+" ") || text == actor {
		return text
	}
	return actor + " " + text
}

// complete adds to a step's record what the event says that it made.
func (d *deriver) complete(r *Record, ev session.Event) error {
	told := r.Summary
	switch ev.Kind {
	case session.KindChunk:
		c, err := session.DecodeChunk(ev)
		if err != nil {
			return err
		}
		agent := r.Agent
		chunk(r, c)
		if a := c.Origin().Agent; a != "" {
			r.Agent = a
		}
		v, err := d.step(r.K)
		switch {
		case err != nil:
			return err
		case v.Code == "" && c.Kind() == session.Assistant:
			r.Summary = says(r.Actor(), c)
		case r.Agent != agent:
			r.Summary = r.doneText(v)
		}
	case session.KindJoined:
		j, err := session.DecodeJoin(ev)
		if err != nil {
			return err
		}
		joined(r, j)
	case session.KindRejected:
		v, err := session.DecodeRejection(ev)
		if err != nil {
			return err
		}
		rejected(r, v)
	case session.KindPlaced:
		p, err := session.DecodePlacement(ev)
		if err != nil {
			return err
		}
		placed(r, p)
		if r.Code != "" {
			r.Summary = told
		}
	}
	return nil
}

func (d *deriver) fillRun(r *Record, ev session.Event) error {
	switch ev.Kind {
	case run.KindSubmitted:
		v, err := run.Read[run.Submitted](ev)
		if err != nil {
			return err
		}
		r.Kind, r.Run, r.Workflow, r.Revision, r.State = Submitted, v.Task.Run, v.Task.Workflow, v.Task.Revision, string(run.Queued)
		r.Summary = "run " + Short(session.ID(r.Run)) + " of " + r.Workflow + " submitted"
		if v.Behind != "" {
			r.Kind, r.By = Queued, string(v.Behind)
			r.Summary = "run " + Short(session.ID(r.Run)) + " of " + r.Workflow + " waits behind " + Short(session.ID(v.Behind))
		}
	case run.KindClaimed:
		v, err := run.Read[run.Claimed](ev)
		if err != nil {
			return err
		}
		r.Kind, r.Run, r.Attempt, r.Workflow, r.Revision, r.Node = Claimed, v.Run, v.Attempt, v.Workflow, v.Revision, v.Incarnation
		r.State = string(run.Running)
		if v.Home.ID != r.Session {
			r.Home = v.Home.ID
		}
		r.Summary = "run starts"
		if v.Attempt > 1 {
			r.Summary = fmt.Sprintf("run resumes, attempt %d", v.Attempt)
		}
	case run.KindReleased:
		v, err := run.Read[run.Released](ev)
		if err != nil {
			return err
		}
		r.Kind, r.Run, r.Attempt, r.Workflow, r.Revision = Released, v.Run, v.Attempt, v.Workflow, v.Revision
		r.Reason = v.Reason
		r.Summary = "run lets the session go"
		if v.Workflow != "" {
			r.State, r.Summary = string(run.Queued), "run parks: "+tell(v.Reason, 60)
		}
	case run.KindReview:
		v, err := run.Read[run.Review](ev)
		if err != nil {
			return err
		}
		r.Kind, r.Run, r.Attempt, r.Step, r.Code = Review, v.Run, v.Attempt, v.Path, v.Code
		r.Call, r.Tool, r.Reason, r.State = v.Call, tell(v.Name, 64), v.Reason, string(run.NeedsReview)
		r.Summary = "run needs review: " + tell(v.Reason, 80)
	case run.KindResolved:
		v, err := run.Read[run.Resolved](ev)
		if err != nil {
			return err
		}
		r.Kind, r.Run, r.Step, r.By, r.Reason = Resolved, v.Run, v.Path, tell(v.By, 64), v.Reason
		r.Workflow, r.Revision, r.State = v.Workflow, v.Revision, string(run.Queued)
		r.Name = tell(v.Decision, 20)
		r.Summary = r.Actor() + " decides: " + r.Name
		if v.Reason != "" {
			r.Summary += " " + quote(v.Reason, 60)
		}
	case run.KindCancel:
		v, err := run.Read[run.CancelRequested](ev)
		if err != nil {
			return err
		}
		r.Kind, r.Run, r.By, r.Reason = Cancel, v.Run, tell(v.By, 64), v.Reason
		r.Summary = "run is asked to stop"
		if v.Reason != "" {
			r.Summary += ": " + quote(v.Reason, 60)
		}
	case run.KindWarning:
		v, err := run.Read[run.Warning](ev)
		if err != nil {
			return err
		}
		r.Kind, r.Run, r.Reason = Warning, v.Run, v.Text
		r.Summary = "run warns: " + tell(v.Text, 90)
	case run.KindEnded:
		v, err := run.Read[run.Ended](ev)
		if err != nil {
			return err
		}
		r.Kind, r.Run, r.Attempt, r.Workflow, r.State = Ended, v.Run, v.Attempt, v.Workflow, string(v.State)
		r.Code, r.Reason, r.Usage = v.Code, v.Error, v.Usage
		if v.Result != nil {
			r.Result = new(refOf(*v.Result))
		}
		r.Summary = "run " + strings.ReplaceAll(string(v.State), "_", " ")
		switch {
		case v.Error != "":
			r.Summary += ": " + tell(v.Error, 80)
		case v.Usage.Calls > 0:
			r.Summary += fmt.Sprintf(", %s, %s tokens", counted(int(v.Usage.Calls), "model call"), thousands(v.Usage.Tokens()))
		}
	default:
		return fmt.Errorf("unknown event %s: %w", ev.Kind, session.ErrTooOld)
	}
	return nil
}

// counted returns "1 step", "2 steps".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// thousands writes 12345 as "12,345".
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
