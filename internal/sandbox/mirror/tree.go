package mirror

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Tree is the set of files below one directory. Its methods may be called concurrently.
type Tree interface {
	// List returns all entries, sorted by path. The files named in sum have their Sum. A
	// tree over the limits is a *FullError.
	List(ctx context.Context, sum []string) ([]Entry, error)
	// Fetch writes the named files that exist as a stream for Send, which ends with the
	// error that Fetch returns.
	Fetch(ctx context.Context, names []string, w io.Writer) error
	// Send removes names with all entries below them, creates the entries of the stream,
	// and returns an entry for each file that it wrote. It replaces an existing entry of
	// the name of a file or link.
	Send(ctx context.Context, remove []string, r io.Reader) ([]Entry, error)
}

// Kind is the type of an entry.
type Kind byte

// The kinds. The list is closed.
const (
	File    Kind = 'f'
	Dir     Kind = 'd'
	Link    Kind = 'l'
	Special Kind = 's' // a FIFO, device or socket
)

// Entry describes a file, directory, link or special file.
type Entry struct {
	Path   string // slash separated, relative
	Kind   Kind
	Exec   bool   // a file that its owner may execute
	Size   int64  // of a file
	Target string // of a link
	// Stamp identifies the version of a file, by its metadata. A changed file has another
	// stamp if the old one was Settled; otherwise the change may lie within the same tick
	// of the clock.
	Stamp   string
	Settled bool
	Sum     [sha256.Size]byte // of a file, if it was requested
}

// Limits bound a tree. The zero value means the defaults.
type Limits struct {
	Entries int
	Bytes   int64 // of all files, holes included
}

// The default limits, which are the limits of a workspace.
const (
	DefaultEntries = 200_000
	DefaultBytes   = 2560 << 20
	maxPath        = 4096 // bytes
	maxName        = 255

	// maxListing bounds a listing: the bytes of all paths and link targets together.
	maxListing = 64 << 20
)

func (l Limits) orDefault() Limits {
	if l.Entries <= 0 {
		l.Entries = DefaultEntries
	}
	if l.Bytes <= 0 {
		l.Bytes = DefaultBytes
	}
	return l
}

// FullError names the limit that a tree exceeds.
type FullError struct{ What string }

func (e *FullError) Error() string { return "the files of the sandbox are over a limit: " + e.What }

// listing counts the bytes of the paths and link targets of a list.
type listing int

func (l *listing) add(text string) error {
	if *l += listing(len(text)); *l > maxListing {
		return &FullError{fmt.Sprintf("more than %d bytes of paths and link targets", maxListing)}
	}
	return nil
}

func tooLong() *FullError { return &FullError{fmt.Sprintf("a path of more than %d bytes", maxPath)} }

// checkPath rejects a text that is not the path of an entry below a directory.
func checkPath(p string) error {
	if p == "" || len(p) > maxPath || strings.IndexByte(p, 0) >= 0 {
		return fmt.Errorf("mirror: %.100q is no path: it is empty, has NUL or more than %d bytes", p, maxPath)
	}
	for name := range strings.SplitSeq(p, "/") {
		if name == "" || name == "." || name == ".." || len(name) > maxName {
			return fmt.Errorf("mirror: %.100q is no path below a directory", p)
		}
	}
	return nil
}

// check rejects an impossible listing, and a listing over the limits.
func check(list []Entry, l Limits) error {
	if len(list) > l.Entries {
		return &FullError{fmt.Sprintf("more than %d files, directories and links", l.Entries)}
	}
	dirs := map[string]bool{".": true}
	var before string
	var sum int64
	for _, e := range list {
		if err := checkPath(e.Path); err != nil {
			return err
		}
		if e.Path <= before {
			return fmt.Errorf("mirror: %.100q is listed twice or out of order", e.Path)
		}
		before = e.Path
		if !dirs[path.Dir(e.Path)] {
			return fmt.Errorf("mirror: %.100q is listed below what is no directory", e.Path)
		}
		switch e.Kind {
		case Dir:
			dirs[e.Path] = true
		case File:
			if e.Size < 0 {
				return fmt.Errorf("mirror: %.100q has %d bytes", e.Path, e.Size)
			}
			if sum += min(e.Size, l.Bytes+1); sum > l.Bytes {
				return &FullError{fmt.Sprintf("more than %d bytes", l.Bytes)}
			}
		case Link:
			if err := checkTarget(e.Target); err != nil {
				return err
			}
		case Special:
		default:
			return fmt.Errorf("mirror: %.100q is of no kind that is known", e.Path)
		}
	}
	return nil
}

func checkTarget(t string) error {
	if t == "" || len(t) > maxPath || strings.IndexByte(t, 0) >= 0 {
		return errors.New("mirror: the target of a link is empty, has NUL or is too long")
	}
	return nil
}
