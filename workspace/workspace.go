// Package workspace turns a session's files into a content-addressed head, and back.
//
// A head is the digest of a manifest: the paths of a directory, each with its kind, its
// executable bit and the digest of its bytes, and where these lie. It names the whole state
// of the files, so a head in a commit is all that has to be recorded to have them back. Two
// heads can be the same files.
//
//	head, err := workspace.Snapshot(ctx, blobs, dir, base, workspace.Limits{})
//	err = workspace.Restore(ctx, blobs, head, freshDir) // twice = a fork
//	data, err := workspace.Read(ctx, blobs, head, "README.md")
//
// Snapshot stores what base does not hold yet; Restore fills a fresh directory. A
// directory that a person owns comes in by [Import], which leaves out what its ignore
// files say, and what changed goes back into it by a [Plan], which leaves out the same:
//
//	in, err := workspace.Import(ctx, blobs, userDir, nil)
//	plan, err := workspace.NewPlan(ctx, blobs, in.Head, head, nil)
//	err = plan.Apply(ctx, userDir)
//
// Kept are regular files with their executable bit, directories (also empty ones) and
// symbolic links, as what they are: none is ever followed, so one that leads out gives
// nothing away. Owners, times, other permission bits and extended attributes are not.
// Devices, sockets and FIFOs are refused by name, and so are hard links, but for those of
// a directory that a person chose, of which each name is a file.
//
// Directories are only touched through [os.Root], so a link that another process puts
// in place meanwhile never leads a call outside. The package knows nothing of
// sandboxes, sessions or the network, and merges nothing.
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

// ErrNotEmpty is returned by Restore for a directory that holds something.
var ErrNotEmpty = errors.New("workspace: directory is not empty")

// listing counts the bytes of the paths and link targets that are held of a workspace.
type listing int

// add counts the path p, or the target of the link there.
func (l *listing) add(p, text string) error {
	if *l += listing(len(text)); *l > manifest.MaxListing {
		return &LimitError{Path: p, What: namesLimit, Limit: manifest.MaxListing}
	}
	return nil
}

// Check returns a *LimitError if the files of a head are more, or larger, than the
// limits allow, or their names longer than any workspace may have. A manifest may name one blob a thousand times, so that one of another
// program can be larger than all that is stored.
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

// RefusedError names a path that a workspace cannot hold, and why.
type RefusedError struct {
	Path   string // slash separated, relative to the workspace
	Reason string
	Err    error // the system's error, if there was one
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

// LimitError says which limit a workspace is over.
type LimitError struct {
	Path  string // the path that was too much
	What  string // "files", "bytes" or "bytes of paths and link targets"
	Limit int64
}

// Error names the limit, the path and the way out.
func (e *LimitError) Error() string {
	wayOut := "remove what need not be kept, name it in .rathignore, or raise the limit"
	if e.What == namesLimit {
		wayOut = "remove what need not be kept, name it in .rathignore, or use shorter names"
	}
	return fmt.Sprintf("workspace: more than %d %s at %q; %s", e.Limit, e.What, e.Path, wayOut)
}

// ConflictError lists the paths that stop an Apply; nothing was changed.
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
