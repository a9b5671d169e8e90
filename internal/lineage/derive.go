package lineage

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Derive returns the records of a commit, in the order of its events. It is a
// pure function of the entry, which must be as a log yields it, with the data
// of spilled events loaded. Partition and Seq are left to the caller.
//
// An event of a kind that this release does not know is session.ErrTooOld, one
// that does not decode another error. The records of all other events are
// returned with the error, so that a relay may report it and go on.
func Derive(e session.Entry) ([]Record, error) {
	d := deriver{entry: e, taken: make([]bool, len(e.Commit.Events)), rows: make([]int, len(e.Commit.Events))}
	n := 0
	for i, ev := range e.Commit.Events {
		if session.IsContent(ev.Kind) {
			n++
		}
		d.rows[i] = n
		if ev.Kind == run.KindWriter {
			if w, err := run.Read[run.WriterOpened](ev); err == nil { // else it says less, and who folds the log is told
				d.writer = w
			}
		}
	}
	outcomes := map[int]int{}
	for i, ev := range e.Commit.Events {
		if ev.Kind == run.KindDone {
			if j, ok := d.outcome(i, ev); ok {
				outcomes[i] = j
			}
		}
	}
	out := make([]Record, 0, len(e.Commit.Events)) // they are large to move
	var first error
	for i, ev := range e.Commit.Events {
		if d.taken[i] {
			continue
		}
		r := d.blank(i, ev)
		ok, err := d.fill(&r, ev)
		if j, has := outcomes[i]; has && ok && err == nil {
			if session.IsContent(e.Commit.Events[j].Kind) {
				r.Rows = d.rows[j]
			}
			err = d.complete(&r, e.Commit.Events[j])
		}
		switch {
		case err != nil:
			if first == nil {
				first = fmt.Errorf("lineage: commit %d of %s, event %d: %w", e.Commit.Seq, e.Commit.Key, i, err)
			}
		case ok:
			if d.opened {
				r.Version = d.base + session.Version(r.Rows)
			}
			r.Summary, r.Reason = line(r.Summary, MaxSummary), tell(r.Reason, MaxReason)
			out = append(out, r)
		}
	}
	return out, first
}

type deriver struct {
	entry  session.Entry
	writer run.WriterOpened          // zero unless the commit opens an epoch
	rows   []int                     // content events up to and including each event
	taken  []bool                    // told by the record of a step
	steps  map[int]run.StepCompleted // by event; each is decoded once
	opened bool                      // the commit opens the session, so that versions are known
	base   session.Version
}

// step reads the event that a step is done.
func (d *deriver) step(i int) (run.StepCompleted, error) {
	if v, ok := d.steps[i]; ok {
		return v, nil
	}
	v, err := run.Read[run.StepCompleted](d.entry.Commit.Events[i])
	if err == nil {
		if d.steps == nil {
			d.steps = map[int]run.StepCompleted{}
		}
		d.steps[i] = v
	}
	return v, err
}

func (d *deriver) blank(i int, ev session.Event) Record {
	c := d.entry.Commit
	return Record{
		Schema: Schema, Tenant: c.Tenant, Root: c.Root, Session: c.ID, Commit: c.Seq, Hash: d.entry.At.Hash.String(),
		K: i, Epoch: c.Epoch, Durability: d.writer.Durability, Rows: d.rows[i], Time: max(ev.Time.UnixMilli(), 0),
	}
}

// outcome finds the event that a step's record already tells: the row that a
// model or tool call added, the join, the rejection, the placement, the
// branches. They are in the batch of the step.
func (d *deriver) outcome(i int, ev session.Event) (int, bool) {
	done, err := d.step(i)
	if err != nil {
		return 0, false // fill reports it
	}
	want := map[string]string{
		run.StepModel: session.KindChunk, run.StepTool: session.KindChunk, run.StepJoin: session.KindJoined,
		run.StepReject: session.KindRejected, run.StepOpen: session.KindPlaced, run.StepCompress: session.KindChunk,
		run.StepFanOut: run.KindFanOut,
	}[done.Kind]
	if want == "" || want == session.KindChunk && !done.Row {
		return 0, false
	}
	for j := len(d.entry.Commit.Events) - 1; j >= 0; j-- {
		o := d.entry.Commit.Events[j]
		if o.Kind != want || d.taken[j] || o.Batch != ev.Batch {
			continue
		}
		if want == session.KindChunk {
			c, err := session.DecodeChunk(o)
			if err != nil || !madeBy(c, done) {
				continue
			}
		}
		d.taken[j] = true
		return j, true
	}
	return 0, false
}

// madeBy reports whether a row is the outcome of a step: a batch may hold the
// author's own rows beside it, and those of calls that had to wait.
func madeBy(c session.Chunk, d run.StepCompleted) bool {
	switch d.Kind {
	case run.StepTool:
		return c.Kind() == session.ToolResult && (c.Origin().Step == string(d.Path) || c.CallID() == d.Call)
	case run.StepModel:
		return c.Kind() == session.Assistant
	}
	return true
}

// fill makes the record of one event; ok is false for events that tell nothing
// to anybody outside.
func (d *deriver) fill(r *Record, ev session.Event) (ok bool, err error) {
	if ev.Data == "" && !ev.Blob.Digest.IsZero() {
		return false, fmt.Errorf("data of %s lies in blob %s and was not loaded: derive from what the log yields", ev.Kind, ev.Blob.Digest.Short())
	}
	switch {
	case strings.HasPrefix(ev.Kind, "session."):
		return true, d.fillSession(r, ev)
	case strings.HasPrefix(ev.Kind, "step."):
		return true, d.fillStep(r, ev)
	case ev.Kind == run.KindWarmed:
		return false, nil // the parent's log tells what follows
	case strings.HasPrefix(ev.Kind, "run."):
		err := d.fillRun(r, ev)
		return ev.Kind != run.KindReceived || r.Run != "", err // a message that no run got is told by its chunk
	case ev.Kind == run.KindWriter:
		return false, nil // each record carries the epoch
	case strings.HasPrefix(ev.Kind, "writer."):
		return false, unknown(ev)
	}
	return false, nil
}

// fillSession tells of an event of the session itself: in a record of its own
// or, where r is that of the step whose outcome the event is, in addition.
func (d *deriver) fillSession(r *Record, ev session.Event) error {
	switch ev.Kind {
	case session.KindOpened:
		o, err := session.DecodeOpening(ev)
		if err != nil {
			return err
		}
		d.opening(r, o)
	case session.KindChunk:
		c, err := session.DecodeChunk(ev)
		if err != nil {
			return err
		}
		if r.Kind == "" {
			r.Kind = Chunk
		}
		chunk(r, c)
		r.Summary = says(r.Actor(), c)
	case session.KindPlaced:
		p, err := session.DecodePlacement(ev)
		if err != nil {
			return err
		}
		r.Kind = Placed
		placed(r, p)
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
		r.Kind, r.State, r.Reason = Rejected, v.State, v.Reason
		r.Branches = []Ref{refOf(v.Branch)}
		r.Summary = disposition(v.State, Short(v.Branch.ID), v.Reason)
	case session.KindClosed:
		c, err := session.DecodeClosing(ev)
		if err != nil {
			return err
		}
		r.Kind, r.State, r.Reason, r.By = Closed, c.State, c.Reason, string(c.By.ID)
		r.Summary = disposition(c.State, "", c.Reason)
	case session.KindArchived:
		a, err := session.DecodeArchival(ev)
		if err != nil {
			return err
		}
		r.Kind, r.By, r.Name = Archived, a.By, tell(a.File, MaxSummary)
		r.Summary = "session archived as " + a.File
	case session.KindRestored:
		v, err := session.DecodeRestoration(ev)
		if err != nil {
			return err
		}
		r.Kind, r.By, r.Reason = Restored, v.By, v.Reason
		r.Summary = "session goes on: " + v.Reason
	default:
		return unknown(ev)
	}
	return nil
}

// unknown refuses an event of a namespace that this release folds.
func unknown(ev session.Event) error {
	return fmt.Errorf("unknown event %s: %w", ev.Kind, session.ErrTooOld)
}

func (d *deriver) opening(r *Record, o session.Opening) {
	r.Via, r.Name, r.Run, r.Step = o.Kind, tell(o.Name, MaxSummary), run.ID(o.Run), run.Path(o.Step)
	var from []string
	for _, l := range o.Parents {
		r.Parents = append(r.Parents, refOf(l))
		from = append(from, Short(l.ID)+" at "+fmt.Sprint(l.Version))
	}
	r.Kind = Opened
	r.Summary = "session opens"
	switch o.Kind {
	case session.OpenFork, session.OpenImplicit:
		r.Kind, r.Summary = Forked, "fork of "+strings.Join(from, " and ")
		if o.Kind == session.OpenImplicit {
			r.Summary = "implicit " + r.Summary
		}
		if r.Name != "" {
			r.Summary += " (" + clip(r.Name, 30) + ")"
		}
	case session.OpenDetach:
		r.Kind, r.Summary = Detached, "detached from "+strings.Join(from, " and ")
	case session.OpenMerge:
		r.Kind, r.Summary = Concatenated, "concatenates "+strings.Join(from, " and ")
	case session.OpenCompress:
		r.Summary = "summary of " + strings.Join(from, " and ")
	case session.OpenImport:
		r.Kind, r.Summary = Imported, "imports "+quote(o.Name, 60)
	}
	d.opened = true
	if len(o.Parents) == 1 && (r.Kind == Forked || r.Kind == Detached) {
		d.base = o.Parents[0].Version
	}
}

// chunk takes over what a row says of its making. Its text stays behind.
func chunk(r *Record, c session.Chunk) {
	o := c.Origin()
	r.Role, r.Calls = string(c.Kind()), c.CallCount()
	r.Agent, r.Workflow, r.Node = or(o.Agent, r.Agent), or(r.Workflow, o.Workflow), or(r.Node, o.Node)
	r.Tool, r.Call = or(r.Tool, c.Name()), or(r.Call, c.CallID())
	if r.Run == "" {
		r.Run, r.Step = run.ID(o.Run), run.Path(o.Step)
	}
	if r.Usage == (session.Usage{}) {
		r.Usage = o.Usage
	}
	if r.Head == "" {
		r.Head = hexOf(o.Placement.Head)
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func hexOf(d blob.Digest) string {
	if d.IsZero() {
		return ""
	}
	return d.String()
}

func placed(r *Record, p session.Placement) {
	r.Name, r.Epoch = tell(p.Backend, 40), max(r.Epoch, p.Epoch)
	if r.Head == "" {
		r.Head = hexOf(p.Head)
	}
	r.Summary = "goes to " + r.Name // the spec stays behind: it may name more than a place
	if p.Isolation != "" {
		r.Summary += " (" + tell(p.Isolation, 40) + ")"
	}
	if !p.Head.IsZero() {
		r.Summary += ", files at " + p.Head.Short()
	}
}

func joined(r *Record, j session.Join) {
	r.Kind, r.Policy, r.Reason = Merged, j.Policy, j.Reason
	r.Head = or(r.Head, hexOf(j.Placement.Head))
	if r.Usage == (session.Usage{}) {
		r.Usage = j.Usage
	}
	var from []string
	for _, p := range j.Parents {
		r.Parents = append(r.Parents, refOf(p.Link))
		from = append(from, Short(p.Link.ID))
	}
	verb := "merges "
	if j.Policy == session.JoinAdopt || j.Policy == session.JoinReplace {
		r.Kind, verb = Adopted, "adopts "
	}
	r.Summary = verb + strings.Join(from, ", ")
	if j.Reason != "" {
		r.Summary += " " + quote(j.Reason, max(MaxSummary-len(r.Summary)-1, 20))
	}
}

// disposition is how the end of a branch is told: `REJECTED s2 "too slow"`.
func disposition(state, branch, reason string) string {
	text := strings.ToUpper(tell(state, 20))
	if branch != "" {
		text += " " + branch
	}
	if reason != "" {
		text += " " + quote(reason, MaxSummary-len(text)-1)
	}
	return text
}

// says tells a row in a few words.
func says(actor string, c session.Chunk) string {
	verb := "says "
	switch c.Kind() {
	case session.User:
		verb = "asks "
	case session.System:
		verb = "instructs "
	case session.ToolResult:
		if c.Failed() {
			return actor + " answers with an error"
		}
		return actor + " answers"
	case session.Assistant:
		if c.CallCount() > 0 {
			return actor + " calls " + callNames(c)
		}
	}
	return actor + " " + verb + quote(c.Text(), MaxSummary-len(actor)-len(verb)-1)
}

func callNames(c session.Chunk) string {
	var names []string
	count := map[string]int{}
	for _, call := range c.Calls() {
		n := tell(call.Name, 40)
		if count[n]++; count[n] == 1 {
			names = append(names, n)
		}
	}
	for i, n := range names {
		if count[n] > 1 {
			names[i] = fmt.Sprintf("%s x%d", n, count[n])
		}
	}
	return strings.Join(names, ", ")
}
