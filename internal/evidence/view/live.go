package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// LiveRun is the current status of a run and its other known data.
type LiveRun struct {
	Info *messages.RunInfo
	Live *messages.Live
	Node string // the name of the node that executes it
}

// liveLines is the maximum number of displayed lines of the text a model is writing.
const liveLines = 6

// WriteLive writes a run's current activity, or its waits, and their deadlines. answers are
// the alternative commands that answer the run's question, if it has one.
func WriteLive(w *term.Writer, r *LiveRun, answers ...string) {
	l := r.Live
	now := time.UnixMilli(l.At)
	field := func(name, format string, args ...any) {
		text := term.Clean(fmt.Sprintf(format, args...))
		for i, line := range term.Wrap(text, max(w.Width()-9, 20)) {
			if i > 0 {
				name = ""
			}
			w.Println(w.Dim(term.Pad(name, 9)) + line)
		}
	}
	if l.State == run.Running {
		field("node", "%s, attempt %d", cmp.Or(r.Node, l.Node), l.Attempt)
	}
	for i := range l.Steps {
		s := &l.Steps[i]
		field("step", "%s, %s, for %s", s.Step, StepText(s), Took(now.Sub(time.UnixMilli(s.Began))))
		field("now", "%s", Doing(s, now))
		if s.Error != "" {
			field("before", "try %d failed: %s", max(s.Try-tryUnderWay(s), 1), s.Error)
		}
		if len(s.Calls) > 0 {
			field("calls", "%s", Names(s.Calls))
		}
		if s.Text != "" {
			lines := term.Wrap(strings.TrimSpace(term.Clean(s.Text)), max(w.Width()-2, 20))
			if n := len(lines); n > liveLines {
				lines = append([]string{"..."}, lines[n-liveLines:]...)
			}
			for _, line := range lines {
				w.Println("  " + line)
			}
		}
	}
	if l.More > 0 {
		field("", "and %s", Counted(int64(l.More), "other step"))
	}
	for _, text := range restsOn(r, now) {
		field("waits", "%s", text)
	}
	switch {
	case l.Due <= 0 || len(l.Waits) > 0:
	case l.State == run.Queued && r.Info != nil && r.Info.Due == l.Due:
		field("waits", "for its time: it begins at %s at the earliest, in %s", Moment(time.UnixMilli(l.Due)), Left(now, l.Due))
	default:
		field("until", "%s, in %s at the latest", Moment(time.UnixMilli(l.Due)), Left(now, l.Due))
	}
	for i, answer := range answers {
		w.Println(w.Dim(term.Pad([]string{"answer", "or"}[min(i, 1)], 9)) + answer) // in one line, to be copied
	}
}

// tryUnderWay returns 1 if the latest try of a step is in progress, and 0 if it failed.
func tryUnderWay(s *messages.LiveStep) int {
	if s.Doing == "pauses" {
		return 0
	}
	return 1
}

// StepText describes a step in flight: "coder asks gpt-5.5", "run_shell_command: make test".
func StepText(s *messages.LiveStep) string {
	switch {
	case s.Model != "" || s.Try > 0:
		return cmp.Or(s.Name, "the workflow") + " asks " + cmp.Or(s.Model, "its model")
	case s.Did != "" && s.Did != s.Name:
		return s.Name + ": " + term.Line(s.Did, 100)
	case s.Kind == "tool" || s.Name == "":
		return cmp.Or(s.Name, s.Kind)
	}
	return s.Kind + " " + s.Name
}

// limited names the limit that a call waits for: of the model, or of its key.
func limited(s *messages.LiveStep) string {
	if s.Model == "" {
		return "its model"
	}
	return "model " + s.Model + " or its key"
}

// Doing describes the current activity of a step in flight.
func Doing(s *messages.LiveStep, now time.Time) string {
	since := Took(max(now.Sub(time.UnixMilli(s.At)), 0))
	until := ""
	if s.Until > 0 {
		until = Took(max(time.UnixMilli(s.Until).Sub(now), 0))
	}
	try := ""
	if s.Try > 1 {
		try = fmt.Sprintf("try %d: ", s.Try)
	}
	switch s.Doing {
	case "asks":
		text := try + "nothing of the answer has come for " + since
		if until != "" {
			text += "; it is given up in " + until
		}
		return text
	case "answers":
		return fmt.Sprintf("%sthe model writes, %s so far; the last piece came %s ago", try, Counted(s.Tokens, "token"), since)
	case "waits":
		return "waits for a limit of " + limited(s) + ", for " + since
	case "pauses":
		return fmt.Sprintf("waits %s, then try %d", cmp.Or(until, "a while"), s.Try+1)
	case "queues":
		return "waits for other calls of its round"
	case "opens":
		return "its sandbox is opened, for " + since
	case "records":
		return "its outcome is recorded, for " + since
	}
	return "it runs"
}

// limitText names the limit that a run waits for, and the runs before it.
func limitText(l *messages.LiveLimit) string {
	text := "for the limit of its workflow, " + l.Limit
	if l.Quota {
		text = fmt.Sprintf("for the quota of its tenant, %s (%d have begun today)", l.Limit, l.Begun)
		if l.Opens > 0 {
			text += fmt.Sprintf("; it opens at %s, or with \"rath cluster quota open\"", time.UnixMilli(l.Opens).UTC().Format("2006-01-02 15:04 MST"))
		}
	}
	list := func(ids []run.ID, n int) string {
		var names []string
		for _, id := range ids {
			names = append(names, string(id))
		}
		if more := n - len(ids); more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		return strings.Join(names, ", ")
	}
	if len(l.Holders) > 0 {
		text += "; held by " + list(l.Holders, len(l.Holders))
	}
	if l.Ahead > 0 {
		text += "; before it: " + list(l.Before, l.Ahead)
	}
	return text
}

// restsOn returns the conditions that a run waits for, one line each.
func restsOn(r *LiveRun, now time.Time) (out []string) {
	l := r.Live
	if l.Quarantine != "" {
		out = append(out, "quarantined: "+l.Quarantine)
	}
	switch {
	case l.Silent:
		out = append(out, "for its node, which does not answer: if it has died, another one takes the run within seconds")
	case l.State == run.Running && len(l.Steps) == 0 && l.Since > 0:
		out = append(out, fmt.Sprintf("no step is under way: the workflow's own code has run for %s", Took(max(now.Sub(time.UnixMilli(l.Since)), 0))))
	case l.State == run.Running && len(l.Steps) == 0:
		out = append(out, "its node is beginning or ending it")
	}
	if l.Behind != "" {
		out = append(out, "for run "+string(l.Behind)+", which holds the session")
	}
	if l.Limit != nil {
		out = append(out, limitText(l.Limit))
	}
	if l.Untaken {
		out = append(out, "no node has taken its task yet: none offers the workflow, or too many of its tenant wait")
	}
	if l.Queue != nil {
		out = append(out, queueText(l.Queue, now))
	}
	if l.Review != nil {
		out = append(out, "for a decision: "+l.Review.Reason)
	}
	for _, x := range l.Waits {
		text := x.String()
		if x.Step != "" {
			text += ", at step " + string(x.Step)
		}
		out = append(out, text)
	}
	unbegun := l.Unbegun
	for _, u := range l.Unoffered {
		unbegun -= u.Branches
	}
	if unbegun > 0 {
		out = append(out, Counted(int64(unbegun), "branch")+" of it for a slot")
	}
	return append(out, unoffered(l)...)
}

// unoffered describes the branches of a run whose workflow no live node offers.
func unoffered(l *messages.Live) (out []string) {
	for _, u := range l.Unoffered {
		text := Counted(int64(u.Branches), "branch") + " of it: no node that lives offers workflow " + u.Workflow
		if u.Revision != "" {
			text += " in revision " + u.Revision
		}
		out = append(out, text)
	}
	return out
}

func queueText(q *messages.LiveQueue, now time.Time) string {
	switch {
	case q.Sent != "":
		return "node " + q.Sent + " was sent the run and has not answered yet"
	case q.Pool == "", q.Nodes == 0:
		if q.Revision == "" {
			return "no node that lives offers its workflow"
		}
		return "no node that lives offers its workflow in revision " + q.Revision
	case q.Again > 0:
		return fmt.Sprintf("a node did not take it; it is offered again in %s", Took(max(time.UnixMilli(q.Again).Sub(now), 0)))
	}
	text := fmt.Sprintf("for a slot of pool %s (%s): place %d of %d; ", q.Pool, q.Class, q.Ahead+1, max(q.Waiting, q.Ahead+1))
	switch {
	case q.Free > 0:
		return text + fmt.Sprintf("%s free on %s", Counted(int64(q.Free), "slot"), Counted(int64(q.Nodes), "node"))
	case q.Nodes == 1:
		return text + "all slots of its node are taken"
	}
	return text + fmt.Sprintf("all slots of its %d nodes are taken", q.Nodes)
}

// LiveText returns a run's current activity and the conditions that it waits for, a
// sentence each.
func LiveText(l *messages.Live) (out []string) {
	now := time.UnixMilli(l.At)
	for i := range l.Steps {
		out = append(out, StepText(&l.Steps[i])+": "+Doing(&l.Steps[i], now))
	}
	return append(out, restsOn(&LiveRun{Live: l}, now)...)
}

// LiveNote returns a run's current activity in a few words, "" if it adds no information.
func LiveNote(l *messages.Live) string {
	now := time.UnixMilli(l.At)
	if len(l.Steps) > 0 {
		s := &l.Steps[0]
		text := StepText(s) + ", " + Took(max(now.Sub(time.UnixMilli(s.Began)), 0))
		switch {
		case s.Doing == "waits":
			text += ", waits for a limit of " + limited(s)
		case s.Doing == "pauses":
			text += fmt.Sprintf(", pauses before try %d", s.Try+1)
		case s.Doing == "answers":
			text += ", " + Counted(s.Tokens, "token")
		case s.Try > 1:
			text += fmt.Sprintf(", try %d", s.Try)
		}
		if n := len(l.Steps) + l.More - 1; n > 0 {
			text += fmt.Sprintf(", and %d more", n)
		}
		return text
	}
	switch {
	case l.State == run.Queued && l.Queue != nil && l.Queue.Pool != "" && l.Queue.Nodes > 0 && l.Queue.Sent == "":
		return fmt.Sprintf("place %d of %d for a slot of pool %s", l.Queue.Ahead+1, max(l.Queue.Waiting, l.Queue.Ahead+1), l.Queue.Pool)
	case l.State == run.Waiting && len(l.Unoffered) > 0:
		return unoffered(l)[0]
	case l.State == run.Waiting || l.State == run.NeedsReview || l.State.Terminal():
		return ""
	}
	if rests := restsOn(&LiveRun{Live: l}, now); len(rests) > 0 {
		return rests[0]
	}
	return ""
}
