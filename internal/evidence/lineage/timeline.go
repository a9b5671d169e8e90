package lineage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Line is one line of a timeline: an actor, its action, and the version after it.
type Line struct {
	Version session.Version `json:"version"`
	Actor   string          `json:"actor"`
	Text    string          `json:"text"`
	Kind    messages.Kind   `json:"kind"`
	Failed  bool            `json:"failed,omitempty"`
	Run     run.ID          `json:"run,omitempty"`
	Step    run.Path        `json:"step,omitempty"`
	Time    time.Time       `json:"time"`

	commit uint64
	joins  []messages.Ref // parents of an adopted or merged line
}

// timeline is the history of one session in lines.
type timeline struct {
	info    Session
	label   string
	title   string // "fork of s1 at 4"
	lines   []Line
	kids    []int  // indexes of the sessions opened from this one, by time
	fork    uint64 // commit of the parent that it was opened from, or of the fan-out that opened it
	depth   int
	folded  string            // a line about the omitted sessions opened from it
	until   []uint64          // commits of this session that others were opened from
	commits []uint64          // of all records, for versions
	version []session.Version // after each of them
}

type stepID struct {
	run  run.ID
	path run.Path
}

// opened is the fan-out that opened a session: a commit of a timeline.
type opened struct {
	in     int
	commit uint64
}

// timelines returns the timelines of a tree, parents before children.
func (g *index) timelines(root session.Key, all bool, limit, fold int) ([]timeline, int, error) {
	rows, err := g.rows(root, 0)
	if err != nil {
		return nil, 0, err
	}
	labels := g.labels(rows) // of all rows, so that omitted rows do not change labels
	if fold > 0 {
		if rows, err = g.rows(root, fold); err != nil {
			return nil, 0, err
		}
	}
	left := 0
	if limit > 0 && len(rows) > limit {
		rows, left = rows[:limit], len(rows)-limit
	}
	index := map[session.ID]int{}
	fanned := map[session.ID]opened{}
	out := make([]timeline, len(rows))
	for i, r := range rows {
		index[r.info.Key.ID] = i
		out[i] = timeline{info: r.info, label: labels.Of(r.info.Key.ID), depth: r.depth, folded: r.folded}
	}
	name := func(id session.ID) string { return cmp.Or(labels.names[id], Short(id)) }
	for i := range out {
		c := &out[i]
		t := g.sessions[c.info.Key]
		c.title = title(c.info, name)
		if o := t.opening; o != nil && i > 0 {
			for _, p := range o.Parents {
				if j, ok := index[p.Session]; ok && j < i {
					out[j].kids = append(out[j].kids, i)
					c.fork = commitOfRef(p, g.sessions[out[j].info.Key])
					if o := fanned[c.info.Key.ID]; o.in == j {
						c.fork = max(c.fork, o.commit)
					}
					break
				}
			}
			for _, p := range o.Parents {
				if j, ok := index[p.Session]; ok {
					out[j].until = append(out[j].until, commitOfRef(p, g.sessions[out[j].info.Key]))
				}
			}
		}
		agents, shown := map[stepID]string{}, coverage{called: map[stepID]bool{}, answered: map[stepID]bool{}, woken: map[run.ID]bool{}}
		for _, r := range t.records {
			switch r.Kind {
			case messages.KindModel:
				agents[stepID{r.Run, r.Step}] = r.Agent
			case messages.KindTool:
				shown.called[stepID{r.Run, r.Step.Parent()}] = true
			case messages.KindAnswered:
				shown.answered[stepID{r.Run, r.Step}] = true
			}
		}
		for n, r := range t.records {
			if r.Kind == messages.KindTool && r.Agent == "" { // its row may come later
				r = t.record(n)
				r.Agent = agents[stepID{r.Run, r.Step.Parent()}]
				if rest, ok := strings.CutPrefix(r.Summary, t.records[n].Actor()+" "); ok && r.Agent != "" {
					r.Summary = r.Agent + " " + rest
				}
			}
			if r.Kind == messages.KindFannedOut {
				for _, b := range r.Branches {
					fanned[b.Session] = opened{i, r.Commit}
				}
			}
			c.commits, c.version = append(c.commits, r.Commit), append(c.version, t.versions[n])
			if worth := shown.worth(r); worth || all {
				l := lineOf(r, t.versions[n], name)
				if worth && r.Kind == messages.KindClaimed {
					l.Text = Resumes(r)
				}
				c.lines = append(c.lines, l)
			}
		}
	}
	return out, left, nil
}

func title(s Session, name func(session.ID) string) string {
	text := origin(s.Via, s.Parents, name)
	switch s.Via {
	case session.OpenImport:
		text = "import"
	case "":
		text = "beginning is missing"
	}
	if s.Name != "" {
		text = strings.TrimPrefix(text+" ("+excerpt.Cut(s.Name, 30)+")", " ")
	}
	return text
}

// coverage is the information that other lines of a session show.
type coverage struct {
	called   map[stepID]bool // steps with tool calls
	answered map[stepID]bool // questions
	woken    map[run.ID]bool // runs that a signal woke, so that the next claim needs no line
}

// worth reports whether a record has a line in the default timeline: actions of agents
// and tools, and events that stopped or changed a run. A step whose tool calls have
// lines needs none of its own. The caller passes the records in order.
func (t coverage) worth(r *messages.Record) bool {
	if r.Wake > 0 {
		t.woken[r.Run] = true
	}
	switch r.Kind {
	case messages.KindModel:
		return r.Calls == 0 || r.Failed() || !t.called[stepID{r.Run, r.Step}]
	case messages.KindAwaited:
		return !t.answered[stepID{r.Run, r.Step}]
	case messages.KindTool, messages.KindRecalled, messages.KindRemembered, messages.KindCompressed, messages.KindSelected, messages.KindFannedOut, messages.KindGathered, messages.KindAdopted, messages.KindMerged, messages.KindLate, messages.KindReview, messages.KindResolved, messages.KindCancel,
		messages.KindWarning, messages.KindAnswered, messages.KindMessage, messages.KindQuarantined, messages.KindReadmitted, messages.KindRebudgeted, messages.KindEnded:
		return true
	case messages.KindWaiting: // the branches that it waits for have lines of their own
		return !slices.ContainsFunc(r.Waits, func(w messages.Wait) bool { return w.Kind == run.WaitBranches })
	case messages.KindDisposed:
		return len(newsOf(r)) > 0
	case messages.KindDid: // except steps inside a call or a join
		return r.Failed() || !t.called[stepID{r.Run, r.Step}] && !flushes(r)
	case messages.KindPlaced:
		return r.Failed()
	case messages.KindChunk:
		return r.Role == string(session.User) || r.Run == "" && r.Role != string(session.System)
	case messages.KindClaimed:
		woken := t.woken[r.Run]
		t.woken[r.Run] = false
		return r.Home == "" && r.Attempt > 1 && !woken
	case messages.KindReleased:
		return r.State != ""
	}
	return false
}

// Resumes returns the text of a claim without a wakeup before it: the run's execution had
// ended by itself, or with its node.
func Resumes(r *messages.Record) string { return fmt.Sprintf("resumes, attempt %d", r.Attempt) }

// flushes reports whether the record is of a step that only records the edits pending
// at the start of another step.
func flushes(r *messages.Record) bool {
	return r.Kind == messages.KindDid && strings.HasSuffix(string(r.Step), ".commit")
}

// newsOf returns the ends of branches that no other line of the parent shows: a join
// shows the merged branches, a gather the cancelled ones.
func newsOf(r *messages.Record) []run.BranchOutcome {
	return slices.DeleteFunc(slices.Clone(r.Ends), func(e run.BranchOutcome) bool {
		return e.State != session.ClosedRejected && e.State != session.ClosedFailed
	})
}

func lineOf(r *messages.Record, v session.Version, name func(session.ID) string) Line {
	l := Line{
		Version: v, Actor: r.Actor(), Text: r.Action(), Kind: r.Kind, Failed: r.Failed(), Run: r.Run, Step: r.Step, Time: r.When(),
		commit: r.Commit,
	}
	switch r.Kind {
	case messages.KindAdopted, messages.KindMerged:
		if len(r.Parents) == 0 {
			return l
		}
		l.joins = slices.DeleteFunc(slices.Clone(r.Parents), func(p messages.Ref) bool { return p.Session == r.Session })
		l.Actor, l.Text = "workflow", joins(r.Kind, l.joins, name)
		if r.Reason != "" {
			l.Text += " " + quote(r.Reason, 80)
		}
	case messages.KindClosed:
		l.Actor, l.Text = strings.ToUpper(line(r.State, 20)), ""
		if r.By != "" {
			l.Text = "by " + name(session.ID(r.By))
		}
		if r.Reason != "" {
			l.Text += " " + quote(r.Reason, 80)
		}
	case messages.KindDisposed:
		ends := newsOf(r)
		if len(ends) == 0 { // it has a line among all records only
			ends = r.Ends
		}
		l.Text = dispositions(ends, name)
	case messages.KindReported:
		if len(r.Ends) > 0 {
			e := r.Ends[0]
			l.Text = strings.Replace(l.Text, Short(e.Session), name(e.Session), 1)
		}
	case messages.KindRejected:
		if len(r.Branches) > 0 {
			l.Actor, l.Text = "workflow", disposition(r.State, name(r.Branches[0].Session), r.Reason)
		}
	}
	return l
}

// verdict returns the end of a session as text: `REJECTED` and `"breaks empty input"`.
func (c *timeline) verdict(name func(session.ID) string) (word, text string) {
	s := c.info
	if s.Disposition == Open {
		return "", ""
	}
	word = strings.ToUpper(s.Disposition)
	if s.Disposition == session.ClosedAdopted || s.Disposition == session.ClosedMerged {
		if s.By != "" {
			text = "into " + name(s.By)
		}
		return word, text
	}
	if s.Reason != "" {
		text = quote(s.Reason, MaxSummary)
	}
	return word, text
}

// saysEnd reports whether a line shows the end of the session.
func (c *timeline) saysEnd() bool {
	return slices.ContainsFunc(c.lines, func(l Line) bool { return l.Kind == messages.KindClosed })
}

// before reports whether a line of the parent comes before the lines of a session
// that was opened from a commit of the parent at a time.
func (l *Line) before(fork uint64, opened time.Time) bool {
	return l.commit <= fork || l.Time.Before(opened)
}
