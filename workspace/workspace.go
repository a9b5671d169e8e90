// Package workspace turns a session's files into a content-addressed head, and back.
//
// A head is the digest of a manifest: the paths of a directory, each with its kind, its
// executable bit, the digest of its bytes and their location. A head identifies the whole
// state of the files, so a commit that records the head is enough to restore them. Two
// heads can have the same files.
//
//	head, err := workspace.Snapshot(ctx, blobs, dir, base, workspace.Limits{})
//	err = workspace.Restore(ctx, blobs, head, freshDir) // twice = a fork
//	data, err := workspace.Read(ctx, blobs, head, "README.md")
//
// Snapshot stores the files that base does not hold; Restore fills a fresh directory.
// [Import] stores a user's directory without the paths that its ignore files exclude. A
// [Plan] writes changes back to that directory and excludes the same paths:
//
//	in, err := workspace.Import(ctx, blobs, userDir, nil)
//	plan, err := workspace.NewPlan(ctx, blobs, in.Head, head, nil)
//	err = plan.Apply(ctx, userDir)
//
// A workspace stores regular files with their executable bit, directories (including empty
// ones) and symbolic links. Links are never followed, so a link to the outside discloses
// nothing. Owners, times, other permission bits and extended attributes are not stored.
// Devices, sockets, FIFOs and hard links are errors that name the path. In a user's
// directory, each name of a hard link is stored as a file.
//
// The package accesses directories through [os.Root], so a link that another process
// creates concurrently never leads a call outside. The package does not depend on
// sandboxes, sessions or the network, and it does not merge.
package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
)

// Limits of a workspace unless the caller sets others.
const (
	DefaultFiles = 200_000    // entries: files, directories and links
	DefaultBytes = 2560 << 20 // bytes of all files together
)

// Limits bound a workspace.
type Limits struct {
	Files int   // entries of every kind; zero: DefaultFiles
	Bytes int64 // bytes of all files together; zero: DefaultBytes
}

func (l Limits) orDefault() Limits {
	if l.Files <= 0 {
		l.Files = DefaultFiles
	}
	if l.Bytes <= 0 {
		l.Bytes = DefaultBytes
	}
	return l
}

// ErrNotEmpty is returned by Restore for a directory that is not empty.
var ErrNotEmpty = errors.New("workspace: directory is not empty")

// listing counts the bytes of a workspace's paths and link targets.
type listing int

// add counts the path p, or the target of the link there.
func (l *listing) add(p, text string) error {
	if *l += listing(len(text)); *l > manifest.MaxListing {
		return &LimitError{Path: p, What: namesLimit, Limit: manifest.MaxListing}
	}
	return nil
}

// Check returns a *LimitError if the files of a head exceed the limits, or their names
// exceed the limit of any workspace. A manifest may name one blob a thousand times, so the
// manifest of another program can be larger than all stored blobs.
func Check(ctx context.Context, b blob.Store, head blob.Digest, l Limits) error {
	t, err := manifest.Load(ctx, b, head)
	if err != nil {
		return err
	}
	l = l.orDefault()
	left, n := l.Bytes, 0
	var names listing
	for e := range t.Entries() {
		if n++; n > l.Files {
			return &LimitError{Path: e.Path, What: "files", Limit: int64(l.Files)}
		}
		if err := cmp.Or(names.add(e.Path, e.Path), names.add(e.Path, e.Target)); err != nil {
			return err
		}
		if e.Size > left {
			return &LimitError{Path: e.Path, What: "bytes", Limit: l.Bytes}
		}
		left -= e.Size
	}
	return nil
}

// The reasons of a RefusedError. The list may grow.
const (
	SpecialFile = "is a FIFO, socket or device"
	HardLink    = "has a second name (hard link)"
	BadName     = "has a name that is not valid UTF-8, is too long or cannot be used here"
	Unreadable  = "cannot be read"
	Unstable    = "changed while it was read"
)

// RefusedError names a path that a workspace cannot hold, and the reason.
type RefusedError struct {
	Path   string // slash separated, relative to the workspace
	Reason string
	Err    error // the system's error, if any
}

// Error names the path, the reason and the way out.
func (e *RefusedError) Error() string {
	msg := fmt.Sprintf("workspace: %q %s", e.Path, e.Reason)
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg + "; a workspace cannot keep it, remove or replace it"
}

// Unwrap returns the system's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// namesLimit is the limit that cannot be raised: a manifest holds no more.
const namesLimit = "bytes of paths and link targets"

// LimitError reports the limit that a workspace exceeds.
type LimitError struct {
	Path  string // the path that exceeds the limit
	What  string // "files", "bytes" or "bytes of paths and link targets"
	Limit int64
}

// Error names the limit, the path and the way out.
func (e *LimitError) Error() string {
	wayOut := "remove unneeded files, name them in .rathignore, or raise the limit"
	if e.What == namesLimit {
		wayOut = "remove unneeded files, name them in .rathignore, or use shorter names"
	}
	return fmt.Sprintf("workspace: more than %d %s at %q; %s", e.Limit, e.What, e.Path, wayOut)
}

// ConflictError lists the paths that conflict with an Apply. No file was changed.
type ConflictError struct{ Paths []string }

// Error names the first paths.
func (e *ConflictError) Error() string {
	const shown = 5
	list := e.Paths
	more := ""
	if len(list) > shown {
		more = fmt.Sprintf(" and %d more", len(list)-shown)
		list = list[:shown]
	}
	return fmt.Sprintf("workspace: changed in the directory meanwhile: %s%s; put them back or move them away, then apply again",
		strings.Join(list, ", "), more)
}
