// Package local keeps a memory.Store in a directory of one machine.
//
// The directory holds a log of changes, notes.log, and the file LOCK. A write
// returns when its record is on the medium (fsync); a crash at any moment
// loses at most the write that had not returned. The notes and their index are
// held in memory, so reads and searches touch no file. When the log has grown
// to twice what its notes need, it is rewritten.
//
//	s, err := local.Open("var/memory", nil)
//	if err != nil { ... }
//	defer s.Close()
//
// One process at a time has a directory open. The files belong on a local
// file system: locks and fsync of network file systems promise less. Notes are
// stored as they are, not encrypted; the files are readable by their owner
// only.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/rathcluster/rath/internal/filelock"
	"github.com/rathcluster/rath/internal/notebook"
	"github.com/rathcluster/rath/memory"
)

var (
	// ErrLocked is wrapped by Open while another store has the directory.
	ErrLocked = errors.New("memory/local: directory is in use")
	// ErrCorrupt is wrapped by Open when a record that was acknowledged is
	// damaged. Nothing is changed or dropped.
	ErrCorrupt = errors.New("memory/local: damaged log")
	// ErrFormat is wrapped by Open for a log of another program or of a newer
	// release.
	ErrFormat = errors.New("memory/local: unknown log format")
	// ErrBroken is wrapped by writes after one whose outcome on the medium is
	// unknown. Reads go on; a new Open recovers.
	ErrBroken = errors.New("memory/local: log is broken")
)

// DefaultCompactAt is the size of log below which nothing is compacted.
const DefaultCompactAt = 4 << 20

// Options configure Open. The zero Options are the defaults.
type Options struct {
	// MaxNotes is how many notes the store takes; 0 is notebook.DefaultMaxNotes.
	MaxNotes int
	// CompactAt is the size of log, in bytes, from which on it is compacted
	// once it is twice as large as its notes need; 0 is DefaultCompactAt.
	CompactAt int64
}

// Store is a memory.Store and memory.Archiver in a directory.
type Store struct {
	m       *notebook.InMemory
	dir     string
	lock    *os.File
	compact int64 // Options.CompactAt
	torn    int64

	// Guarded by the order of changes: touched by m's Before and Hold alone.
	log    *log
	packed int64 // about what the log needs for the notes that are left
	broken error

	mu     sync.RWMutex // held shared by each call, alone by Close
	closed bool
}

var (
	_ memory.Store    = (*Store)(nil)
	_ memory.Archiver = (*Store)(nil)
)

// Open opens the store in dir, which is made if it is missing. Nil Options are
// the defaults. Reading a log of ten thousand notes takes about a third of a
// second.
func Open(dir string, o *Options) (_ *Store, err error) {
	if o == nil {
		o = &Options{}
	}
	s := &Store{dir: dir, compact: o.CompactAt}
	if s.compact <= 0 {
		s.compact = DefaultCompactAt
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("memory/local: make directory: %w", unwritable(err))
	}
	if s.lock, err = acquire(filepath.Join(dir, "LOCK")); err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, unwritable(err))
	}
	s.m = notebook.New(&notebook.Options{MaxNotes: o.MaxNotes, Before: s.record})
	// What a crash left of a compaction is neither read nor kept.
	if err := os.Remove(filepath.Join(dir, "notes.log.new")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("open %s: %w", dir, err), filelock.Release(s.lock))
	}
	puts := 0
	s.log, s.torn, err = openLog(filepath.Join(dir, "notes.log"), func(c notebook.Change) {
		puts += len(c.Puts)
		s.m.Apply(c)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", dir, unwritable(err)), filelock.Release(s.lock))
	}
	s.packed = s.log.size * int64(s.m.Len()) / int64(max(puts, 1))
	return s, nil
}

// unwritable adds what to do where nothing can be written.
func unwritable(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: a store needs a directory that it can write to: mount it writable and let this user write there, or name a copy of it", err)
	}
	return err
}

// Torn returns how many bytes of an unfinished record Open cut off: what a
// crash left of a write that had not returned.
func (s *Store) Torn() int64 { return s.torn }

// record makes a change durable before it is made.
func (s *Store) record(c notebook.Change) error {
	if s.broken != nil {
		return s.broken
	}
	if s.log.size >= s.compact && s.log.size > 2*s.packed {
		if err := s.rewrite(); err != nil {
			if s.broken != nil {
				return s.broken
			}
			// The old log is as good as before; try again when it has doubled.
			s.packed = s.log.size
		}
	}
	if err := s.log.append(c); err != nil {
		s.broken = fmt.Errorf("%w: %w: close the store in %s and open it again", ErrBroken, err, s.dir)
		return s.broken
	}
	return nil
}

// rewrite replaces the log by one that holds the present notes alone. It sets
// broken when it cannot tell which of the two is in place.
func (s *Store) rewrite() error {
	next, err := writeLog(s.log.path, s.m.Notes())
	if err != nil {
		return fmt.Errorf("compact %s: %w", s.dir, err)
	}
	l, err := s.log.replace(next)
	if err != nil {
		s.broken = fmt.Errorf("%w: compact: %w: close the store in %s and open it again", ErrBroken, err, s.dir)
		return s.broken
	}
	s.log, s.packed = l, l.size
	return nil
}

// Compact rewrites the log now, so that what was deleted or replaced is no
// longer in the file. Writes wait for it.
func (s *Store) Compact(ctx context.Context) error {
	return s.do(ctx, func() error {
		return s.m.Hold(func() error {
			if s.broken != nil {
				return s.broken
			}
			return s.rewrite()
		})
	})
}

// do runs fn unless the store is closed, and keeps it open meanwhile.
func (s *Store) do(ctx context.Context, fn func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return memory.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fn()
}

// Write implements memory.Store. It returns after one fsync.
func (s *Store) Write(ctx context.Context, uri, text string, from memory.Origin) error {
	return s.do(ctx, func() error { return s.m.Write(ctx, uri, text, from) })
}

// Delete implements memory.Store. The bytes stay in the file until it is
// compacted.
func (s *Store) Delete(ctx context.Context, uri string) error {
	return s.do(ctx, func() error { return s.m.Delete(ctx, uri) })
}

// Archive implements memory.Archiver. It returns after one fsync.
func (s *Store) Archive(ctx context.Context, session, key string, messages []memory.Message, from memory.Origin) (uri string, err error) {
	err = s.do(ctx, func() (err error) { uri, err = s.m.Archive(ctx, session, key, messages, from); return err })
	return uri, err
}

// Read implements memory.Store.
func (s *Store) Read(ctx context.Context, uri string) (text string, err error) {
	err = s.do(ctx, func() (err error) { text, err = s.m.Read(ctx, uri); return err })
	return text, err
}

// Find implements memory.Store.
func (s *Store) Find(ctx context.Context, q memory.Query) (hits []memory.Hit, err error) {
	err = s.do(ctx, func() (err error) { hits, err = s.m.Find(ctx, q); return err })
	return hits, err
}

// List implements memory.Store.
func (s *Store) List(ctx context.Context, uri string) (uris []string, err error) {
	err = s.do(ctx, func() (err error) { uris, err = s.m.List(ctx, uri); return err })
	return uris, err
}

// Each calls fn with each note of one moment, sorted by URI, until it returns an error.
// The words of beside find a note too, as those of its neighbours in an archive do.
func (s *Store) Each(ctx context.Context, fn func(uri, text, beside string, from memory.Origin) error) error {
	return s.do(ctx, func() error {
		for n := range s.m.Notes() {
			if err := fn(n.URI, n.Text, n.Context, n.Origin); err != nil {
				return err
			}
		}
		return nil
	})
}

// Close waits for the calls that run and gives the directory back. Closing
// twice is fine.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.log.close(), filelock.Release(s.lock))
}
