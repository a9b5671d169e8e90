package view

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Reason is the answer of why.
type Reason struct {
	What     string          `json:"what"`
	Text     string          `json:"text"` // the quoted text; for a run that did not succeed, its error
	Code     run.Code        `json:"code,omitempty"`
	Agent    string          `json:"agent,omitempty"`
	Actor    string          `json:"actor,omitempty"` // if not an agent
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
	Finish   string          `json:"finish,omitempty"`      // why the model's answer ended
	Word     string          `json:"finish_word,omitempty"` // of its server
	Before   string          `json:"head_before,omitempty"`
	After    string          `json:"head_after,omitempty"`
	Time     time.Time       `json:"time"`
	Changes  []FileStep      `json:"changes,omitempty"` // of a file, oldest first
	Live     *messages.Live  `json:"live,omitempty"`    // of an open run
	Archived *Archived       `json:"archived,omitempty"`
	// Instructions are the instructions of a model call.
	Instructions *Instructions `json:"instructions,omitempty"`
	WaysOn       []WayOn       `json:"ways_on,omitempty"` // of a run that ended without success
	// Whole disables the truncation of texts.
	Whole bool `json:"-"`
}

// Archived is the file of an archived session and the time of its archival.
type Archived struct {
	File string    `json:"file"`
	Time time.Time `json:"time"`
}

// FileStep is a step that changed a file.
type FileStep struct {
	FileChange
	Run     run.ID     `json:"run,omitempty"`
	Step    run.Path   `json:"step,omitempty"`
	Session session.ID `json:"session"`
	Did     string     `json:"did"`
}

// ReasonOfRun returns the answer for a run: the reason of its end, unless it succeeded,
// and the task or fan-out that requested it.
func ReasonOfRun(g *lineage.Graph, t session.Tenant, id run.ID) (Reason, error) {
	r, err := g.Run(t, id)
	if err != nil {
		return Reason{}, err
	}
	out := Reason{What: "run " + string(r.ID), Run: r.ID, Workflow: r.Workflow, Session: r.Home.ID, Time: r.Submitted, Did: "was submitted as a task", Actor: "the client that sent the task"}
	if r.By != "" {
		out.Actor = "user " + journal.Submitter(r.By, r.Via, r.Says)
	}
	for _, rec := range g.Records(r.Home) {
		if rec.Run == r.ID && (rec.Kind == messages.KindSubmitted || rec.Kind == messages.KindQueued) {
			out.Did, out.Version, out.Commit, out.Hash = rec.Summary, rec.Version, rec.Commit, rec.Hash
		}
	}
	if r.State.Terminal() && r.State != run.Succeeded {
		out.Code, out.Text = r.Code, strings.ReplaceAll(string(r.State), "_", " ")
		if r.Code != "" {
			out.Text += ", " + string(r.Code)
		}
		if r.Reason != "" {
			out.Text += ": " + messages.Text(errors.New(r.Reason))
		}
	}
	if b := r.BranchOf; b != nil {
		out.Actor = fmt.Sprintf("run %s, its fan-out at step %s", b.Run, strings.TrimSuffix(string(b.Step), ".gather"))
		if r.By != "" {
			out.Actor += ", which user " + r.By + " submitted"
		}
	}
	if by := r.StartedBy; by != nil {
		out.Actor = fmt.Sprintf("run %s, which started it at step %s", by.Run, by.Step)
	}
	return out, nil
}

// ReasonOfSession returns the answer for a session: its origin.
func ReasonOfSession(g *lineage.Graph, k session.Key) (Reason, error) {
	o, err := g.Opening(k)
	if err != nil {
		return Reason{}, err
	}
	r := Reason{
		What: "session " + string(o.Session), Did: o.Summary, Session: o.Session, Version: o.Version, Commit: o.Commit, Hash: o.Hash,
		Run: o.Run, Step: o.Step, Time: o.When(), After: o.Head,
	}
	if o.Step == "" {
		r.Actor = "the task of its first run"
	} else if m, err := g.Step(k.Tenant, o.Run, o.Step); err == nil {
		r.Attempt, r.Agent = m.Attempt, m.Agent
	}
	if o.Kind == messages.KindImported {
		r.Actor = "the command that imported it"
	}
	return r, nil
}

// ReasonOfMaker returns the answer for a version, or for the step that made a version.
func ReasonOfMaker(m *lineage.Maker) Reason {
	r := Reason{Workflow: m.Workflow, Actor: m.Recorded.Actor()}
	r.record(&m.Record)
	return r
}

// record copies the fields of a record.
func (r *Reason) record(rec *messages.Record) {
	r.Agent, r.Tool, r.Call, r.Did, r.Session, r.Version, r.Commit, r.Hash = rec.Agent, rec.Tool, rec.Call, rec.Summary, rec.Session, rec.Version, rec.Commit, rec.Hash
	r.Code, r.Finish, r.Word = rec.Code, rec.Finish, rec.Word
	r.Run, r.Step, r.Attempt, r.Model, r.Before, r.After, r.Time = rec.Run, rec.Step, rec.Attempt, rec.Model, rec.HeadFrom, rec.Head, rec.When()
}

// Quote copies the text and the calls of the row that the answer is about.
func (r *Reason) Quote(v *messages.Session) {
	for i := range v.Chunks {
		c := &v.Chunks[i]
		if c.Version != r.Version || c.Session != "" && c.Session != r.Session {
			continue
		}
		r.Text = c.Text
		for _, call := range c.Calls {
			if r.Text != "" {
				r.Text += "\n"
			}
			r.Text += fmt.Sprintf("> %s %s", call.Name, call.Args)
		}
	}
}

// ChangedBy completes the answer with the change of the files that made it.
func (r *Reason) ChangedBy(g *lineage.Graph, t session.Tenant, c *messages.Record) {
	r.record(c)
	if c.Kind == messages.KindPlaced || c.Kind == messages.KindDid && c.HeadFrom == "" {
		r.Did, r.Agent, r.Tool = "was there when the session got its files", "", ""
		r.Actor = "the directory that was copied"
	} else if m, err := g.Step(t, c.Run, c.Step); err == nil {
		r.Agent, r.Model, r.Workflow, r.Call = cmp.Or(r.Agent, m.Agent), cmp.Or(r.Model, m.Model), m.Workflow, cmp.Or(r.Call, m.Call)
		r.Attempt = max(r.Attempt, m.Attempt)
	}
}

// Complete adds the branch, the run and the archive from the graph.
func (r *Reason) Complete(g *lineage.Graph, t session.Tenant) error {
	key := session.Key{Tenant: t, ID: r.Session}
	for _, rec := range g.Records(key) {
		switch rec.Kind {
		case messages.KindArchived:
			r.Archived = &Archived{rec.Name, rec.When()}
		case messages.KindRestored:
			r.Archived = nil
		}
	}
	info, err := g.Session(key)
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
		if rec, err := g.Run(t, r.Run); err == nil {
			r.Workflow = rec.Workflow
		}
	}
	return nil
}

// branchText describes the origin of a session in its parents.
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
