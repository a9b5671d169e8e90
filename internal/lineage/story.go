package lineage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Line is one line of a story: who did what, and the version after it.
type Line struct {
	Version session.Version `json:"version"`
	Actor   string          `json:"actor"`
	Text    string          `json:"text"`
	Kind    Kind            `json:"kind"`
	Failed  bool            `json:"failed,omitempty"`
	Run     run.ID          `json:"run,omitempty"`
	Step    run.Path        `json:"step,omitempty"`
	Time    time.Time       `json:"time"`

	commit uint64
	joins  []Ref // parents of an adopted or merged line
}

// chapter is the story of one session.
type chapter struct {
	info    Session
	label   string
	title   string // "fork of s1 at 4"
	lines   []Line
	kids    []int  // indexes of the chapters opened from this one, by time
	fork    uint64 // commit of the parent that it was opened from
	depth   int
	folded  string            // of the sessions opened from it that are left out
	until   []uint64          // commits of this session that others were opened from
	commits []uint64          // of all records, for versions
	version []session.Version // after each of them
}

type stepKey struct {
	run  run.ID
	path run.Path
}

// tell builds the chapters of a tree, parents before children.
func (g *Graph) tell(root session.Key, all bool, limit, fold int) ([]chapter, int, error) {
	rows, err := g.rows(root, 0)
	if err != nil {
		return nil, 0, err
	}
	labels := g.labels(rows) // of all, so that leaving out some renames none
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
	out := make([]chapter, len(rows))
	for i, r := range rows {
		index[r.info.Key.ID] = i
		out[i] = chapter{info: r.info, label: labels.Of(r.info.Key.ID), depth: r.depth, folded: r.folded}
	}
	name := func(id session.ID) string {
		if l, ok := labels.names[id]; ok {
			return l
		}
		return Short(id)
	}
	for i := range out {
		c := &out[i]
		t := g.sessions[c.info.Key]
		c.title = title(c.info, name)
		if o := t.opening; o != nil && i > 0 {
			for _, p := range o.Parents {
				if j, ok := index[p.Session]; ok && j < i {
					out[j].kids = append(out[j].kids, i)
					c.fork = p.commit(g.sessions[out[j].info.Key])
					break
				}
			}
			for _, p := range o.Parents {
				if j, ok := index[p.Session]; ok {
					out[j].until = append(out[j].until, p.commit(g.sessions[out[j].info.Key]))
				}
			}
		}
		agents, told := map[stepKey]string{}, telling{called: map[stepKey]bool{}, answered: map[stepKey]bool{}, woken: map[run.ID]bool{}}
		for _, r := range t.records {
			switch r.Kind {
			case Model:
				agents[stepKey{r.Run, r.Step}] = r.Agent
			case Tool:
				told.called[stepKey{r.Run, parentStep(r.Step)}] = true
			case Answered:
				told.answered[stepKey{r.Run, r.Step}] = true
			}
		}
		for n, r := range t.records {
			if r.Kind == Tool && r.Agent == "" { // its row, which tells, may come later
				r = t.record(n)
				r.Agent = agents[stepKey{r.Run, parentStep(r.Step)}]
				if rest, ok := strings.CutPrefix(r.Summary, t.records[n].Actor()+" "); ok && r.Agent != "" {
					r.Summary = r.Agent + " " + rest
				}
			}
			c.commits, c.version = append(c.commits, r.Commit), append(c.version, t.versions[n])
			if told.worth(r) || all {
				c.lines = append(c.lines, storyLine(r, t.versions[n], name))
			}
		}
	}
	return out, left, nil
}

func title(s Session, name func(session.ID) string) string {
	var from []string
	for _, p := range s.Parents {
		from = append(from, fmt.Sprintf("%s at %d", name(p.Session), p.Version))
	}
	parents := strings.Join(from, " and ")
	text := ""
	switch s.Via {
	case session.OpenFork:
		text = "fork of " + parents
	case session.OpenImplicit:
		text = "implicit fork of " + parents
	case session.OpenDetach:
		text = "detached from " + parents
	case session.OpenMerge:
		text = "concatenates " + parents
	case session.OpenCompress:
		text = "summary of " + parents
	case session.OpenImport:
		text = "import"
	case "":
		text = "beginning is missing"
	}
	if s.Name != "" {
		text = strings.TrimPrefix(text+" ("+clip(s.Name, 30)+")", " ")
	}
	return text
}

// telling is what the story of a session tells elsewhere, or has told.
type telling struct {
	called   map[stepKey]bool // steps with tool calls
	answered map[stepKey]bool // questions
	woken    map[run.ID]bool  // by what has come, so that going on is no news
}

// worth reports whether a record is part of the story that people read first:
// what agents and tools did, and what stopped or changed a run. A step whose
// tool calls are told needs no line of its own. It is asked about the records
// in order.
func (t telling) worth(r *Record) bool {
	if r.Wake > 0 {
		t.woken[r.Run] = true
	}
	switch r.Kind {
	case Model:
		return r.Calls == 0 || r.Failed() || !t.called[stepKey{r.Run, r.Step}]
	case Awaited:
		return !t.answered[stepKey{r.Run, r.Step}]
	case Tool, Recalled, Remembered, Compressed, Selected, FannedOut, Gathered, Adopted, Merged, Late, Review, Resolved, Cancel,
		Warning, Answered, Message, Quarantined, Readmitted, Rebudgeted, Ended:
		return true
	case Waiting: // its branches, if it waits for them, tell themselves
		return !slices.ContainsFunc(r.Waits, func(w Wait) bool { return w.Kind == run.WaitBranches })
	case Disposed:
		return len(r.news()) > 0
	case Did: // but not what a call or a join does on its way
		return r.Failed() || !t.called[stepKey{r.Run, r.Step}] && !r.flushes()
	case Placed:
		return r.Failed()
	case Chunk:
		return r.Role == string(session.User) || r.Run == "" && r.Role != string(session.System)
	case Claimed:
		woken := t.woken[r.Run]
		t.woken[r.Run] = false
		return r.Home == "" && r.Attempt > 1 && !woken
	case Released:
		return r.State != ""
	}
	return false
}

// flushes reports whether the record is of a step that only records edits which
// were pending, on the way of another step.
func (r *Record) flushes() bool {
	return r.Kind == Did && strings.HasSuffix(string(r.Step), ".commit")
}

// news returns the ends of branches of which nothing else in the parent's
// story tells: a join does of what it took, a gather of what it cancelled.
func (r *Record) news() []journal.BranchOutcome {
	return slices.DeleteFunc(slices.Clone(r.Ends), func(e journal.BranchOutcome) bool {
		return e.State != session.ClosedRejected && e.State != session.ClosedFailed
	})
}

func storyLine(r *Record, v session.Version, name func(session.ID) string) Line {
	l := Line{
		Version: v, Actor: r.Actor(), Text: r.Action(), Kind: r.Kind, Failed: r.Failed(), Run: r.Run, Step: r.Step, Time: r.When(),
		commit: r.Commit,
	}
	switch r.Kind {
	case Adopted, Merged:
		if len(r.Parents) == 0 {
			return l
		}
		var from []string
		for _, p := range r.Parents {
			if p.Session != r.Session {
				l.joins = append(l.joins, p)
				from = append(from, name(p.Session))
			}
		}
		verb := "merges "
		if r.Kind == Adopted {
			verb = "adopts "
		}
		l.Actor, l.Text = "workflow", verb+strings.Join(from, ", ")
		if r.Reason != "" {
			l.Text += " " + quote(r.Reason, 80)
		}
	case Closed:
		l.Actor, l.Text = strings.ToUpper(line(r.State, 20)), ""
		if r.By != "" {
			l.Text = "by " + name(session.ID(r.By))
		}
		if r.Reason != "" {
			l.Text += " " + quote(r.Reason, 80)
		}
	case Disposed:
		l.Text = dispositions(r.news(), name)
	case Reported:
		if len(r.Ends) > 0 {
			e := r.Ends[0]
			l.Text = strings.Replace(l.Text, Short(e.Session), name(e.Session), 1)
		}
	case Rejected:
		if len(r.Branches) > 0 {
			l.Actor, l.Text = "workflow", disposition(r.State, name(r.Branches[0].Session), r.Reason)
		}
	}
	return l
}

// verdict tells how a session ended: `REJECTED` and `"breaks empty input"`.
func (c *chapter) verdict(name func(session.ID) string) (word, text string) {
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

// tellsEnd reports whether the lines tell already how the session ended.
func (c *chapter) tellsEnd() bool {
	return slices.ContainsFunc(c.lines, func(l Line) bool { return l.Kind == Closed })
}

// before reports whether a line of the parent comes before the story of a
// session that was opened from a commit of the parent at a time.
func (l *Line) before(fork uint64, opened time.Time) bool {
	return l.commit <= fork || l.Time.Before(opened)
}
