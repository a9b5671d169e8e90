package lineage

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// ofRun takes over what happened to a run as a whole, or to its branches.
func (r *Record) ofRun(what any) {
	switch v := what.(type) {
	case journal.Submitted:
		r.submitted(v)
	case journal.Claimed:
		r.claimed(v)
	case journal.Released:
		r.released(v)
	case journal.Review:
		r.Kind, r.Call, r.Tool, r.Due = Review, v.Call, excerpt(v.Name, 64), v.Expires
		r.Summary = "run needs review: " + excerpt(v.Reason, 80)
	case journal.Resolved:
		r.Kind, r.Name = Resolved, excerpt(v.Decision, 20)
		r.Summary = cmp.Or(r.who(), "run") + " decides: " + r.Name
		if v.Reason != "" {
			r.Summary += " " + quote(v.Reason, 60)
		}
	case journal.CancelRequested:
		r.Kind, r.Summary = Cancel, "run is asked to stop"
		if who := r.who(); who != "" && v.ID != "" { // else by the run around a branch
			r.Summary += " by " + who
		}
		if v.Reason != "" {
			r.Summary += ": " + quote(v.Reason, 60)
		}
	case journal.Warning:
		r.Kind, r.Summary = Warning, "run warns: "+excerpt(v.Text, 90)
	case journal.Ended:
		r.ended(v)
	case journal.Settled:
		r.Kind, r.Summary = Settled, "session "+Short(v.Part.From)+" reports "+Thousands(v.Part.Spent.Usage.Tokens())+" tokens of the run"
		if v.N > 0 {
			r.Summary += ", which used " + Thousands(v.Total.Usage.Tokens())
		}
	case journal.RunWaiting:
		r.waiting(v)
	case journal.SignalReceived:
		if v.Run != "" { // a message to no run is in its chunk
			r.received(v)
		}
	case journal.FanOut:
		r.fannedOut(v)
	case journal.BranchesReleased: // it names no branches: the record of the fan-out does
		r.Kind, r.Summary = Spread, "spreads to "+Counted(max(len(v.Branches)-1, 0), "more branch")
	case journal.BranchOutcomes:
		r.Kind = Disposed
		for _, b := range v.Branches {
			r.Ends = append(r.Ends, journal.BranchOutcome{Session: b.Session, State: b.State, Reason: excerpt(b.Reason, MaxReason)})
		}
		r.Summary = dispositions(r.Ends, Short)
	case journal.Quarantined:
		r.quarantined(v)
	case journal.Rebudgeted:
		r.rebudgeted(v)
	}
}

// anonymous is the user of a client without credentials, which means nothing to people.
const anonymous = "anonymous"

func (r *Record) submitted(v journal.Submitted) {
	r.Kind = Submitted
	named := "run " + Short(session.ID(r.Run)) + " of " + r.Workflow
	if b := v.Task.Branch; b != nil {
		up := b.Parent()
		r.BranchOf = &Place{Run: up.Run, Session: up.Session, Step: up.Path}
		r.Name = excerpt(b.Name, MaxSummary)
		named = "branch " + clip(r.Name, 30) + " of run " + Short(session.ID(up.Run))
		if b.Remote {
			named += ", workflow " + r.Workflow + ","
		}
	}
	r.Via = excerpt(v.Via, 64)
	r.Due = v.Task.NotBefore
	switch {
	case v.Behind != "":
		r.Kind, r.Behind = Queued, v.Behind
		r.Summary = named + " waits behind " + Short(session.ID(v.Behind))
	default:
		r.Summary = named + " submitted"
	}
	switch {
	case r.By == "" || r.By == anonymous && r.Via == "" || r.BranchOf != nil: // a branch has it from the run around it
	case r.Via != "":
		r.Summary += ", by " + clip(r.By, 20) + ", again by " + clip(r.Via, 20)
	default:
		r.Summary += ", by " + clip(r.By, 20)
	}
	if r.Due > 0 {
		r.Summary += ", not before " + moment(r.Due)
	}
}

func (r *Record) claimed(v journal.Claimed) {
	r.Kind, r.Node = Claimed, v.Incarnation
	if v.Home.ID != r.Session {
		r.Home = v.Home.ID
	}
	switch {
	case r.Home != "":
		r.Summary = "run works on this session"
	case v.Attempt > 1: // after a wait or after a break, which the record alone does not say
		r.Summary = fmt.Sprintf("run goes on, attempt %d", v.Attempt)
	default:
		r.Summary = "run starts"
	}
}

func (r *Record) released(v journal.Released) {
	r.Kind = Released
	switch {
	case v.Workflow == "":
		r.Summary = "run lets the session go"
	case v.Step != "":
		r.Summary = "run parks for a node with revision " + quote(v.Revision, 30) + ": step " + string(v.Step) + " is another one here"
	default:
		r.Summary = "run parks: " + excerpt(v.Reason, 60)
	}
}

func (r *Record) ended(v journal.Ended) {
	if v.Workflow == "" { // in the log of a session that is not the run's home
		r.Kind = Released
		r.Summary = "run lets the session go: " + strings.ReplaceAll(string(v.State), "_", " ")
		return
	}
	r.Kind, r.Unrecorded = Ended, v.Unrecorded
	if v.Result != nil {
		r.Result = new(refOf(*v.Result))
	}
	if v.State == run.Succeeded && v.Version > 0 && (r.Result == nil || r.Result.Version != v.Version) { // with what was committed together with the end
		r.Result = &Ref{Commit: r.Commit, Hash: r.Hash, Session: r.Session, Version: v.Version}
	}
	if v.Parent != nil {
		r.BranchOf = &Place{Run: v.Parent.Run, Session: v.Parent.Session, Step: v.Parent.Path}
	}
	for _, id := range v.Branches {
		r.Ends = append(r.Ends, journal.BranchOutcome{Session: id, State: session.ClosedCancelled, Reason: "the run that opened it has " + string(v.State)})
	}
	r.Summary = "run " + strings.ReplaceAll(string(v.State), "_", " ")
	switch {
	case v.Error != "":
		r.Summary += ": " + excerpt(strings.TrimPrefix(v.Error, "llm: "), 80)
	case v.Usage.Calls > 0:
		r.Summary += fmt.Sprintf(", %s, %s tokens", Counted(int(v.Usage.Calls), "model call"), Thousands(v.Usage.Tokens()))
	}
}

func (r *Record) waiting(v journal.RunWaiting) {
	r.Kind = Waiting
	for _, w := range v.For {
		r.Waits = append(r.Waits, Wait{
			Branches: slices.Clone(w.Branches), Due: w.Due, Kind: w.Kind, Name: excerpt(w.Name, 64), Need: w.Need, Step: w.Path, Title: excerpt(w.Title, MaxSummary), Wants: w.Wants(),
		})
	}
	if len(r.Waits) == 0 {
		r.Summary = "waits for nothing"
		return
	}
	r.Step = r.Waits[0].Step
	r.Summary = "waits " + r.Waits[0].String()
	if n := len(r.Waits) - 1; n > 0 {
		r.Summary = clip(r.Summary, MaxSummary-20) + fmt.Sprintf(" and %d more", n)
	}
}

// String says what is waited for: "for approval: Publish?", "until 2026-11-20 09:00
// UTC", "for 2 of 3 branches".
func (w Wait) String() string {
	until := ""
	if w.Due > 0 {
		until = "until " + moment(w.Due)
	}
	text := ""
	switch w.Kind {
	case run.WaitTimer:
		return cmp.Or(until, "for a time")
	case run.WaitBranches:
		text = "for " + Counted(len(w.Branches), "branch")
		if w.Need > 0 && w.Need < len(w.Branches) {
			text = fmt.Sprintf("for %d of %s", w.Need, Counted(len(w.Branches), "branch"))
		}
	case run.WaitMessage:
		text = "for a message"
	default:
		text = "for " + cmp.Or(w.Kind, "something")
		if what := cmp.Or(w.Title, w.Name); what != "" {
			text += ": " + clip(what, 70-len(until)/2)
		}
		if w.Kind == run.WaitResponse && w.Wants != "" {
			text += " (" + clip(w.Wants, 40) + ")"
		}
	}
	if until != "" {
		text += " (" + until + ")"
	}
	return text
}

// moment writes a time of a record, in the zone that all of them share.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04 MST") }

func (r *Record) received(v journal.SignalReceived) {
	r.Wake, r.Name = v.Wake, excerpt(v.Kind, 20)
	by := cmp.Or(r.who(), "somebody")
	switch v.Kind {
	case journal.Approve, journal.Refuse, journal.Respond:
		verb := map[string]string{journal.Approve: "approved", journal.Refuse: "rejected", journal.Respond: "answered"}[v.Kind]
		r.Kind, r.Summary = Answered, verb+" by "+by
		if v.Kind == journal.Approve && v.Value != "" {
			r.Summary += ", edited"
		}
		switch {
		case v.Reason != "":
			r.Summary += ": " + excerpt(v.Reason, 80)
		case v.Kind == journal.Respond && v.Value != "":
			r.Summary += ": " + excerpt(v.Value, 60)
		}
	case journal.Message:
		verb := " says "
		if v.Interrupt {
			verb = " interrupts: "
		}
		r.Kind = Message
		author := clip(cmp.Or(r.who(), string(session.User)), MaxSummary/2)
		r.Summary = author + verb + quote(v.Text, MaxSummary-len(author)-len(verb))
	case journal.Timer:
		r.Kind, r.Summary = Due, "the time of step "+string(v.Path)+" has come"
	case journal.Report:
		r.Kind = Reported
		if b := v.Branch; b != nil {
			r.Branches, r.Code, r.Usage = []Ref{refOf(b.Link)}, b.Code, b.Usage
			r.Reason = b.Error
			r.State = cmp.Or(r.State, string(run.Waiting))
			r.Ends = []journal.BranchOutcome{{Session: b.Link.ID, State: string(b.State), Reason: excerpt(b.Error, MaxReason)}}
			r.Summary = "branch " + Short(b.Link.ID) + " " + strings.ReplaceAll(string(b.State), "_", " ")
			if b.Error != "" {
				r.Summary += ": " + excerpt(b.Error, 60)
			}
		}
	default:
		r.Kind, r.Summary = Message, by+" sends "+r.Name
	}
}

func (r *Record) quarantined(v journal.Quarantined) {
	r.Kind = Quarantined
	verb := "quarantines the session"
	if v.Released {
		r.Kind, verb = Readmitted, "lets the session go on"
	}
	r.Summary = cmp.Or(r.who(), "somebody") + " " + verb
	if v.Reason != "" {
		r.Summary += ": " + excerpt(v.Reason, 70)
	}
}

func (r *Record) rebudgeted(v journal.Rebudgeted) {
	r.Kind = Rebudgeted
	r.Summary = cmp.Or(r.who(), "somebody") + " sets the budget: " + BudgetText(v.Budget)
	if v.Reason != "" {
		r.Summary += " " + quote(v.Reason, 40)
	}
}

// dispositions says how several branches ended.
func dispositions(ends []journal.BranchOutcome, name func(session.ID) string) string {
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

// BudgetText is the limits of a budget.
func BudgetText(b run.Budget) string {
	var parts []string
	if b.Tokens > 0 {
		parts = append(parts, Counted(b.Tokens, "token"))
	}
	if b.MicroUSD > 0 {
		parts = append(parts, Thousands(b.MicroUSD)+" micro-USD")
	}
	if b.Steps > 0 {
		parts = append(parts, Counted(b.Steps, "step"))
	}
	if b.Time > 0 {
		parts = append(parts, b.Time.String())
	}
	return cmp.Or(strings.Join(parts, ", "), "no limit")
}

// Counted returns "1 step", "2,000 steps", "3 branches".
func Counted[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return Thousands(int64(n)) + " " + noun + "s"
}

// Thousands writes 12345 as "12,345".
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
