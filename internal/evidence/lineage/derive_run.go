package lineage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// fillRun fills the record of an event of a run as a whole, or of its branches.
func fillRun(r *messages.Record, what any) {
	switch v := what.(type) {
	case journal.Submitted:
		fillSubmitted(r, v)
	case journal.Claimed:
		fillClaimed(r, v)
	case journal.Released:
		fillReleased(r, v)
	case journal.Review:
		r.Kind, r.Call, r.Tool, r.Due = messages.KindReview, v.Call, maskedLine(v.Name, 64), v.Expires
		r.Summary = "run needs review: " + maskedLine(v.Reason, 80)
	case journal.Resolved:
		r.Kind, r.Name = messages.KindResolved, maskedLine(v.Decision, 20)
		r.Summary = cmp.Or(whoOf(r), "run") + " decides: " + r.Name
		if v.Reason != "" {
			r.Summary += " " + quote(v.Reason, 60)
		}
	case journal.CancelRequested:
		r.Kind, r.Summary = messages.KindCancel, "run is asked to stop"
		if who := whoOf(r); who != "" && v.ID != "" { // else the run around a branch cancelled it
			r.Summary += " by " + who
		}
		if v.Reason != "" {
			r.Summary += ": " + quote(v.Reason, 60)
		}
	case journal.Warning:
		r.Kind, r.Summary = messages.KindWarning, "run warns: "+maskedLine(v.Text, 90)
	case journal.Status:
		r.Kind, r.Status = messages.KindStatus, Mask(v.Value)
		r.Summary = "run is at " + quote(v.Value, 80)
	case journal.Ended:
		fillEnded(r, v)
	case journal.Settled:
		r.Kind, r.Summary = messages.KindSettled, "session "+Short(v.Part.From)+" reports "+excerpt.Thousands(v.Part.Spent.Usage.Tokens())+" tokens of the run"
		if v.N > 0 {
			r.Summary += ", which used " + excerpt.Thousands(v.Total.Usage.Tokens())
		}
	case journal.RunWaiting:
		fillWaiting(r, v)
	case journal.SignalReceived:
		if v.Run != "" { // a message to no run is in its chunk
			fillReceived(r, v)
		}
	case journal.FanOut:
		fillFannedOut(r, v)
	case journal.BranchesReleased: // it names no branches: the record of the fan-out does
		r.Kind, r.Summary = messages.KindSpread, "spreads to "+excerpt.Counted(max(len(v.Branches)-1, 0), "more branch")
	case journal.BranchOutcomes:
		r.Kind = messages.KindDisposed
		for _, b := range v.Branches {
			r.Ends = append(r.Ends, run.BranchOutcome{Session: b.Session, State: b.State, Reason: maskedLine(b.Reason, MaxReason)})
		}
		r.Summary = dispositions(r.Ends, Short)
	case journal.Quarantined:
		fillQuarantined(r, v)
	case journal.Rebudgeted:
		fillRebudgeted(r, v)
	}
}

// anonymous is the user of a client without credentials. It is not shown.
const anonymous = "anonymous"

func fillSubmitted(r *messages.Record, v journal.Submitted) {
	r.Kind = messages.KindSubmitted
	named := "run " + Short(session.ID(r.Run)) + " of " + r.Workflow
	if b := v.Task.Branch; b != nil {
		up := b.Parent()
		r.BranchOf = &messages.Place{Run: up.Run, Session: up.Session, Step: up.Path}
		r.Name = maskedLine(b.Name, MaxSummary)
		named = "branch " + excerpt.Cut(r.Name, 30) + " of run " + Short(session.ID(up.Run))
		if b.Remote {
			named += ", workflow " + r.Workflow + ","
		}
	}
	if of := v.Task.Resumes; of != nil {
		r.Resumes = &messages.Place{Run: of.Run, Session: of.Session, Step: of.Step}
		if of.Cleanup() {
			named = "cleanup of run " + Short(session.ID(of.Run))
		} else {
			named += " at step " + string(of.Step) + " of run " + Short(session.ID(of.Run))
		}
	}
	if by := v.Task.StartedBy; by != nil {
		r.StartedBy = &messages.Place{Run: by.Run, Session: by.Session, Step: by.Step}
		named += " at step " + string(by.Step) + " of run " + Short(session.ID(by.Run))
	}
	for _, p := range v.Task.After {
		w := messages.Wait{Kind: run.WaitRun, Name: string(p.Run)}
		if p.Any {
			w.Title = w.Name + ", however it ends"
		}
		r.Waits = append(r.Waits, w)
	}
	r.Via = maskedLine(v.Via, 64)
	r.Due, r.Tags = v.Task.NotBefore, v.Task.Tags
	switch {
	case v.Behind != "":
		r.Kind, r.Behind = messages.KindQueued, v.Behind
		r.Summary = named + " waits behind " + Short(session.ID(v.Behind))
	default:
		r.Summary = named + " submitted"
	}
	switch {
	case r.By == "" || r.By == anonymous && r.Via == "" || r.BranchOf != nil || r.StartedBy != nil: // from the run around it, or its starter
	default:
		via := r.Via
		if via != "" {
			via = excerpt.Cut(via, 20)
		}
		r.Summary += ", by " + journal.Submitter(excerpt.Cut(r.By, 20), via, r.Says)
	}
	if r.Due > 0 {
		r.Summary += ", not before " + moment(r.Due)
	}
	switch n := len(r.Waits); {
	case n > 1:
		r.Summary += fmt.Sprintf(", after %d runs", n)
	case n == 1:
		r.Summary += ", after run " + Short(session.ID(r.Waits[0].Name))
	}
}

func fillClaimed(r *messages.Record, v journal.Claimed) {
	r.Kind, r.Node = messages.KindClaimed, v.Incarnation
	if v.Home.ID != r.Session {
		r.Home = v.Home.ID
	}
	switch {
	case r.Home != "":
		r.Summary = "run works on this session"
	case v.Attempt > 1: // after a wait or an interruption, which the record does not distinguish
		r.Summary = fmt.Sprintf("run goes on, attempt %d", v.Attempt)
	default:
		r.Summary = "run starts"
	}
}

func fillReleased(r *messages.Record, v journal.Released) {
	r.Kind = messages.KindReleased
	switch {
	case v.Workflow == "":
		r.Summary = "run lets the session go"
	case v.Step != "":
		r.Summary = "run parks for a node with revision " + quote(v.Revision, 30) + ": step " + string(v.Step) + " is another one here"
	default:
		r.Summary = "run parks: " + maskedLine(v.Reason, 60)
	}
}

func fillEnded(r *messages.Record, v journal.Ended) {
	if v.Workflow == "" { // in the log of a session other than the run's home
		r.Kind = messages.KindReleased
		r.Summary = "run lets the session go: " + strings.ReplaceAll(string(v.State), "_", " ")
		return
	}
	r.Kind, r.Unrecorded = messages.KindEnded, v.Unrecorded
	if v.Result != nil {
		r.Result = new(refOf(*v.Result))
	}
	if v.State == run.Succeeded && v.Version > 0 && (r.Result == nil || r.Result.Version != v.Version) { // includes content committed together with the end
		r.Result = &messages.Ref{Commit: r.Commit, Hash: r.Hash, Session: r.Session, Version: v.Version}
	}
	if v.Parent != nil {
		r.BranchOf = &messages.Place{Run: v.Parent.Run, Session: v.Parent.Session, Step: v.Parent.Path}
	}
	for _, id := range v.Branches {
		r.Ends = append(r.Ends, run.BranchOutcome{Session: id, State: session.ClosedCancelled, Reason: "the run that opened it has " + string(v.State)})
	}
	r.Summary = "run " + strings.ReplaceAll(string(v.State), "_", " ")
	switch {
	case v.Error != "":
		r.Summary += ": " + maskedLine(strings.TrimPrefix(v.Error, "llm: "), 80)
	case v.Usage.Calls > 0:
		r.Summary += fmt.Sprintf(", %s, %s tokens", excerpt.Counted(int(v.Usage.Calls), "model call"), excerpt.Thousands(v.Usage.Tokens()))
	}
}

func fillWaiting(r *messages.Record, v journal.RunWaiting) {
	r.Kind = messages.KindWaiting
	for _, w := range v.For {
		name := w.Name
		if w.Kind == run.WaitEvent {
			name += " " + w.Key
		}
		r.Waits = append(r.Waits, messages.Wait{
			Branches: slices.Clone(w.Branches), Due: w.Due, Kind: w.Kind, Name: maskedLine(name, 64), Need: w.Need, Step: w.Path, Title: maskedLine(w.Title, MaxSummary), Wants: w.Wants(),
		})
	}
	if len(r.Waits) == 0 {
		r.Summary = "waits for nothing"
		return
	}
	r.Step = r.Waits[0].Step
	r.Summary = "waits " + r.Waits[0].String()
	switch n := len(r.Waits) - 1; {
	case n == 1 && v.Any:
		r.Summary = excerpt.Cut(r.Summary+" or "+r.Waits[1].String(), MaxSummary)
	case n > 0 && v.Any:
		r.Summary = excerpt.Cut(r.Summary, MaxSummary-30) + fmt.Sprintf(" or the first of %d more", n)
	case n > 0:
		r.Summary = excerpt.Cut(r.Summary, MaxSummary-20) + fmt.Sprintf(" and %d more", n)
	}
}

// moment formats a time of a record in UTC.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04 MST") }

func fillReceived(r *messages.Record, v journal.SignalReceived) {
	r.Wake, r.Name = v.Wake, maskedLine(v.Kind, 20)
	by := cmp.Or(whoOf(r), "somebody")
	switch v.Kind {
	case journal.Approve, journal.Refuse, journal.Respond:
		verb := map[string]string{journal.Approve: "approved", journal.Refuse: "rejected", journal.Respond: "answered"}[v.Kind]
		r.Kind, r.Summary = messages.KindAnswered, verb+" by "+by
		if v.Kind == journal.Approve && v.Value != "" {
			r.Summary += ", edited"
		}
		switch {
		case v.Reason != "":
			r.Summary += ": " + maskedLine(v.Reason, 80)
		case v.Kind == journal.Respond && v.Value != "":
			r.Summary += ": " + maskedLine(v.Value, 60)
		}
	case journal.Event:
		r.Kind, r.Summary = messages.KindAnswered, "an event came"
		if e := v.Event; e != nil {
			r.Summary = "event " + maskedLine(e.Name+" "+e.Key, 80) + " by " + by
		}
	case journal.Message:
		verb := " says "
		if v.Interrupt {
			verb = " interrupts: "
		}
		r.Kind = messages.KindMessage
		author := excerpt.Cut(cmp.Or(whoOf(r), string(session.User)), MaxSummary/2)
		r.Summary = author + verb + quote(v.Text, MaxSummary-len(author)-len(verb))
	case journal.Timer:
		r.Kind, r.Summary = messages.KindDue, "the time of step "+string(v.Path)+" has come"
	case journal.Opened:
		r.Kind, r.Summary = messages.KindDue, "the quota that step "+string(v.Path)+" waits for was set"
	case journal.Report:
		r.Kind = messages.KindReported
		if b := v.Branch; b != nil {
			r.Branches, r.Code, r.Usage = []messages.Ref{refOf(b.Link)}, b.Code, b.Usage
			r.Reason = b.Error
			r.State = cmp.Or(r.State, string(run.Waiting))
			r.Ends = []run.BranchOutcome{{Session: b.Link.ID, State: string(b.State), Reason: maskedLine(b.Error, MaxReason)}}
			r.Summary = "branch " + Short(b.Link.ID) + " " + strings.ReplaceAll(string(b.State), "_", " ")
			if b.Error != "" {
				r.Summary += ": " + maskedLine(b.Error, 60)
			}
		}
	case journal.Outcome:
		r.Kind = messages.KindReported
		if e := v.Ended; e != nil {
			r.Starts, r.Code, r.Reason = e.Run, e.Code, e.Error
			if r.State = cmp.Or(r.State, string(run.Waiting)); v.Path == "" { // of a run that this one begins after
				r.State = string(run.Queued)
			}
			r.Summary = "run " + Short(session.ID(e.Run)) + " " + strings.ReplaceAll(string(e.State), "_", " ")
			if e.Error != "" {
				r.Summary += ": " + maskedLine(e.Error, 60)
			}
		}
	default:
		r.Kind, r.Summary = messages.KindMessage, by+" sends "+r.Name
	}
}

func fillQuarantined(r *messages.Record, v journal.Quarantined) {
	r.Kind = messages.KindQuarantined
	verb := "quarantines the session"
	if v.Released {
		r.Kind, verb = messages.KindReadmitted, "lets the session go on"
	}
	r.Summary = cmp.Or(whoOf(r), "somebody") + " " + verb
	if v.Reason != "" {
		r.Summary += ": " + maskedLine(v.Reason, 70)
	}
}

func fillRebudgeted(r *messages.Record, v journal.Rebudgeted) {
	r.Kind = messages.KindRebudgeted
	r.Summary = cmp.Or(whoOf(r), "somebody") + " sets the budget: " + BudgetText(v.Budget)
	if v.Reason != "" {
		r.Summary += " " + quote(v.Reason, 40)
	}
}

// dispositions describes the outcomes of several branches.
func dispositions(ends []run.BranchOutcome, name func(session.ID) string) string {
	var states []string
	of := map[string][]string{}
	same := true
	for _, e := range ends {
		if of[e.State] == nil {
			states = append(states, e.State)
		}
		of[e.State] = append(of[e.State], name(e.Session))
		same = same && e.Reason == ends[0].Reason
	}
	for i, s := range states {
		states[i] = disposition(s, strings.Join(of[s], ", "), "")
	}
	text := strings.Join(states, "; ")
	if same && len(ends) > 0 && ends[0].Reason != "" && len(text) < MaxSummary-12 {
		text += " " + quote(ends[0].Reason, MaxSummary-len(text)-1)
	}
	return text
}

// BudgetText describes the limits of a budget.
func BudgetText(b run.Budget) string {
	var parts []string
	if b.Tokens > 0 {
		parts = append(parts, excerpt.Counted(b.Tokens, "token"))
	}
	if b.MicroUSD > 0 {
		parts = append(parts, excerpt.Thousands(b.MicroUSD)+" micro-USD")
	}
	if b.Steps > 0 {
		parts = append(parts, excerpt.Counted(b.Steps, "step"))
	}
	if b.Time > 0 {
		parts = append(parts, b.Time.String())
	}
	return cmp.Or(strings.Join(parts, ", "), "no limit")
}
