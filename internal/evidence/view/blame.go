package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// The reasons why a path has no lines to trace.
var (
	ErrNotFile   = errors.New("not a file")
	ErrEmptyFile = errors.New("is empty")
	ErrNotText   = errors.New("is no text, or larger than 1 MiB: only lines of texts are followed")
)

// BlamedLine is a line of a file with the change that made it.
type BlamedLine = manifest.Traced[*messages.Record]

// Blame returns the lines of a file after a chain of head changes, oldest first, each with
// the change that added it. A line that a merge took from a branch is attributed to the
// branch's change, if the graph has the branch.
func Blame(ctx context.Context, blobs blob.Store, g *lineage.Graph, changes []messages.Record, path string) ([]BlamedLine, error) {
	b := blamer{blobs, g}
	lines, err := b.blame(ctx, changes, path, 0)
	for i := range lines {
		lines[i].Text = strings.TrimSuffix(lines[i].Text, "\n")
	}
	return lines, err
}

// blamer traces the lines of files.
type blamer struct {
	blobs blob.Store
	graph *lineage.Graph
}

// Limits of the search for the origin of a merged line.
const (
	mergedParents = 64
	mergedDepth   = 8
)

func (b *blamer) blame(ctx context.Context, changes []messages.Record, path string, depth int) ([]BlamedLine, error) {
	var lines []BlamedLine
	var head blob.Digest
	var at manifest.Entry
	for i := range changes {
		c := &changes[i]
		var err error
		if head, err = blob.ParseDigest(c.Head); err != nil {
			return nil, fmt.Errorf("head %q: %w", c.Head, err)
		}
		next, text, err := b.text(ctx, head, path, at)
		if errors.Is(err, blob.ErrNotFound) {
			return nil, fmt.Errorf("the files at %s are not in the blob store any more: %w", c.Head[:12], err)
		}
		if err != nil {
			return nil, err
		}
		if next == at {
			continue
		}
		at, lines = next, manifest.Trace(lines, text, c, nil)
		if err := b.ofBranches(ctx, lines, path, c, depth); err != nil {
			return nil, err
		}
	}
	if len(lines) > 0 {
		return lines, nil
	}
	return nil, noText(ctx, b.blobs, head, path)
}

// text returns the entry of a head at a path, and its lines if it is a file that differs
// from before.
func (b *blamer) text(ctx context.Context, head blob.Digest, path string, before manifest.Entry) (manifest.Entry, []string, error) {
	t, err := manifest.Load(ctx, b.blobs, head)
	if err != nil {
		return before, nil, err
	}
	e, ok := t.Lookup(path)
	if !ok || e == before || e.Kind != manifest.File {
		return e, nil, nil
	}
	text, _, err := manifest.Text(ctx, manifest.NewFiles(b.blobs, t), e)
	return e, text, err
}

// ofBranches attributes the lines of a merge to the changes that added them in its
// branches, and likewise the lines of a call to the changes in its workflow. A line that no
// branch has, such as one from a conflict, stays the merge's.
func (b *blamer) ofBranches(ctx context.Context, lines []BlamedLine, path string, merge *messages.Record, depth int) error {
	var from []messages.Ref
	switch merge.Kind {
	case messages.KindMerged:
		from = merge.Parents
	case messages.KindTool:
		from = merge.Branches
	}
	if depth >= mergedDepth {
		return nil
	}
	for _, p := range from[:min(len(from), mergedParents)] {
		key := session.Key{Tenant: merge.Tenant, ID: p.Session}
		changes, err := b.graph.Heads(key, p.Version)
		if err != nil {
			continue // the branch is not in the graph
		}
		branch, err := b.blame(ctx, changes, path, depth+1)
		if errors.Is(err, fs.ErrNotExist) {
			if own := ownPath(path, b.names(key)); own != "" {
				branch, err = b.blame(ctx, changes, own, depth+1)
			}
		}
		if err != nil {
			continue // it has no such file
		}
		for _, e := range manifest.DiffLines(manifest.Texts(branch), manifest.Texts(lines)) {
			if e.Op != ' ' {
				continue
			}
			for i := range e.NewTo - e.NewFrom {
				if l := &lines[e.NewFrom+i]; l.By == merge {
					l.By = branch[e.OldFrom+i].By
				}
			}
		}
	}
	return ctx.Err()
}

// names returns the names of a session and of the sessions it was forked from: a branch
// may end with a fork of its own.
func (b *blamer) names(k session.Key) []string {
	var out []string
	for range mergedDepth {
		info, err := b.graph.Session(k)
		if err != nil {
			break
		}
		if info.Name != "" {
			out = append(out, info.Name)
		}
		if len(info.Parents) != 1 {
			break
		}
		k.ID = info.Parents[0].Session
	}
	return out
}

// ownPath returns the path in a branch of an entry that a merge keeping both sides put at
// "path.<branch>", or "path.<branch>.2" and so on, alone or with its directory; "" if the
// path names none of these branches.
func ownPath(path string, branches []string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		short := part
		if j := strings.LastIndexByte(part, '.'); j > 0 {
			if n, err := strconv.Atoi(part[j+1:]); err == nil && n > 1 {
				short = part[:j]
			}
		}
		for _, name := range branches {
			for _, whole := range []string{part, short} {
				if own, ok := strings.CutSuffix(whole, "."+name); ok && own != "" {
					return strings.Join(slices.Concat(parts[:i], []string{own}, parts[i+1:]), "/")
				}
			}
		}
	}
	return ""
}

// noText returns the reason why a file has no lines.
func noText(ctx context.Context, blobs blob.Store, head blob.Digest, path string) error {
	t, err := manifest.Load(ctx, blobs, head)
	if err != nil {
		return err
	}
	e, ok := t.Lookup(path)
	switch {
	case !ok:
		return fmt.Errorf("%q: %w: the files at %s hold %s", path, fs.ErrNotExist, head.Short(), someFiles(t))
	case e.Kind != manifest.File:
		return fmt.Errorf("%q is a %s, %w", path, e.Kind, ErrNotFile)
	case e.Size == 0:
		return fmt.Errorf("%q %w", path, ErrEmptyFile)
	}
	return fmt.Errorf("%q %w", path, ErrNotText)
}

// someFiles lists the first files of a tree.
func someFiles(t *manifest.Tree) string {
	text, n := "", 0
	for e := range t.Entries() {
		if e.Kind != manifest.File {
			continue
		}
		if n++; n > 8 {
			return text + ", ..."
		}
		if n > 1 {
			text += ", "
		}
		text += e.Path
	}
	return cmp.Or(text, "no files")
}
