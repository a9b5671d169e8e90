package view

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Records are the records of a tenant beside its lineage, as a client reads them. All
// fields are required.
type Records struct {
	Tenant session.Tenant
	Blobs  blob.Store
	Log    commitlog.Log
	// Session reads a session by its id, with ":version" for an older version.
	Session func(ctx context.Context, ref string) (messages.Session, error)
}

// missing is the error of a file or a line that there is not. It is session.ErrNotFound.
type missing string

func (m missing) Error() string        { return string(m) }
func (m missing) Is(target error) bool { return target == session.ErrNotFound }

// ReasonOfMaker returns the answer for a version or a step, with a quotation, and with the
// instructions of a call of a model.
func (rs *Records) ReasonOfMaker(ctx context.Context, m *lineage.Maker) (Reason, error) {
	r := ReasonOfMaker(m)
	r.What = fmt.Sprintf("%s:%d", m.Session, m.Version)
	if m.Version > 0 && m.Role != "" {
		if v, err := rs.Session(ctx, r.What); err == nil {
			r.Quote(&v)
		}
	}
	if r.Model == "" || r.Step == "" {
		return r, nil
	}
	var err error
	if r.Instructions, err = rs.instructions(ctx, &r); errors.Is(err, session.ErrArchived) {
		err = nil
	}
	return r, err
}

// instructions reads the instructions of a model's call; nil if its record names none.
func (rs *Records) instructions(ctx context.Context, r *Reason) (*Instructions, error) {
	for e, err := range rs.Log.Read(ctx, session.Key{Tenant: rs.Tenant, ID: r.Session}, commitlog.Position{}) {
		if err != nil {
			return nil, err
		}
		if e.Commit.Seq < r.Commit {
			continue
		}
		for _, f := range journal.Facts(e.Commit) {
			done, ok := f.What.(journal.StepCompleted)
			if ok && done.Run == r.Run && done.Path == r.Step && !done.Given.IsZero() {
				return ReadInstructions(ctx, rs.Blobs, done.Given)
			}
		}
		break
	}
	return nil, nil
}

// ReasonOfFile returns the answer for a file of a session: its changes or, with a line, the
// origin of the line.
func (rs *Records) ReasonOfFile(ctx context.Context, g *lineage.Graph, at session.Ref, path string, line int) (r Reason, err error) {
	changes, err := g.Heads(at.Key, at.Version)
	if err != nil {
		return r, err
	}
	if len(changes) == 0 {
		name := string(at.ID)
		if at.Version > 0 {
			name = at.String()
		}
		return r, missing(fmt.Sprintf("session %s has no files: it was never sent to a sandbox; name the run that left the file", name))
	}
	var by *messages.Record
	if r.What = path; line > 0 {
		lines, err := Blame(ctx, rs.Blobs, g, changes, path)
		if err != nil {
			return r, err
		}
		if line > len(lines) {
			return r, missing(fmt.Sprintf("%s has %s there, no line %d", path, Counted(int64(len(lines)), "line"), line))
		}
		l := lines[line-1]
		r.What, r.Text, by = fmt.Sprintf("%s:%d", path, line), l.Text, l.By
	} else {
		all, err := FileChanges(ctx, rs.Blobs, changes)
		if err != nil {
			return r, err
		}
		for _, c := range all {
			if c.Path == path {
				by = c.By
				r.Changes = append(r.Changes, FileStep{FileChange: c, Run: by.Run, Step: by.Step, Session: by.Session, Did: by.Summary})
			}
		}
		if by == nil { // the error names the files that there are
			_, err := Blame(ctx, rs.Blobs, g, changes, path)
			return r, err
		}
	}
	r.ChangedBy(g, rs.Tenant, by)
	return r, nil
}

// Impact returns the answer for an impact, with its files and their later uses.
func (rs *Records) Impact(ctx context.Context, i lineage.Impact) (*Impact, error) {
	out := ImpactOf(i)
	if err := out.NameFiles(ctx, rs.Blobs, i.Files); err != nil || len(out.Changed) == 0 {
		return out, err
	}
	calls := Calls{}
	for _, at := range out.Sessions {
		v, err := rs.Session(ctx, string(at.Session))
		if err != nil {
			return nil, err
		}
		for n := range v.Chunks {
			c := &v.Chunks[n]
			calls.Add(run.ID(c.Run), run.Path(c.Step), c.Calls)
		}
	}
	out.Use(i, calls)
	return out, nil
}
