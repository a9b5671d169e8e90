package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func (a *app) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "why WHAT",
		Short: "Say who made a version of a session, or a line of a file",
		Long: `Says which agent, on which branch, with which tool call of which attempt of
which run made a version of a session, or a line of a file as a session left it.
The answer follows from the commits: the files before and after each step are
part of them.`,
		Example: `  rath why @last:slug.sh:7     line 7 of slug.sh, as the last run left it
  rath why slug.sh:7           the same
  rath why 7f3a:5              version 5 of a session
  rath why 7f3a:5:slug.sh:7    the line as it was at that version`,
		Args: exactly(1, "a version or a line"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(s *system) error { return a.why(cmd.Context(), s, args[0]) })
		},
	}
}

// asked is what why is asked about.
type asked struct {
	name    string          // of a session or run
	version session.Version // zero for the newest
	path    string          // "" asks for the version itself
	line    int
}

// parseWhy reads SESSION:VERSION, PATH:LINE, SESSION:PATH:LINE and
// SESSION:VERSION:PATH:LINE. Of two words the first may be either; session is
// then tried first.
func parseWhy(text string) (asked, error) {
	wrong := func() (asked, error) {
		return asked{}, fail(exitUsage, "%q: want SESSION:VERSION, FILE:LINE or SESSION:FILE:LINE; see \"why --help\"", text)
	}
	rest, digits, ok := cutLast(text, ":")
	if !ok {
		if session.ValidID("session", strings.TrimPrefix(text, "@")) != nil {
			return wrong()
		}
		return asked{name: text}, nil
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n == 0 || rest == "" {
		return wrong()
	}
	first, file, two := strings.Cut(rest, ":")
	if !two {
		if session.ValidID("session", strings.TrimPrefix(rest, "@")) == nil {
			return asked{name: rest, version: session.Version(n)}, nil
		}
		return asked{name: messages.Last, path: path.Clean(rest), line: int(n)}, nil
	}
	q := asked{name: first, path: path.Clean(file), line: int(n)}
	if version, more, three := strings.Cut(file, ":"); three {
		if v, err := strconv.ParseUint(version, 10, 63); err == nil && v > 0 {
			q.version, q.path = session.Version(v), path.Clean(more)
		}
	}
	if file == "" || first == "" {
		return wrong()
	}
	return q, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func (a *app) why(ctx context.Context, s *system, text string) error {
	q, err := parseWhy(text)
	if err != nil {
		return err
	}
	n, err := s.resolve(ctx, q.name)
	if err != nil && q.path == "" && q.version > 0 && codeOf(err) == exitNotFound {
		// A file without a dot in its name.
		q = asked{name: messages.Last, path: q.name, line: int(q.version)}
		var other error
		if n, other = s.resolve(ctx, q.name); other != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if q.version > 0 {
		n.version = q.version
	}
	g, _, err := s.graph(ctx, n.session)
	if err != nil {
		return err
	}
	if q.path != "" {
		return a.whyLine(ctx, s, g, n, q)
	}
	if n.version == 0 {
		info, err := g.Session(n.ref(s.Tenant()).Key)
		if err != nil {
			return err
		}
		n.version = info.Version
	}
	m, err := g.Why(n.ref(s.Tenant()).Key, n.version)
	if err != nil {
		return err
	}
	return a.tellMaker(ctx, s, g, n, m)
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
}

// whyLine answers for a line of a file.
func (a *app) whyLine(ctx context.Context, s *system, g *lineage.Graph, n named, q asked) error {
	if err := s.direct("why FILE:LINE"); err != nil {
		return err
	}
	changes, err := g.Heads(n.ref(s.Tenant()).Key, n.version)
	if err != nil {
		return err
	}
	lines, err := blame(ctx, s.blobs(s.Tenant()), changes, q.path)
	if err != nil {
		return err
	}
	if q.line > len(lines) {
		return fail(exitNotFound, "%s has %s there, no line %d", q.path, counted(int64(len(lines)), "line"), q.line)
	}
	l := lines[q.line-1]
	c := l.by
	r := reason{
		What: fmt.Sprintf("%s:%d", q.path, q.line), Text: l.text, Agent: c.Agent, Tool: c.Tool, Call: c.Call, Did: c.Summary,
		Session: c.Session, Version: c.Version, Commit: c.Commit, Hash: c.Hash, Run: c.Run, Step: c.Step, Attempt: c.Attempt, Model: c.Model,
		Before: c.Before, After: c.After, Time: c.Time,
	}
	if c.Kind == lineage.Placed || c.Before == "" {
		r.Did, r.Agent, r.Tool = "was there when the session got its files", "", ""
		r.Actor = "whoever made the directory that was copied"
	} else if c.Version > 0 {
		// The step that changed the files knows less than the row that it made.
		if m, err := g.Why(session.Key{Tenant: s.Tenant(), ID: c.Session}, c.Version); err == nil && m.Step == c.Step {
			r.Agent, r.Model, r.Workflow, r.Call = or(r.Agent, m.Agent), or(r.Model, m.Model), m.Workflow, or(r.Call, m.Call)
			r.Attempt = max(r.Attempt, m.Attempt)
		}
	}
	if r.Agent == "" && r.Tool != "" {
		r.Agent = askedBy(g, s.Tenant(), c)
	}
	return a.tellReason(g, s, r)
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

// tellMaker answers for a version.
func (a *app) tellMaker(ctx context.Context, s *system, g *lineage.Graph, n named, m lineage.Maker) error {
	r := reason{
		What: n.String(), Agent: m.Agent, Tool: m.Tool, Call: m.Call, Did: m.Record.Summary, Session: m.Session, Version: m.Version,
		Commit: m.Commit, Hash: m.Hash, Run: m.Run, Workflow: m.Workflow, Step: m.Step, Attempt: m.Attempt, Model: m.Model,
		Before: m.Record.HeadFrom, After: m.Record.Head, Time: m.Time, Actor: m.Record.Actor(),
	}
	if v, err := s.Session(ctx, n.String()); err == nil {
		for i := range v.Chunks {
			c := &v.Chunks[i]
			if c.Version == m.Version && (c.Session == "" || c.Session == m.Session) {
				r.Text = c.Text
				for _, call := range c.Calls {
					r.Text += fmt.Sprintf("\n> %s %s", call.Name, call.Args)
				}
			}
		}
	}
	return a.tellReason(g, s, r)
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
		a.out.Println("  " + l)
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
		made = or(r.Actor, "the workflow")
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
	field("commit", fmt.Sprintf("%d, %s", r.Commit, short(r.Hash, 16)))
	switch {
	case r.Before != "" && r.Before != r.After:
		field("files", short(r.Before, 12)+" -> "+short(r.After, 12))
	default:
		field("files", short(r.After, 12))
	}
	field("when", r.Time.Local().Format("2006-01-02 15:04:05 MST"))
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
	text := or(s.Via, "branch") + " of " + strings.Join(from, " and ")
	if s.Name != "" {
		text += " (" + term.Line(s.Name, 40) + ")"
	}
	return text
}

func short(s string, n int) string { return s[:min(len(s), n)] }
