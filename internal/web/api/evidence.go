package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/nats/remotelog"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// why answers with the origin of a run, a session, or a part of one.
func why(ctx context.Context, c *call) (any, error) {
	t, err := c.target(ctx, false)
	if err != nil {
		return nil, err
	}
	r, err := c.reason(ctx, &t)
	if err == nil {
		err = r.Complete(t.graph, c.caller.Tenant)
	}
	return r, err
}

func (c *call) reason(ctx context.Context, t *target) (view.Reason, error) {
	switch {
	case t.file != "":
		return c.reasonOfFile(ctx, t)
	case t.row >= 0:
		at, err := c.chunk(ctx, t)
		if err != nil {
			return view.Reason{}, err
		}
		t.session = at
		fallthrough
	case t.run == nil && t.session.Version > 0:
		m, err := t.graph.Why(t.session.Key, t.session.Version)
		if err != nil {
			return view.Reason{}, err
		}
		return c.reasonOfMaker(ctx, &m)
	case t.step != "" && t.run != nil:
		m, err := t.graph.Step(c.caller.Tenant, t.run.Run, t.step)
		if err != nil {
			return view.Reason{}, err
		}
		return c.reasonOfMaker(ctx, &m)
	case t.run == nil:
		return view.ReasonOfSession(t.graph, t.session.Key)
	}
	r, err := view.ReasonOfRun(t.graph, c.caller.Tenant, t.run.Run)
	if err == nil && !t.run.State.Terminal() {
		live, asked := c.client().Runs.Live(ctx, t.run.Run)
		if asked == nil {
			r.Live = &live
		} // else no node answers now: the reason stands without it
	}
	return r, err
}

// reasonOfMaker returns the reason of a version or a step, with the instructions of a call
// of a model.
func (c *call) reasonOfMaker(ctx context.Context, m *lineage.Maker) (view.Reason, error) {
	r := view.ReasonOfMaker(m)
	r.What = fmt.Sprintf("%s:%d", m.Session, m.Version)
	if m.Version > 0 && m.Role != "" {
		if v, err := c.client().Sessions.Get(ctx, r.What); err == nil {
			r.Quote(&v)
		}
	}
	if r.Model == "" || r.Step == "" {
		return r, nil
	}
	key := session.Key{Tenant: c.caller.Tenant, ID: r.Session}
	for e, err := range remotelog.Of(c.client()).Read(ctx, key, commitlog.Position{}) {
		if errors.Is(err, session.ErrArchived) {
			break
		}
		if err != nil {
			return r, err
		}
		if e.Commit.Seq < r.Commit {
			continue
		}
		for _, f := range journal.Facts(e.Commit) {
			d, ok := f.What.(journal.StepCompleted)
			if ok && d.Run == r.Run && d.Path == r.Step && !d.Given.IsZero() {
				r.Instructions, err = view.ReadInstructions(ctx, c.client().Blobs(), d.Given)
				return r, err
			}
		}
		break
	}
	return r, nil
}

// reasonOfFile returns the changes of a file, or the origin of a line of it.
func (c *call) reasonOfFile(ctx context.Context, t *target) (r view.Reason, err error) {
	changes, err := t.graph.Heads(t.session.Key, t.session.Version)
	if err != nil {
		return r, err
	}
	if len(changes) == 0 {
		return r, fmt.Errorf("session %s has no files: it was never sent to a sandbox: %w", t.session.ID, session.ErrNotFound)
	}
	blobs := c.client().Blobs()
	var by *messages.Record
	if r.What = t.file; t.line > 0 {
		lines, err := view.Blame(ctx, blobs, t.graph, changes, t.file)
		if err != nil {
			return r, err
		}
		if t.line > len(lines) {
			return r, fmt.Errorf("%s has %d lines: %w", t.file, len(lines), session.ErrNotFound)
		}
		l := lines[t.line-1]
		r.What, r.Text, by = fmt.Sprintf("%s:%d", t.file, t.line), l.Text, l.By
	} else {
		all, err := view.FileChanges(ctx, blobs, changes)
		if err != nil {
			return r, err
		}
		for _, f := range all {
			if f.Path == t.file {
				by = f.By
				r.Changes = append(r.Changes, view.FileStep{FileChange: f, Run: by.Run, Step: by.Step, Session: by.Session, Did: by.Summary})
			}
		}
		if by == nil {
			if _, err := view.Blame(ctx, blobs, t.graph, changes, t.file); err != nil {
				return r, err
			}
			return r, nil
		}
	}
	r.ChangedBy(t.graph, c.caller.Tenant, by)
	return r, nil
}

// impact answers with the later work that could see a step, a version or a row.
func impact(ctx context.Context, c *call) (any, error) {
	if c.text("step") == "" && c.text("version") == "" && c.text("row") == "" {
		return nil, &strict.Error{Message: "query", Problem: "it names all of a run or session", Remedy: "send a step of the run, or a version or a row of the session"}
	}
	t, err := c.target(ctx, true)
	if err != nil {
		return nil, err
	}
	var i lineage.Impact
	if t.row >= 0 {
		if t.session, err = c.chunk(ctx, &t); err != nil {
			return nil, err
		}
	}
	if t.step != "" && t.run != nil {
		i, err = t.graph.ImpactOfStep(c.caller.Tenant, t.run.Run, t.step)
	} else {
		i, err = t.graph.Impact(t.session.Key, t.session.Version)
	}
	if err != nil {
		return nil, err
	}
	out := view.ImpactOf(i)
	if err := out.NameFiles(ctx, c.client().Blobs(), i.Files); err != nil {
		return nil, err
	}
	if len(out.Changed) == 0 {
		return out, nil
	}
	calls := view.Calls{}
	for _, at := range out.Sessions {
		v, err := c.client().Sessions.Get(ctx, string(at.Session))
		if err != nil {
			return nil, err
		}
		for n := range v.Chunks {
			calls.Add(run.ID(v.Chunks[n].Run), run.Path(v.Chunks[n].Step), v.Chunks[n].Calls)
		}
	}
	out.Use(i, calls)
	return out, nil
}

// media types of dossiers.
var dossiers = map[string]struct {
	media  string
	render func(*dossier.Evidence) ([]byte, error)
}{
	"html": {"text/html; charset=utf-8", dossier.HTML},
	"md":   {"text/markdown; charset=utf-8", dossier.Markdown},
	"json": {"application/json", func(e *dossier.Evidence) ([]byte, error) { return e.Encode() }},
}

// evidence answers with the dossier of a run.
func (a *API) evidence(ctx context.Context, c *call) (any, error) {
	form := c.text("form")
	if form == "" {
		form = "json"
	}
	as, ok := dossiers[form]
	if !ok {
		return nil, &strict.Error{Message: "query", Field: "form", Problem: fmt.Sprintf("%q is none", form), Remedy: "send html, md or json"}
	}
	r, err := c.client().Runs.Get(ctx, c.run())
	if err != nil {
		return nil, err
	}
	if r.Session == "" {
		return nil, fmt.Errorf("run %s has no session: no node has begun it: %w", r.Run, run.ErrState)
	}
	home := session.Key{Tenant: c.caller.Tenant, ID: r.Session}
	e, err := dossier.Collect(ctx, remotelog.Of(c.client()), c.client().Blobs(), home, r.Run, &dossier.CollectOptions{
		Stated: []dossier.Fact{{Name: dossier.FactRelease, Value: a.release}},
		Signatures: func(ctx context.Context, id run.ID) ([]dossier.Signature, error) {
			res, err := c.client().Runs.Result(ctx, id)
			if err != nil || res.Signature == "" || id == r.Run && res.Session != r.Session { // of another run under the same id
				return nil, err
			}
			return []dossier.Signature{{Statement: res.Statement, Signature: res.Signature}}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	data, err := as.render(e)
	if err != nil {
		return nil, err
	}
	return text(as.media, string(r.Run)+"."+form, data), nil
}
