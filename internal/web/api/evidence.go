package api

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/nats/remotelog"
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
		return c.records().ReasonOfFile(ctx, t.graph, t.session, t.file, t.line)
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
		return c.records().ReasonOfMaker(ctx, &m)
	case t.step != "" && t.run != nil:
		m, err := t.graph.Step(c.caller.Tenant, t.run.Run, t.step)
		if err != nil {
			return view.Reason{}, err
		}
		return c.records().ReasonOfMaker(ctx, &m)
	case t.run == nil:
		return view.ReasonOfSession(t.graph, t.session.Key)
	}
	r, err := view.ReasonOfRun(t.graph, c.caller.Tenant, t.run.Run)
	if err == nil {
		r.WaysOn = c.records().WaysOn(ctx, t.graph, r.Session, t.run)
	}
	if err == nil && !t.run.State.Terminal() {
		live, asked := c.client().Runs.Live(ctx, t.run.Run)
		if asked == nil {
			r.Live = &live
		} // else no node answers now: the reason stands without it
	}
	return r, err
}

// records are those of the caller's tenant.
func (c *call) records() *view.Records {
	return &view.Records{Tenant: c.caller.Tenant, Blobs: c.client().Blobs(), Log: remotelog.Of(c.client()), Session: c.client().Sessions.Get}
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
	return c.records().Impact(ctx, i)
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
