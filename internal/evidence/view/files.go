package view

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/messages"
)

// FileChange is the change of a file by a step.
type FileChange struct {
	Path    string              `json:"path"`
	Kind    manifest.ChangeKind `json:"kind"`
	Added   int                 `json:"added"`
	Removed int                 `json:"removed"`

	By *messages.Record `json:"-"`
}

// FileChanges returns the changes of files in a chain of head changes, in order. It fails
// if the files of a head are no longer stored.
func FileChanges(ctx context.Context, blobs blob.Store, changes []messages.Record) ([]FileChange, error) {
	var out []FileChange
	for i := range changes {
		c := &changes[i]
		var before blob.Digest
		if c.HeadFrom != "" {
			var err error
			if before, err = blob.ParseDigest(c.HeadFrom); err != nil {
				return nil, fmt.Errorf("head %q: %w", c.HeadFrom, err)
			}
		}
		after, err := blob.ParseDigest(c.Head)
		if err != nil {
			return nil, fmt.Errorf("head %q: %w", c.Head, err)
		}
		patch, err := manifest.Patch(ctx, blobs, before, after)
		if err != nil {
			return nil, err
		}
		for j := range patch {
			d := &patch[j]
			if d.Before.Kind == manifest.Dir || d.After.Kind == manifest.Dir {
				continue
			}
			added, removed := d.Changed()
			out = append(out, FileChange{Path: d.Path, Kind: d.Kind, Added: added, Removed: removed, By: c})
		}
	}
	return out, nil
}

// HoldsFile reports whether a file exists at any of the heads.
func HoldsFile(ctx context.Context, blobs blob.Store, changes []messages.Record, path string) bool {
	for _, c := range changes {
		head, err := blob.ParseDigest(c.Head)
		if err != nil {
			continue
		}
		if t, err := manifest.Load(ctx, blobs, head); err == nil {
			if e, ok := t.Lookup(path); ok && e.Kind == manifest.File {
				return true
			}
		}
	}
	return false
}
