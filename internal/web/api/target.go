package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// target is the object of why and impact: a run or a session, or a part of it.
type target struct {
	what    string            // for people
	run     *messages.RunInfo // nil for a session
	session session.Ref       // version zero is the newest
	step    run.Path
	row     int // -1 for none
	file    string
	line    int
	graph   *lineage.Graph
}

// mostRecords bounds the records of lineage that one answer is made of.
const mostRecords = 1_000_000

// target reads the object of the address and of the query, and the lineage of its tree or,
// with all, of the tenant.
func (c *call) target(ctx context.Context, all bool) (t target, err error) {
	t = target{step: run.Path(c.text("step")), row: -1}
	line, lineErr := c.number("line", 1<<31-1)
	row, rowErr := c.number("row", 1<<31-1)
	if t.session, err = c.at(); errors.Join(err, lineErr, rowErr) != nil {
		return t, errors.Join(err, lineErr, rowErr)
	}
	t.line = int(line)
	if c.query.Has("row") {
		t.row = int(row)
	}
	if name := c.text("file"); name != "" {
		t.file = path.Clean(name)
	}
	named := 0
	for _, there := range []bool{t.step != "", t.session.Version > 0, t.row >= 0} {
		if there {
			named++
		}
	}
	if named > 1 || t.line > 0 && t.file == "" || t.file != "" && (t.step != "" || t.row >= 0) {
		return t, &strict.Error{Message: "query", Problem: "the parameters name more than one part", Remedy: "send one of step, version and row, or a file, which may have a version and a line"}
	}
	if id := c.path("run"); id != "" {
		r, err := c.client().Runs.Get(ctx, run.ID(id))
		if err != nil {
			return t, err
		}
		t.run, t.what, t.session.ID = &r, "run "+string(r.Run), r.Session
		if r.Result != nil && t.step == "" {
			t.session.ID, t.session.Version = r.Result.Session, r.Result.Version
		}
	} else {
		t.what = "session " + string(t.session.ID)
	}
	of := string(t.session.ID)
	if of == "" {
		return t, fmt.Errorf("%s has no session: no node has begun it: %w", t.what, run.ErrState)
	}
	if all {
		of = ""
	}
	t.graph, err = c.graph(ctx, of)
	return t, err
}

// at returns the session of the address at the version of the query.
func (c *call) at() (session.Ref, error) {
	v, err := c.number("version", maxSequence)
	return session.Ref{Key: session.Key{Tenant: c.caller.Tenant, ID: session.ID(c.path("session"))}, Version: session.Version(v)}, err
}

// graph reads the lineage of a session's tree, or of the tenant for "".
func (c *call) graph(ctx context.Context, id string) (*lineage.Graph, error) {
	g, n := lineage.NewGraph(), 0
	err := view.LineagePage(c.client().Lineage.Page).Each(ctx, session.ID(id), "", func(r *messages.LineageRecord) error {
		if n++; n > mostRecords {
			return fmt.Errorf("lineage: more than %d records: %w; ask about a smaller part, or use `rath why`", mostRecords, session.ErrTooLarge)
		}
		g.Add(r.Record)
		return nil
	})
	return g, err
}

// chunk returns the session and the version that made the target's row.
func (c *call) chunk(ctx context.Context, t *target) (session.Ref, error) {
	q := wire.Query{Session: string(t.session.ID), After: uint64(t.row), Limit: 1}
	if t.session.Version > 0 {
		q.Session += ":" + strconv.FormatUint(uint64(t.session.Version), 10)
	}
	var v messages.Session
	data, err := c.client().Query(ctx, messages.QuerySession, q)
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		return session.Ref{}, err
	}
	if len(v.Chunks) == 0 {
		return session.Ref{}, fmt.Errorf("session %s has %d rows, counted from 0: %w", v.Session, v.Total, session.ErrNotFound)
	}
	id := v.Chunks[0].Session
	if id == "" {
		id = v.Session
	}
	return session.Ref{Key: session.Key{Tenant: c.caller.Tenant, ID: id}, Version: v.Chunks[0].Version}, nil
}
