package inspect

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// found is a target in the graph.
type found struct {
	target
	reference.Reference
	graph *lineage.Graph
	run   *messages.RunInfo // of a run, or of a step
	call  *messages.Record  // of a tool call named by its id
	whole bool              // the answer has whole texts
}

// find resolves the name of a target, and reads the graph: of its tree or, with all, of
// the whole tenant.
func find(ctx context.Context, s *app.System, t target, all bool) (*found, error) {
	f := &found{target: t}
	var err error
	f.Reference, err = reference.Resolve(ctx, s, t.name)
	f.run = f.Reference.Run
	if err != nil && app.CodeOf(err) == app.ExitNotFound {
		other, otherErr := otherwise(ctx, s, t, all)
		switch {
		case otherErr != nil:
			return nil, otherErr
		case other == nil:
			return nil, err
		}
		return other, nil
	}
	if err != nil {
		return nil, err
	}
	if t.version > 0 {
		f.Reference.Version = t.version
	}
	if t.step != "" {
		r, err := reference.Run(ctx, s, t.name)
		if err != nil {
			return nil, err
		}
		f.run, f.Reference.Session = &r, r.Session
		f.path = ""
	}
	if f.graph, err = graphOf(ctx, s, f.Reference.Session, all); err == nil && t.step != "" {
		f.inBranch(s.Tenant())
	}
	return f, err
}

// inBranch looks for a step that is missing in the run in the run's branches. replay
// lists their steps with the run's, although they are runs of their own.
func (f *found) inBranch(t session.Tenant) {
	if _, err := f.graph.Step(t, f.run.Run, f.step); !errors.Is(err, lineage.ErrNotFound) {
		return
	}
	all := f.graph.Select(t, nil, time.Now())
	within := map[run.ID]bool{f.run.Run: true}
	for again := true; again; { // branches of branches
		again = false
		for _, r := range all {
			if r.BranchOf == nil || within[r.ID] || !within[r.BranchOf.Run] {
				continue
			}
			within[r.ID], again = true, true
			if _, err := f.graph.Step(t, r.ID, f.step); err == nil {
				info := translate.RunInfo(r)
				f.run, f.Reference.Session = &info, info.Session
				return
			}
		}
	}
}

// otherwise tries the other meanings of a name that is no id: a file, or a tool call.
// It returns nil if neither fits.
func otherwise(ctx context.Context, s *app.System, t target, all bool) (*found, error) {
	switch {
	case t.step != "": // a file "dir/7"
		return lastFile(ctx, s, target{text: t.text, path: t.path, row: -1}, all)
	case t.row >= 0 || t.path != "" || t.name == messages.Last:
		return nil, nil
	case t.version > 0: // "Makefile:7"
		return lastFile(ctx, s, target{text: t.text, path: t.name, line: int(t.version), row: -1}, all)
	}
	g, err := graphOf(ctx, s, "", true)
	if err != nil {
		return nil, err
	}
	calls := g.Calls(s.Tenant(), t.name)
	if len(calls) > 1 {
		var steps []string
		for _, c := range calls[:min(len(calls), 5)] {
			steps = append(steps, string(c.Run)+"/"+string(c.Step))
		}
		return nil, app.Fail(app.ExitConflict, "%d tool calls have the id %s, which models give: %s; name one by its step", len(calls), t.name, strings.Join(steps, ", "))
	}
	if len(calls) == 1 {
		c := calls[0]
		return &found{target: t, Reference: reference.Reference{Session: c.Session}, graph: g, call: &c, run: &messages.RunInfo{Run: c.Run}}, nil
	}
	return lastFile(ctx, s, target{text: t.text, path: t.name, row: -1}, all)
}

// lastFile looks for a file in the files of the last run; it returns nil if there is no
// run or no such file.
func lastFile(ctx context.Context, s *app.System, t target, all bool) (*found, error) {
	t.name = messages.Last
	f, err := find(ctx, s, t, all)
	if err == nil {
		var changes []messages.Record
		if changes, err = f.graph.Heads(f.Ref(s.Tenant()).Key, f.Reference.Version); err == nil && !view.HoldsFile(ctx, s.Blobs(s.Tenant()), changes, t.path) {
			return nil, nil
		}
	}
	if err != nil && app.CodeOf(err) == app.ExitNotFound {
		return nil, nil // the error of the lookup by id applies
	}
	return f, err
}

// graphOf reads the lineage of a session's tree or, with all, of the whole tenant.
func graphOf(ctx context.Context, s *app.System, id session.ID, all bool) (*lineage.Graph, error) {
	if !all {
		g, _, err := reference.Graph(ctx, s, id)
		return g, err
	}
	g := lineage.NewGraph()
	err := reference.Recorded(ctx, s, "", "", func(r *messages.LineageRecord) error {
		g.Add(r.Record)
		return nil
	})
	return g, err
}

// chunkOf returns the session and version that made a row.
func chunkOf(ctx context.Context, s *app.System, f *found) (session.Ref, error) {
	v, err := s.Sessions.Get(ctx, f.Reference.String())
	if err != nil {
		return session.Ref{}, err
	}
	if f.row >= len(v.Chunks) {
		return session.Ref{}, app.Fail(app.ExitNotFound, "session %s has %s, counted from 0: there is no row %d", v.Session, view.Counted(int64(len(v.Chunks)), "row"), f.row)
	}
	c := &v.Chunks[f.row]
	id := c.Session
	if id == "" {
		id = v.Session
	}
	return session.Ref{Key: session.Key{Tenant: s.Tenant(), ID: id}, Version: c.Version}, nil
}
