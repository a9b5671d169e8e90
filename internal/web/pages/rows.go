package pages

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// row is one call of a run, or an event of it.
type row struct {
	ID, Icon, Class string
	By, Do, Out     string
	Asked           string // the words of a user
	Said            string // an agent's answer, as Markdown
	Draft           string // the text so far
	Changed         *lines // of a call that changed files
	Failed, Inner   bool   // Inner: of a branch that was adopted
	Name            bool   // the head of such a branch
	Tries           string
	Took, Cost      string
	At              time.Time
	Run             run.ID
	Step            run.Path
	In, Result      string
	Restart         string // the version before the call, as session:version
	Fan             *fan

	heads [2]string
	usage session.Usage
	ms    int64
}

type lines struct{ Added, Removed int }

// Opens reports whether a row has more to show than its line.
func (r *row) Opens() bool { return r.In != "" || r.Result != "" || r.Step != "" }

// text is the searched text of a row.
func (r *row) text() string {
	return strings.ToLower(strings.Join([]string{r.By, r.Do, r.Out, r.Asked, r.Said, r.In, r.Result}, "\n"))
}

// folder folds the records of a run into rows.
type folder struct {
	v     *visit
	graph *lineage.Graph
	info  *messages.RunInfo
	said  map[view.StepKey]*messages.Chunk // assistants' rows by their steps
	given map[view.StepKey]*messages.Chunk // results of calls
	rows  []*row
	asked map[view.StepKey]*row // models that called tools and wait for their first row
	who   map[view.StepKey]string
	base  map[view.StepKey]string // the versions before models' answers
	waits map[run.Path]*row
	begun bool // the task has a row
	woken bool
	inner bool
}

// rowsOf returns the rows of a run, the oldest first.
func rowsOf(v *visit, h *history) []*row {
	f := &folder{
		v: v, graph: h.graph, info: &h.info, said: map[view.StepKey]*messages.Chunk{}, given: map[view.StepKey]*messages.Chunk{},
		asked: map[view.StepKey]*row{}, who: map[view.StepKey]string{}, base: map[view.StepKey]string{}, waits: map[run.Path]*row{},
	}
	for i := range h.talk.Chunks {
		c := &h.talk.Chunks[i]
		k := view.StepKey{Run: run.ID(c.Run), Step: run.Path(c.Step)}
		switch {
		case c.Step == "":
		case c.Kind == session.Assistant:
			f.said[k] = c
		case c.Kind == session.ToolResult:
			f.given[k] = c
		}
	}
	f.fold(f.recordsOf(h.info.Run, h.info.Sessions))
	f.live(h.live)
	return f.rows
}

// recordsOf returns the records of a run in its sessions, in their order.
func (f *folder) recordsOf(id run.ID, sessions []session.ID) []messages.Record {
	var all []messages.Record
	for _, s := range sessions {
		for _, r := range f.graph.Records(session.Key{Tenant: f.v.Tenant, ID: s}) {
			if r.Run == id || r.Run == "" && s == f.info.Session {
				all = append(all, r)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b messages.Record) int { return cmp.Compare(a.Time, b.Time) })
	return all
}

func (f *folder) fold(all []messages.Record) {
	for i := range all {
		f.record(&all[i])
	}
	for _, r := range f.asked {
		f.rows = append(f.rows, r)
	}
	clear(f.asked)
	slices.SortStableFunc(f.rows, func(a, b *row) int { return a.At.Compare(b.At) })
}

// add adds the row of a record.
func (f *folder) add(rec *messages.Record, icon, class, do string) *row {
	r := f.of(rec, icon, class, do)
	f.rows = append(f.rows, r)
	return r
}

func (f *folder) of(rec *messages.Record, icon, class, do string) *row {
	r := &row{
		ID: fmt.Sprintf("e%s-%d-%d", lineage.Short(rec.Session), rec.Commit, rec.K), Icon: icon, Class: class, By: rec.Actor(), Do: do,
		Took: took(rec.Elapsed), At: rec.When(), Failed: rec.Failed(), Inner: f.inner, ms: rec.Elapsed, Run: rec.Run,
	}
	if rec.Step != "" {
		r.Step, r.ID = rec.Step, "step-"+string(rec.Step)
		if f.inner {
			r.ID = string(rec.Run) + "-" + string(rec.Step)
		}
	}
	if r.Failed {
		r.Class = cmp.Or(class, "fail")
	}
	if rec.Kind == messages.KindModel || rec.Kind == messages.KindTool {
		r.usage = rec.Usage
		if rec.Usage.Tokens() > 0 {
			r.Cost = usd(rec.Usage)
		}
		if rec.Usage.Calls > 1 {
			r.Tries = fmt.Sprint(rec.Usage.Calls)
		}
	}
	return r
}

func (f *folder) record(rec *messages.Record) {
	switch rec.Kind {
	case messages.KindChunk:
		f.chunk(rec)
	case messages.KindPlaced:
		f.add(rec, "file", "", rec.Action())
	case messages.KindModel:
		f.model(rec)
	case messages.KindTool:
		f.tool(rec)
	case messages.KindFannedOut, messages.KindBranched:
		r := f.add(rec, "fan", "", rec.Action())
		r.Fan = fanOf(f.v, f.graph, rec)
		r.Out, r.Cost, r.Took = r.Fan.Out, r.Fan.Cost, r.Fan.Took
	case messages.KindAdopted, messages.KindMerged:
		f.joined(rec)
	case messages.KindWaiting:
		for _, w := range rec.Waits {
			if w.Kind == run.WaitApproval || w.Kind == run.WaitResponse || w.Kind == run.WaitMessage {
				r := f.add(rec, "ask", "ask", "asks for "+w.Kind)
				r.Asked, r.Step, r.ID = cmp.Or(w.Title, w.Name), w.Step, "step-"+string(w.Step)
				f.waits[w.Step] = r
			}
		}
	case messages.KindAnswered, messages.KindMessage:
		if r := f.waits[rec.Step]; r != nil && rec.Step != "" {
			r.Out, r.Took, r.Class = rec.Action(), took(rec.Time-r.At.UnixMilli()), ""
			return
		}
		f.add(rec, "ask", "ask", rec.Action())
	case messages.KindDid:
		if rec.Failed() || rec.Name != "call" && rec.Name != "commit" { // parts of a call, a join or the rows
			f.add(rec, "note", "", rec.Action())
		}
	case messages.KindGathered, messages.KindAwaited:
		if rec.Failed() {
			f.add(rec, "note", "", rec.Action())
		}
	case messages.KindRecalled, messages.KindRemembered, messages.KindCompressed, messages.KindSelected, messages.KindLate:
		f.add(rec, "note", "", rec.Action())
	case messages.KindReview, messages.KindResolved:
		f.add(rec, "review", "review", rec.Action())
	case messages.KindCancel, messages.KindWarning, messages.KindStatus, messages.KindQuarantined, messages.KindReadmitted, messages.KindRebudgeted:
		f.add(rec, "note", "stuck", rec.Action())
	case messages.KindClaimed:
		if rec.Home == "" && rec.Attempt > 1 && !f.woken {
			f.add(rec, "run", "run", lineage.Resumes(rec))
		}
		f.woken = false
	case messages.KindEnded:
		if rec.State != string(run.Succeeded) {
			f.add(rec, "fail", "fail", rec.Action())
		}
	}
	f.woken = f.woken || rec.Wake > 0
}

// chunk adds the words of users, and of the workflow itself.
func (f *folder) chunk(rec *messages.Record) {
	c := session.Kind(rec.Role)
	if c == session.ToolResult || c == session.Assistant && rec.Step != "" {
		return
	}
	r := f.add(rec, "says", "", rec.Action())
	if rec.Step != "" {
		r.ID, r.Step = fmt.Sprintf("e%s-%d-%d", lineage.Short(rec.Session), rec.Commit, rec.K), ""
	}
	if c == session.User && rec.Agent == "" {
		r.Icon, r.By, r.Do, r.Asked = "ask", cmp.Or(f.info.By, "user"), "asks", strings.TrimPrefix(rec.Action(), "asks ")
		if f.begun {
			r.Do = "says"
		}
		f.begun = true
		if r.Restart = fromStart; rec.Version > 1 {
			r.Restart = fmt.Sprintf("%s:%d", rec.Session, rec.Version-1)
		}
	}
}

// fromStart is the version of a restart before all rows.
const fromStart = "start"

func (f *folder) model(rec *messages.Record) {
	k := view.StepKey{Run: rec.Run, Step: rec.Step}
	f.who[k] = rec.Actor()
	r := f.of(rec, "says", "", "asks "+cmp.Or(rec.Model, "its model"))
	if rec.Version > 1 {
		r.Restart = fmt.Sprintf("%s:%d", rec.Session, rec.Version-1)
		f.base[k] = r.Restart
	}
	c := f.said[k]
	switch {
	case rec.Failed() || rec.Again != "":
		r.Out = rec.Action()
	case rec.Calls > 0:
		r.Out = rec.Action()
		if c != nil {
			r.Said = c.Text
		}
		f.asked[k] = r
		return
	case c != nil:
		r.Do, r.Out, r.Said = "answers", "", c.Text
	default:
		r.Do, r.Out = "answers", strings.TrimPrefix(rec.Action(), "says ")
	}
	f.rows = append(f.rows, r)
}

// toolIcons are the icons of the built-in tools.
var toolIcons = map[string]string{
	tool.RunShellCommand: "shell", tool.RunCode: "shell", tool.ReadWorkspaceFile: "file", tool.ListWorkspaceFiles: "file", tool.WorkspacePathExists: "file",
	tool.WriteWorkspaceFile: "edit", tool.Edit: "edit", tool.ApplyPatch: "edit", tool.Grep: "file", tool.Glob: "file", tool.ViewImage: "file",
}

func (f *folder) tool(rec *messages.Record) {
	asking := view.StepKey{Run: rec.Run, Step: rec.Step.Parent()}
	r := f.add(rec, cmp.Or(toolIcons[rec.Tool], "tool"), "", strings.TrimPrefix(rec.Action(), rec.Tool+" "))
	r.By = cmp.Or(rec.Agent, f.who[asking], "workflow")
	if rec.Tool != "" && toolIcons[rec.Tool] == "" {
		r.Do = rec.Tool + " " + r.Do
	}
	r.Restart, r.heads = f.base[asking], [2]string{rec.HeadFrom, rec.Head}
	if m := f.asked[asking]; m != nil { // the model's call and its first tool call are one row
		delete(f.asked, asking)
		r.usage, r.ms = r.usage.Add(m.usage), r.ms+m.ms
		r.Took, r.Said, r.Tries = took(r.ms), m.Said, m.Tries
		if m.Cost != "" {
			r.Cost = usd(r.usage)
		}
	}
	if c := f.said[asking]; c != nil {
		if i, err := strconv.Atoi(string(rec.Step)[strings.LastIndexByte(string(rec.Step), '.')+1:]); err == nil && i < len(c.Calls) {
			r.In = c.Calls[i].Args
		}
	}
	if c := f.given[view.StepKey{Run: rec.Run, Step: rec.Step}]; c != nil {
		r.Result = c.Text
		if end := view.Ending(c.Text); end != "" {
			r.Do, r.Out = view.CutExit(r.Do), end
		}
	}
}

// joined adds the rows of a branch that was taken over, then the join.
func (f *folder) joined(rec *messages.Record) {
	var from []session.ID
	for _, p := range rec.Parents {
		if p.Session != rec.Session {
			from = append(from, p.Session)
		}
	}
	if len(from) == 1 && !f.inner {
		if id, r, ok := branchRun(f.graph, f.v.Tenant, from[0]); ok {
			name := cmp.Or(r.Branch, lineage.Short(from[0]))
			f.rows = append(f.rows, &row{ID: "branch-" + string(id), Icon: "ok", Class: "ok", By: name, Do: "adopted; the rows of the other branches are under their names", Name: true, Inner: true, At: r.Submitted})
			f.inner = true
			for _, b := range f.recordsOf(id, r.Sessions) {
				if b.Kind != messages.KindChunk || b.Role != string(session.User) {
					f.record(&b)
				}
			}
			f.inner = false
		}
	}
	f.add(rec, "join", "", rec.Action())
}

// live adds the steps under way.
func (f *folder) live(l *messages.Live) {
	if l == nil {
		return
	}
	now := time.UnixMilli(l.At)
	for i := range l.Steps {
		s := &l.Steps[i]
		text := view.StepText(s)
		by := cmp.Or(s.Name, "workflow")
		r := &row{
			ID: "step-" + string(s.Step), Icon: "run", Class: "run", By: by, Do: strings.TrimPrefix(strings.TrimPrefix(text, by+": "), by+" "), Out: view.Doing(s, now), Draft: s.Text,
			Took: view.Took(max(now.Sub(time.UnixMilli(s.Began)), 0)), At: time.UnixMilli(s.Began), Step: s.Step, Run: l.Run,
		}
		if s.Doing == "pauses" || s.Error != "" {
			r.Icon, r.Class, r.Out = "retry", "retry", r.Out+"; before: "+s.Error
		} else if now.Sub(time.UnixMilli(s.At)) >= view.StuckAfter {
			r.Icon, r.Class = "stuck", "stuck"
		}
		if s.Try > 1 {
			r.Tries = fmt.Sprint(s.Try)
		}
		r.Restart = f.newest()
		f.rows = append(f.rows, r)
	}
}

// newest returns the newest version of the run's session, before the step under way.
func (f *folder) newest() string {
	s, err := f.graph.Session(session.Key{Tenant: f.v.Tenant, ID: f.info.Session})
	if err != nil || s.Version == 0 {
		return fromStart
	}
	return fmt.Sprintf("%s:%d", s.Key.ID, s.Version)
}

// mostPatches bounds the rows of a page whose changes of files are counted.
const mostPatches = 40

// countLines counts the lines that the calls of some rows changed.
func countLines(v *visit, ctx context.Context, rows []*row) {
	store := v.Client.Blobs()
	left := mostPatches
	for _, r := range rows {
		if r.heads[0] == r.heads[1] || r.heads[0] == "" || r.heads[1] == "" || left == 0 {
			continue
		}
		left--
		a, err := blob.ParseDigest(r.heads[0])
		z, err2 := blob.ParseDigest(r.heads[1])
		if err != nil || err2 != nil {
			continue
		}
		patch, err := manifest.Patch(ctx, store, a, z)
		if err != nil {
			continue // the files are no longer stored
		}
		r.Changed = &lines{}
		for i := range patch {
			added, removed := patch[i].Changed()
			r.Changed.Added, r.Changed.Removed = r.Changed.Added+added, r.Changed.Removed+removed
		}
	}
}
