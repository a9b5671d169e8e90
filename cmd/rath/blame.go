package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/workspace"
)

// madeLine is a line of a file with the change of the files that made it.
type madeLine struct {
	text string
	by   *lineage.HeadChange
}

// blame returns the lines of a file as a chain of head changes, oldest first,
// left it, each with the change that brought it.
func blame(ctx context.Context, blobs blob.Store, changes []lineage.HeadChange, path string) ([]madeLine, error) {
	var lines []madeLine
	var at blob.Digest
	for i := range changes {
		c := &changes[i]
		to, err := blob.ParseDigest(c.After)
		if err != nil {
			return nil, fmt.Errorf("head %q: %w", c.After, err)
		}
		patch, err := workspace.Patch(ctx, blobs, at, to)
		if errors.Is(err, blob.ErrNotFound) {
			return nil, fmt.Errorf("the files at %s are not in the blob store any more: %w", c.After[:12], err)
		}
		if err != nil {
			return nil, err
		}
		at = to
		for j := range patch {
			d := &patch[j]
			if d.Path != path {
				continue
			}
			switch {
			case d.Kind == workspace.Removed, d.Binary, d.Large, d.After.Kind != workspace.File:
				lines = nil
			default:
				lines = patched(lines, d.Hunks, c)
			}
		}
	}
	if len(lines) > 0 {
		return lines, nil
	}
	return nil, noText(ctx, blobs, at, path)
}

// noText says why a file has no lines.
func noText(ctx context.Context, blobs blob.Store, head blob.Digest, path string) error {
	t, err := workspace.Load(ctx, blobs, head)
	if err != nil {
		return err
	}
	e, ok := t.Lookup(path)
	switch {
	case !ok:
		return fmt.Errorf("%q: %w: the files at %s hold %s", path, fs.ErrNotExist, head.Short(), someFiles(t))
	case e.Kind != workspace.File:
		return fail(exitUsage, "%q is a %s, not a file", path, e.Kind)
	case e.Size == 0:
		return fail(exitNotFound, "%q is empty", path)
	}
	return fail(exitUsage, "%q is no text, or larger than 1 MiB: only lines of texts are followed", path)
}

// someFiles lists the first files of a tree.
func someFiles(t *workspace.Tree) string {
	text, n := "", 0
	for e := range t.Entries() {
		if e.Kind != workspace.File {
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

// patched applies hunks to lines; new ones are made by a change.
func patched(lines []madeLine, hunks []workspace.Hunk, by *lineage.HeadChange) []madeLine {
	var out []madeLine
	old := 0 // lines that were taken over or dropped
	for _, h := range hunks {
		start := h.OldStart - 1
		if h.OldLines == 0 {
			start = h.OldStart // the line before
		}
		for ; old < start && old < len(lines); old++ {
			out = append(out, lines[old])
		}
		for _, l := range h.Lines {
			switch {
			case l.Op == '+':
				out = append(out, madeLine{l.Text, by})
			case old >= len(lines): // the text before was not followed
				if l.Op == ' ' {
					out = append(out, madeLine{l.Text, by})
				}
			default:
				if l.Op == ' ' {
					out = append(out, lines[old])
				}
				old++
			}
		}
	}
	return append(out, lines[min(old, len(lines)):]...)
}

// fileChange is how a step changed a file.
type fileChange struct {
	Path    string               `json:"path"`
	Kind    workspace.ChangeKind `json:"kind"`
	Added   int                  `json:"added"`
	Removed int                  `json:"removed"`

	by *lineage.HeadChange
}

// fileChanges returns what changes of heads did to each file, in their order.
// The files of a head that is not stored any more are an error.
func fileChanges(ctx context.Context, blobs blob.Store, changes []lineage.HeadChange) ([]fileChange, error) {
	var out []fileChange
	for i := range changes {
		c := &changes[i]
		var before blob.Digest
		if c.Before != "" {
			var err error
			if before, err = blob.ParseDigest(c.Before); err != nil {
				return nil, fmt.Errorf("head %q: %w", c.Before, err)
			}
		}
		after, err := blob.ParseDigest(c.After)
		if err != nil {
			return nil, fmt.Errorf("head %q: %w", c.After, err)
		}
		patch, err := workspace.Patch(ctx, blobs, before, after)
		if err != nil {
			return nil, err
		}
		for j := range patch {
			d := &patch[j]
			if d.Before.Kind == workspace.Dir || d.After.Kind == workspace.Dir {
				continue
			}
			f := fileChange{Path: d.Path, Kind: d.Kind, by: c}
			for _, h := range d.Hunks {
				for _, l := range h.Lines {
					switch l.Op {
					case '+':
						f.Added++
					case '-':
						f.Removed++
					}
				}
			}
			out = append(out, f)
		}
	}
	return out, nil
}

// holdsFile reports whether a file was ever there on the way of heads.
func holdsFile(ctx context.Context, blobs blob.Store, changes []lineage.HeadChange, path string) bool {
	for _, c := range changes {
		head, err := blob.ParseDigest(c.After)
		if err != nil {
			continue
		}
		if t, err := workspace.Load(ctx, blobs, head); err == nil {
			if e, ok := t.Lookup(path); ok && e.Kind == workspace.File {
				return true
			}
		}
	}
	return false
}
