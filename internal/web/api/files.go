package api

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/nats/remotelog"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// files is a page of the paths of a head, sorted.
type files struct {
	Head  blob.Digest      `json:"head"`
	Files []manifest.Entry `json:"files"`
	// Next is the last path of a page that others follow.
	Next string `json:"next,omitempty"`
}

// head reads a digest of the address or the query.
func head(name, text string) (d blob.Digest, err error) {
	if d, err = blob.ParseDigest(text); err != nil || d.String() != text {
		return d, &strict.Error{Message: "request", Field: name, Problem: "it is no head", Remedy: "send 64 lower-case hexadecimal digits, as the workspace of a result or the head of a placement has them"}
	}
	return d, nil
}

// listFiles answers with a page of the paths of a head.
func listFiles(ctx context.Context, c *call) (any, error) {
	q, err := c.pageAfter()
	if err != nil {
		return nil, err
	}
	h, tree, err := c.tree(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.unchanged(h.String()); err != nil {
		return nil, err
	}
	out := files{Head: h, Files: []manifest.Entry{}}
	for e := range tree.Entries() {
		if e.Path <= q.after && q.after != "" {
			continue
		}
		if len(out.Files) == q.limit {
			out.Next = out.Files[q.limit-1].Path
			break
		}
		out.Files = append(out.Files, e)
	}
	return out, nil
}

// textPage is the place of a page in a list that is sorted by name.
type textPage struct {
	after string
	limit int
}

func (c *call) pageAfter() (textPage, error) {
	limit, err := c.number("limit", 10_000)
	if limit == 0 {
		limit = 1000
	}
	return textPage{c.text("after"), int(limit)}, err
}

// getFile answers with the bytes of a file, which a browser stores and never shows.
func getFile(ctx context.Context, c *call) (any, error) {
	name := path.Clean(c.text("path"))
	h, tree, err := c.tree(ctx)
	if err != nil {
		return nil, err
	}
	e, ok := tree.Lookup(name)
	if ok && e.Kind == manifest.File {
		if err := c.unchanged(e.Digest.String()); err != nil {
			return nil, err
		}
	}
	data, err := workspace.Open(ctx, c.client().Blobs(), h, name)
	if err != nil {
		return nil, err
	}
	return &document{media: octets, name: e.Digest.Short(), body: data, size: e.Size}, nil // no name of an agent
}

const (
	octets = "application/octet-stream"
	patch  = "text/x-diff; charset=utf-8"
)

// span reads the head of the address, and the head to compare it with, zero for none.
func (c *call) span() (from, to blob.Digest, err error) {
	if to, err = head("head", c.path("head")); err == nil && c.text("from") != "" {
		from, err = head("from", c.text("from"))
	}
	return from, to, err
}

// tree returns the head of the address and its files.
func (c *call) tree(ctx context.Context) (h blob.Digest, t *manifest.Tree, err error) {
	if h, err = head("head", c.path("head")); err == nil {
		t, err = manifest.Load(ctx, c.client().Blobs(), h)
	}
	return h, t, err
}

// diffHeads answers with the difference of the files of two heads.
func diffHeads(ctx context.Context, c *call) (any, error) {
	from, to, err := c.span()
	if err != nil {
		return nil, err
	}
	return c.diff(ctx, from, to)
}

func (c *call) diff(ctx context.Context, from, to blob.Digest) (any, error) {
	diffs, err := manifest.Patch(ctx, c.client().Blobs(), from, to)
	if err != nil {
		return nil, err
	}
	if err := c.unchanged(to.String() + "-" + from.String()); err != nil {
		return nil, err
	}
	var b strings.Builder
	if err := manifest.WriteUnified(&b, diffs); err != nil {
		return nil, err
	}
	return text(patch, to.Short()+".diff", []byte(b.String())), nil
}

// diffRun answers with the changes of a run to the files that it began with.
func diffRun(ctx context.Context, c *call) (any, error) {
	r, err := c.client().Runs.Get(ctx, c.run())
	if err != nil {
		return nil, err
	}
	from, to, err := c.heads(ctx, &r)
	if err != nil {
		return nil, err
	}
	return c.diff(ctx, from, to)
}

// heads returns the files with which a run began, and its files so far.
func (c *call) heads(ctx context.Context, r *messages.RunInfo) (from, to blob.Digest, err error) {
	if r.Session == "" {
		return from, to, fmt.Errorf("run %s has no session: no node has begun it: %w", r.Run, run.ErrState)
	}
	values := journal.NewValues(remotelog.Of(c.client()))
	at := session.Ref{Key: session.Key{Tenant: c.caller.Tenant, ID: r.Session}}
	recorded, err := values.Recording(ctx, at.Key, r.Run)
	if err != nil {
		return from, to, err
	}
	if from = recorded.Record.Task.Workspace; from.IsZero() {
		from = recorded.Base.Placement().Head
	}
	if r.Result != nil {
		at.ID, at.Version = r.Result.Session, r.Result.Version
	}
	v, err := values.At(ctx, at)
	if err != nil {
		return from, to, err
	}
	if to = v.Placement().Head; to.IsZero() {
		return from, to, fmt.Errorf("run %s has no files: its session was never sent to a sandbox: %w", r.Run, session.ErrNotFound)
	}
	return from, to, nil
}

// tarHead answers with the files that `rath apply` would write over those of another head.
func tarHead(ctx context.Context, c *call) (any, error) {
	from, to, err := c.span()
	if err != nil {
		return nil, err
	}
	plan, err := workspace.NewPlan(ctx, c.client().Blobs(), from, to, nil)
	if err != nil {
		return nil, err
	}
	if err := c.unchanged(to.String() + "-" + from.String() + "-tar"); err != nil {
		return nil, err
	}
	write := func(w io.Writer) error { return plan.WriteTar(ctx, w) }
	return &document{media: "application/x-tar", name: to.Short() + ".tar", size: -1, write: write}, nil
}
