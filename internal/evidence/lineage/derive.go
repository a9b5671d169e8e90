package lineage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Derive returns the records of a commit, in the order of its events. It is a
// pure function of the entry, which must be as a log yields it, with the data
// of offloaded events loaded. The caller sets Partition and Seq.
//
// It fails with session.ErrTooOld for an event of an unknown kind, and with another
// error for an event that does not decode. It returns the records of all other events
// with the error, so that a relay may report it and continue.
func Derive(e commitlog.Entry) ([]messages.Record, error) {
	return Derived(nil, e, journal.Facts(e.Commit))
}

// Derived is Derive for a caller that has the facts of the commit. It appends the records
// to out and does not change the facts.
func Derived(out []messages.Record, e commitlog.Entry, facts []journal.Fact) ([]messages.Record, error) {
	d := deriver{entry: e, hash: e.At.Hash.String(), facts: facts, events: make([]derived, len(facts))}
	d.index()
	out = slices.Grow(out, len(facts)) // they are large to move
	var first error
	for i := range facts {
		if d.events[i].taken {
			continue
		}
		r, err := d.record(i)
		switch {
		case err != nil:
			if first == nil {
				first = fmt.Errorf("lineage: commit %d of %s, event %d: %w", e.Commit.Seq, e.Commit.Key, i, err)
			}
		case r.Kind != "":
			if d.opened {
				r.Version = d.base + session.Version(r.Rows)
			}
			r.Summary, r.Reason = short(line(r.Summary, 2*MaxSummary), MaxSummary), maskedLine(r.Reason, MaxReason)
			out = append(out, r)
		}
	}
	return out, first
}

type deriver struct {
	entry      commitlog.Entry
	hash       string
	facts      []journal.Fact
	events     []derived // of the facts
	durability string    // stated by a commit that opens an epoch; "" in others
	opened     bool      // the commit opens the session, so that versions are known
	base       session.Version
}

// derived is the data about one event that depend on the other events of its commit.
type derived struct {
	rows  int  // content events up to and including it
	made  int  // the event that the record of a step covers too, -1 for none
	taken bool // covered by the record of a step
}

// index counts the content events, and finds the event in a step's batch that the
// step's record covers: the row that a model or tool call added, the join, the
// rejection, the placement, the branches.
func (d *deriver) index() {
	n := 0
	for i := range d.facts {
		f := &d.facts[i]
		if session.IsContent(f.Kind) {
			n++
		}
		d.events[i] = derived{rows: n, made: -1}
		if w, ok := f.What.(journal.WriterOpened); ok {
			d.durability = w.Durability
		}
	}
	for i := range d.facts {
		done, ok := d.facts[i].What.(journal.StepCompleted)
		for j := len(d.facts) - 1; ok && j >= 0; j-- {
			if o := &d.facts[j]; !d.events[j].taken && o.Batch == d.facts[i].Batch && makes(done, o.What) {
				d.events[i].made, d.events[j].taken, ok = j, true, false
			}
		}
	}
}

// makes reports whether a fact is the outcome of a step: the batch may also hold the
// author's own rows, and the rows of calls that had to wait.
func makes(d journal.StepCompleted, what any) bool {
	switch o := what.(type) {
	case session.Chunk:
		switch d.Kind {
		case journal.StepModel:
			return d.Row && o.Kind() == session.Assistant
		case journal.StepTool:
			return d.Row && o.Kind() == session.ToolResult && (o.Origin().Step == string(d.Path) || o.CallID() == d.Call)
		}
		return d.Row && d.Kind == journal.StepCompress
	case session.Join:
		return d.Kind == journal.StepJoin
	case commitlog.Rejection:
		return d.Kind == journal.StepReject
	case session.Placement:
		return d.Kind == journal.StepOpen
	case journal.FanOut:
		return d.Kind == journal.StepFanOut
	case journal.Start:
		return d.Kind == journal.StepStart
	}
	return false
}

// record returns the record of one event; its kind is "" for events without a record.
func (d *deriver) record(i int) (messages.Record, error) {
	c, f := d.entry.Commit, &d.facts[i]
	r := messages.Record{
		Schema: Schema, Tenant: c.Tenant, Root: c.Root, Session: c.ID, Commit: c.Seq, Hash: d.hash,
		K: i, Epoch: c.Epoch, Durability: d.durability, Rows: d.events[i].rows, Time: max(f.Time.UnixMilli(), 0),

		Run: f.Run, Step: f.Step, Attempt: f.Attempt, State: string(f.State), Workflow: f.Workflow, Revision: f.Revision,
		By: maskedLine(f.By, 64), Says: maskedLine(f.Says, 64), Reason: f.Reason, Code: f.Code, Usage: f.Usage,
	}
	if f.Err != nil {
		return r, f.Err
	}
	switch v := f.What.(type) {
	case session.Opening:
		d.opening(&r, v)
	case session.Chunk:
		r.Kind = messages.KindChunk
		fillChunk(&r, v)
	case session.Placement:
		fillPlaced(&r, v)
	case session.Join:
		fillJoined(&r, v)
	case commitlog.Rejection:
		fillRejected(&r, v)
	case session.Closing:
		r.Kind, r.State, r.By = messages.KindClosed, endOf(v.State, v.Reason), string(v.By.ID)
		r.Summary = disposition(r.State, "", v.Reason)
	case commitlog.Archival:
		r.Kind, r.Name = messages.KindArchived, maskedLine(v.File, MaxSummary)
		r.Summary = "session archived as " + v.File
	case commitlog.Restoration:
		r.Kind, r.Summary = messages.KindRestored, fmt.Sprintf("session goes on, by %s: %s", maskedLine(v.By, 64), v.Reason)
	case journal.StepStarted:
		r.Kind, r.Call, r.Tool = messages.KindIntent, v.Call, maskedLine(v.Name, 64)
		r.Summary = r.Tool + " is about to start, once"
	case journal.StepCompleted:
		return r, d.step(&r, v, d.events[i].made)
	case journal.Late:
		r.Kind = messages.KindLate
		fillDone(&r, journal.StepCompleted(v))
		r.Summary = fmt.Sprintf("%s answered attempt %d too late: kept as evidence", cmp.Or(r.Actor(), r.Name), v.Attempt)
	default:
		fillRun(&r, v)
	}
	return r, nil
}

func (d *deriver) opening(r *messages.Record, o session.Opening) {
	r.Via, r.Name = o.Kind, maskedLine(o.Name, MaxSummary)
	for _, l := range o.Parents {
		r.Parents = append(r.Parents, refOf(l))
	}
	r.Kind, r.Summary = messages.KindOpened, cmp.Or(origin(o.Kind, r.Parents, Short), "session opens")
	switch o.Kind {
	case session.OpenFork, session.OpenImplicit:
		if r.Kind = messages.KindForked; r.Name != "" {
			r.Summary += " (" + excerpt.Cut(r.Name, 30) + ")"
		}
	case session.OpenCall:
		r.Summary += " (" + excerpt.Cut(r.Name, 30) + ")"
	case session.OpenDetach:
		r.Kind = messages.KindDetached
	case session.OpenMerge:
		r.Kind = messages.KindConcatenated
	case session.OpenImport:
		r.Kind, r.Summary = messages.KindImported, "imports "+quote(o.Name, 60)
	}
	d.opened = true
	if len(o.Parents) == 1 && (r.Kind == messages.KindForked || r.Kind == messages.KindDetached) {
		d.base = o.Parents[0].Version
	}
}

// origin describes the parents of a session, as in "fork of s1 at 4"; "" if it has
// none.
func origin(via string, parents []messages.Ref, name func(session.ID) string) string {
	verb := map[string]string{
		session.OpenFork: "fork of ", session.OpenImplicit: "implicit fork of ", session.OpenDetach: "detached from ",
		session.OpenMerge: "concatenates ", session.OpenCompress: "summary of ", session.OpenCall: "called by ",
	}[via]
	if verb == "" {
		return ""
	}
	from := make([]string, len(parents))
	for i, p := range parents {
		from[i] = fmt.Sprintf("%s at %d", name(p.Session), p.Version)
	}
	return verb + strings.Join(from, " and ")
}

// fillChunk sets the origin of a row. The row's text stays in the log.
func fillChunk(r *messages.Record, c session.Chunk) {
	o := c.Origin()
	r.Role, r.Calls = string(c.Kind()), c.CallCount()
	r.Agent, r.Workflow, r.Node = cmp.Or(o.Agent, r.Agent), cmp.Or(r.Workflow, o.Workflow), cmp.Or(r.Node, o.Node)
	r.Tool, r.Call = cmp.Or(r.Tool, c.Name()), cmp.Or(r.Call, c.CallID())
	r.Usage, r.Head = cmp.Or(r.Usage, o.Usage), cmp.Or(r.Head, hexOf(o.Placement.Head))
	r.Summary = says(r.Actor(), c)
}

func hexOf(d blob.Digest) string {
	if d.IsZero() {
		return ""
	}
	return d.String()
}

func fillPlaced(r *messages.Record, p session.Placement) {
	r.Kind, r.Name, r.Epoch, r.Head = messages.KindPlaced, maskedLine(p.Backend, 40), max(r.Epoch, p.Epoch), cmp.Or(r.Head, hexOf(p.Head))
	r.Summary = "goes to " + r.Name // without the spec, which may name more than a place
	if p.Isolation != "" {
		r.Summary += " (" + maskedLine(p.Isolation, 40) + ")"
	}
	if !p.Head.IsZero() {
		r.Summary += ", files at " + p.Head.Short()
	}
}

func fillJoined(r *messages.Record, j session.Join) {
	r.Kind, r.Policy, r.Reason = messages.KindMerged, j.Policy, j.Reason
	r.Usage, r.Head = cmp.Or(r.Usage, j.Usage), cmp.Or(r.Head, hexOf(j.Placement.Head))
	if j.Closes() == session.ClosedAdopted {
		r.Kind = messages.KindAdopted
	}
	for _, p := range j.Parents {
		r.Parents = append(r.Parents, refOf(p.Link))
	}
	r.Summary = joins(r.Kind, r.Parents, Short)
	if j.Reason != "" {
		r.Summary += " " + quote(j.Reason, max(MaxSummary-len(r.Summary)-1, 20))
	}
}

// joins describes a join of a kind: "merges s2, s3".
func joins(kind messages.Kind, parents []messages.Ref, name func(session.ID) string) string {
	names := make([]string, len(parents))
	for i, p := range parents {
		names[i] = name(p.Session)
	}
	verb := map[messages.Kind]string{messages.KindAdopted: "adopts ", messages.KindMerged: "merges "}[kind]
	return verb + strings.Join(names, ", ")
}

func fillRejected(r *messages.Record, v commitlog.Rejection) {
	r.Kind, r.State, r.Reason = messages.KindRejected, endOf(v.State, v.Reason), v.Reason
	r.Branches = []messages.Ref{refOf(v.Branch)}
	r.Summary = disposition(r.State, Short(v.Branch.ID), v.Reason)
}

// endOf returns the outcome of a branch for display.
func endOf(state, reason string) string {
	if journal.Scratch(state, reason) {
		return ScratchEnd
	}
	return state
}

// disposition describes the outcome of a branch: `REJECTED s2 "too slow"`.
func disposition(state, branch, reason string) string {
	text := strings.ToUpper(maskedLine(state, 20))
	if branch != "" {
		text += " " + branch
	}
	if reason != "" {
		text += " " + quote(reason, MaxSummary-len(text)-1)
	}
	return text
}

// says describes a row in a few words.
func says(actor string, c session.Chunk) string {
	verb := "says "
	switch c.Kind() {
	case session.User:
		switch c.Origin().Agent {
		case "":
			verb = "asks "
		case journal.ByWorkspace:
			return actor + " says " + ofWorkspace(c.Text())
		case journal.ByHook:
		default:
			verb = "sums up "
		}
	case session.System:
		verb = "instructs "
	case session.ToolResult:
		if c.Failed() {
			return actor + " answers with an error"
		}
		return actor + " answers"
	case session.Assistant:
		if c.CallCount() > 0 {
			return actor + " calls " + CallNames(c, "x")
		}
	}
	return actor + " " + verb + quote(c.Text(), MaxSummary-len(actor)-len(verb)-1)
}

// ofWorkspace lists the quotes in a row of the workspace: "AGENTS.md, 2 skills". Each
// quoted text is one line.
func ofWorkspace(text string) string {
	var parts []string
	if strings.Contains(text, `,"AGENTS.md`) {
		parts = append(parts, "AGENTS.md")
	}
	text, _, _ = strings.Cut(text, "\nLeft out:")
	_, skills, _ := strings.Cut(text, "\nSkills of the workspace")
	if n := strings.Count(skills, "\n- ["); n == 1 {
		parts = append(parts, "1 skill")
	} else if n > 1 {
		parts = append(parts, fmt.Sprintf("%d skills", n))
	}
	if len(parts) == 0 {
		return "what its files hold for agents"
	}
	return strings.Join(parts, ", ")
}

// CallNames lists the tools that a row calls; times precedes the number of calls, as in
// "grep x2".
func CallNames(c session.Chunk, times string) string {
	var names []string
	count := map[string]int{}
	for _, call := range c.Calls() {
		n := maskedLine(call.Name, 40)
		if count[n]++; count[n] == 1 {
			names = append(names, n)
		}
	}
	for i, n := range names {
		if count[n] > 1 {
			names[i] = fmt.Sprintf("%s %s%d", n, times, count[n])
		}
	}
	return strings.Join(names, ", ")
}
