package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func (a *app) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "why WHAT",
		Short: "Say what produced a version, a step, a session, a run or a line",
		Long: `Says what produced something: a row or version of a session, a tool call or
another step, a session, a run, a file or one line of it. Of what agents made it
tells which agent, on which branch, with which tool call of which attempt of
which run. The answer follows from the commits: the files before and after each
step are part of them. "impact" asks the other way round.`,
		Example: `  rath why @last:slug.sh:7     line 7 of slug.sh, as the last run left it
  rath why slug.sh:7           the same
  rath why slug.sh             which steps changed the file
  rath why 7f3a:5              version 5 of a session
  rath why 7f3a#3              row 3 of a session, counted from 0
  rath why 7f3a/2.0            a step of a run, or a tool call by its id
  rath why 7f3a                where a run, or a session, comes from`,
		Args: exactly(1, "one thing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(s *system) error { return a.why(cmd.Context(), s, args[0]) })
		},
	}
}

func (a *app) why(ctx context.Context, s *system, text string) error {
	t, err := parseThing(text)
	if err != nil {
		return err
	}
	f, err := s.findThing(ctx, t, false)
	if err != nil {
		return err
	}
	key := f.ref(s.Tenant()).Key
	switch {
	case f.path != "":
		return a.whyFile(ctx, s, f)
	case f.row >= 0:
		r, err := s.chunkOf(ctx, f)
		if err != nil {
			return err
		}
		f.named.session, f.named.version = r.ID, r.Version
		return a.whyVersion(ctx, s, f, r)
	case f.call != nil:
		return a.whyStep(ctx, s, f, f.call.Run, f.call.Step)
	case f.step != "":
		return a.whyStep(ctx, s, f, f.run.Run, f.step)
	case t.version > 0:
		return a.whyVersion(ctx, s, f, session.Ref{Key: key, Version: t.version})
	case f.run != nil:
		return a.whyRun(s, f)
	}
	return a.whySession(s, f)
}

func (a *app) whyVersion(ctx context.Context, s *system, f *found, r session.Ref) error {
	m, err := f.graph.Why(r.Key, r.Version)
	if err != nil {
		return err
	}
	return a.tellMaker(ctx, s, f, m)
}

func (a *app) whyStep(ctx context.Context, s *system, f *found, id run.ID, step run.Path) error {
	m, err := f.graph.Step(s.Tenant(), id, step)
	if err != nil {
		return err
	}
	f.named.session, f.named.version = m.Session, m.Version
	return a.tellMaker(ctx, s, f, m)
}

// whyRun answers for a run: who asked for it.
func (a *app) whyRun(s *system, f *found) error {
	r, err := f.graph.Run(s.Tenant(), f.run.Run)
	if err != nil {
		return err
	}
	out := reason{What: "run " + string(r.ID), Run: r.ID, Workflow: r.Workflow, Session: r.Home.ID, Time: r.Submitted, Did: "was submitted as a task", Actor: "whoever sent the task"}
	for _, rec := range f.graph.Records(r.Home) {
		if rec.Run == r.ID && (rec.Kind == lineage.Submitted || rec.Kind == lineage.Queued) {
			out.Did, out.Version, out.Commit, out.Hash = rec.Summary, rec.Version, rec.Commit, rec.Hash
		}
	}
	if b := r.BranchOf; b != nil {
		out.Actor = fmt.Sprintf("run %s, its fan-out at step %s", b.Run, strings.TrimSuffix(string(b.Step), ".gather"))
	}
	return a.tellReason(f.graph, s, out)
}

// whySession answers for a session: how it came to be.
func (a *app) whySession(s *system, f *found) error {
	o, err := f.graph.Opening(f.ref(s.Tenant()).Key)
	if err != nil {
		return err
	}
	r := reason{
		What: "session " + string(o.Session), Did: o.Summary, Session: o.Session, Version: o.Version, Commit: o.Commit, Hash: o.Hash,
		Run: o.Run, Step: o.Step, Time: o.When(), After: o.Head,
	}
	if o.Step == "" {
		r.Actor = "the task of its first run"
	} else if m, err := f.graph.Step(s.Tenant(), o.Run, o.Step); err == nil {
		r.Attempt, r.Agent = m.Attempt, m.Agent
	}
	if o.Kind == lineage.Imported {
		r.Actor = "whoever imported it"
	}
	return a.tellReason(f.graph, s, r)
}

// reason is the answer of why.
type reason struct {
	What     string          `json:"what"`
	Text     string          `json:"text"`
	Agent    string          `json:"agent,omitempty"`
	Actor    string          `json:"actor,omitempty"` // where it was no agent
	Tool     string          `json:"tool,omitempty"`
	Call     string          `json:"call,omitempty"`
	Did      string          `json:"did"`
	Session  session.ID      `json:"session"`
	Version  session.Version `json:"version"`
	Commit   uint64          `json:"commit"`
	Hash     string          `json:"hash"`
	Branch   string          `json:"branch,omitempty"`
	Ended    string          `json:"ended,omitempty"`
	Run      run.ID          `json:"run,omitempty"`
	Workflow string          `json:"workflow,omitempty"`
	Step     run.Path        `json:"step,omitempty"`
	Attempt  uint64          `json:"attempt,omitempty"`
	Model    string          `json:"model,omitempty"`
	Before   string          `json:"head_before,omitempty"`
	After    string          `json:"head_after,omitempty"`
	Time     time.Time       `json:"time"`
	Changes  []fileStep      `json:"changes,omitempty"` // of a file, the oldest first
}

// fileStep is a step that changed a file.
type fileStep struct {
	fileChange
	Run     run.ID     `json:"run,omitempty"`
	Step    run.Path   `json:"step,omitempty"`
	Session session.ID `json:"session"`
	Did     string     `json:"did"`
}

// whyFile answers for a file, or a line of it.
func (a *app) whyFile(ctx context.Context, s *system, f *found) error {
	if err := s.direct("why FILE"); err != nil {
		return err
	}
	changes, err := f.graph.Heads(f.ref(s.Tenant()).Key, f.named.version)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		return fail(exitNotFound, "session %s has no files: it was never sent to a sandbox; name the run that left the file, as in 7f3a:%s", f.named, f.path)
	}
	var r reason
	var by *lineage.HeadChange
	if f.line > 0 {
		lines, err := blame(ctx, s.blobs(s.Tenant()), changes, f.path)
		if err != nil {
			return err
		}
		if f.line > len(lines) {
			return fail(exitNotFound, "%s has %s there, no line %d", f.path, counted(int64(len(lines)), "line"), f.line)
		}
		l := lines[f.line-1]
		r, by = reason{What: fmt.Sprintf("%s:%d", f.path, f.line), Text: l.text}, l.by
	} else {
		r.What = f.path
		all, err := fileChanges(ctx, s.blobs(s.Tenant()), changes)
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.Path != f.path {
				continue
			}
			by = c.by
			r.Changes = append(r.Changes, fileStep{fileChange: c, Run: c.by.Run, Step: c.by.Step, Session: c.by.Session, Did: c.by.Summary})
		}
		if by == nil {
			_, err := blame(ctx, s.blobs(s.Tenant()), changes, f.path)
			return err
		}
	}
	return a.tellReason(f.graph, s, r.changedBy(f.graph, s.Tenant(), by))
}

// changedBy completes the answer with the change of the files that made it.
func (r reason) changedBy(g *lineage.Graph, t session.Tenant, c *lineage.HeadChange) reason {
	r.Agent, r.Tool, r.Call, r.Did, r.Session, r.Version, r.Commit, r.Hash = c.Agent, c.Tool, c.Call, c.Summary, c.Session, c.Version, c.Commit, c.Hash
	r.Run, r.Step, r.Attempt, r.Model, r.Before, r.After, r.Time = c.Run, c.Step, c.Attempt, c.Model, c.Before, c.After, c.Time
	if c.Kind == lineage.Placed || c.Before == "" {
		r.Did, r.Agent, r.Tool = "was there when the session got its files", "", ""
		r.Actor = "whoever made the directory that was copied"
	} else if c.Version > 0 {
		// The step that changed the files knows less than the row that it made.
		if m, err := g.Why(session.Key{Tenant: t, ID: c.Session}, c.Version); err == nil && m.Step == c.Step {
			r.Agent, r.Model, r.Workflow, r.Call = cmp.Or(r.Agent, m.Agent), cmp.Or(r.Model, m.Model), m.Workflow, cmp.Or(r.Call, m.Call)
			r.Attempt = max(r.Attempt, m.Attempt)
		}
	}
	if r.Agent == "" && r.Tool != "" {
		r.Agent = askedBy(g, t, c)
	}
	return r
}

// askedBy finds the agent whose model asked for the call that moved the files.
func askedBy(g *lineage.Graph, t session.Tenant, c *lineage.HeadChange) string {
	up, _, ok := cutLast(string(c.Step), ".")
	if !ok {
		return ""
	}
	for _, r := range g.Records(session.Key{Tenant: t, ID: c.Session}) {
		if r.Kind == lineage.Model && r.Run == c.Run && string(r.Step) == up {
			return r.Agent
		}
	}
	return ""
}

// tellMaker answers for a version, or for the step that a version came of.
func (a *app) tellMaker(ctx context.Context, s *system, f *found, m lineage.Maker) error {
	r := reason{
		What: cmp.Or(f.text, f.named.String()), Agent: m.Agent, Tool: m.Tool, Call: m.Call, Did: m.Record.Summary, Session: m.Session, Version: m.Version,
		Commit: m.Commit, Hash: m.Hash, Run: m.Run, Workflow: m.Workflow, Step: m.Step, Attempt: m.Attempt, Model: m.Model,
		Before: m.Record.HeadFrom, After: m.Record.Head, Time: m.Time, Actor: m.Record.Actor(),
	}
	if m.Version > 0 && m.Record.Role != "" {
		at := session.Ref{Key: session.Key{Tenant: s.Tenant(), ID: m.Session}, Version: m.Version}
		if v, err := s.Session(ctx, fmt.Sprintf("%s:%d", at.ID, at.Version)); err == nil {
			for i := range v.Chunks {
				c := &v.Chunks[i]
				if c.Version == m.Version && (c.Session == "" || c.Session == m.Session) {
					r.Text = c.Text
					for _, call := range c.Calls {
						if r.Text != "" {
							r.Text += "\n"
						}
						r.Text += fmt.Sprintf("> %s %s", call.Name, call.Args)
					}
				}
			}
		}
	}
	return a.tellReason(f.graph, s, r)
}

func (a *app) tellReason(g *lineage.Graph, s *system, r reason) error {
	info, err := g.Session(session.Key{Tenant: s.Tenant(), ID: r.Session})
	if err == nil {
		r.Branch = branchText(info)
		if info.Disposition != lineage.Open {
			r.Ended = info.Disposition
			if info.Reason != "" {
				r.Ended += ": " + info.Reason
			}
		}
	} else if !errors.Is(err, lineage.ErrNotFound) {
		return err
	}
	if r.Workflow == "" && r.Run != "" {
		if rec, err := g.Run(s.Tenant(), r.Run); err == nil {
			r.Workflow = rec.Workflow
		}
	}
	if done, err := emitOne(a, r); done {
		return err
	}
	a.out.Println(a.out.Paint(term.Bold, term.Line(r.What, 60)))
	shown := []string(nil)
	if r.Text != "" {
		shown = term.Wrap(strings.TrimRight(term.Clean(r.Text), "\n"), a.out.Width()-2)
	}
	for i, l := range shown {
		if i == 8 && len(shown) > 9 {
			a.out.Println(a.out.Dim("  ... " + counted(int64(len(shown)-i), "more line")))
			break
		}
		a.out.Println(strings.TrimRight("  "+l, " "))
	}
	a.out.Println()
	field := func(name, value string) {
		if value != "" {
			a.out.Println(a.out.Dim(term.Pad(name, 9)) + term.Clean(value))
		}
	}
	made := r.Agent
	switch {
	case r.Agent != "" && r.Tool != "":
		made += " with " + r.Tool
	case r.Tool != "":
		made = r.Tool
	case made == "":
		made = cmp.Or(r.Actor, "the workflow")
	}
	if r.Call != "" {
		made += ", call " + r.Call
	}
	field("made by", made)
	field("did", term.Line(r.Did, a.out.Width()-10))
	if r.Run != "" {
		text := string(r.Run)
		if r.Workflow != "" {
			text += " of " + r.Workflow
		}
		if r.Step != "" {
			text += ", step " + string(r.Step)
		}
		if r.Attempt > 0 {
			text += fmt.Sprintf(", attempt %d", r.Attempt)
		}
		field("run", text)
	}
	field("model", r.Model)
	field("branch", r.Branch)
	field("ended", term.Line(r.Ended, a.out.Width()-10))
	at := fmt.Sprintf("%s:%d", r.Session, r.Version)
	if r.Version == 0 {
		at = string(r.Session)
	}
	field("version", at)
	field("commit", fmt.Sprintf("%d, %.16s", r.Commit, r.Hash))
	switch {
	case r.Before != "" && r.Before != r.After:
		field("files", fmt.Sprintf("%.12s -> %.12s", r.Before, r.After))
	default:
		field("files", fmt.Sprintf("%.12s", r.After))
	}
	field("when", moment(r.Time))
	if len(r.Changes) > 1 {
		a.out.Println("\nall changes:")
		shortID := shortRuns(runIDs(r.Changes, func(c *fileStep) run.ID { return c.Run }))
		rows := make([][]string, len(r.Changes))
		for i, c := range r.Changes {
			rows[i] = []string{shortID(c.Run), string(c.Step), fmt.Sprintf("+%d -%d", c.Added, c.Removed), term.Line(c.Did, 60)}
		}
		a.out.Rows([]string{"RUN", "STEP", "LINES", ""}, rows)
	}
	return nil
}

// branchText says where a session left its parent.
func branchText(s lineage.Session) string {
	var from []string
	for _, p := range s.Parents {
		from = append(from, p.String())
	}
	if len(from) == 0 {
		return "the trunk"
	}
	text := cmp.Or(s.Via, "branch") + " of " + strings.Join(from, " and ")
	if s.Name != "" {
		text += " (" + term.Line(s.Name, 40) + ")"
	}
	return text
}
