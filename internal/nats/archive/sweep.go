package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/session"
)

// DefaultBlobGrace is how long an unreferenced blob stays, after the age from which it has
// to be stored again to be relied on.
const DefaultBlobGrace = 24 * time.Hour

// SweepOptions select the blobs to remove.
type SweepOptions struct {
	// Tenant limits the sweep to the blobs of one tenant; "" means all.
	Tenant session.Tenant
	// Grace is the time within which a blob has to be named, after it was stored or found
	// to be stored; 0 means DefaultBlobGrace.
	Grace time.Duration
	// DryRun only reports the blobs that would be removed.
	DryRun bool

	// fresh is eventlog.BlobFresh, but in tests.
	fresh time.Duration
	// after is called after each step; an error stops everything there, as a crash would.
	after func(step string) error
}

// Sweep is the result of a sweep. Its numbers count messages: a long blob has one for each
// part.
type Sweep struct {
	Stored, Named, Young, Removed int
	StoredBytes, RemovedBytes     int64
	// Missing are the blobs that a named head needs and that are not stored.
	Missing []blob.Digest
}

// SweepBlobs removes the unreferenced blobs, by mark and sweep. A blob is named if a log, a
// waiting task, a result or a dead letter names it, or if a named blob does: a head names
// its packs and files, large data of an event the digests in it, a long blob its parts. Any
// 64 hexadecimal digits count as a name.
//
// Others may write at the same time. A blob is removed only once it was stored, or found to
// be stored, longer ago than eventlog.BlobFresh and the grace together: a writer that puts
// or requests a blob of that age stores its message again, under another sequence than the
// removed one. Both judge ages by the server's clock. Long blobs are removed before their
// parts, so that a sweep that ends in between leaves no long blob without a part.
//
// The connection needs the rights of an operator: conn.ErrDenied.
func (c *Archive) SweepBlobs(ctx context.Context, opts *SweepOptions) (*Sweep, error) {
	o := *opts
	if o.Grace == 0 {
		o.Grace = DefaultBlobGrace
	}
	if o.fresh == 0 {
		o.fresh = eventlog.BlobFresh
	}
	if o.after == nil {
		o.after = func(string) error { return nil }
	}
	if !o.DryRun {
		if err := c.MayPurge(ctx); err != nil {
			return nil, err
		}
	}
	s := &sweep{c: c, o: o, named: map[blobKey]bool{}, read: map[blobKey]bool{}, missing: map[blob.Digest]bool{}}
	return s.run(ctx)
}

// sweep is the state of one sweep.
type sweep struct {
	c       *Archive
	o       SweepOptions
	blobs   map[blobKey]storedBlob
	tenants []session.Tenant
	named   map[blobKey]bool
	read    map[blobKey]bool // looked into for more names
	todo    []blobKey        // to be looked into
	began   time.Time        // for the server that gave the blobs their times
	missing map[blob.Digest]bool
	out     Sweep
}

func (s *sweep) run(ctx context.Context) (*Sweep, error) {
	var err error
	if s.began, err = s.c.logs.BlobTime(ctx); err != nil {
		return nil, err
	}
	// The stored blobs are listed first: blobs stored later stay.
	if s.blobs, err = s.c.storedBlobs(ctx); err != nil {
		return nil, err
	}
	seen := map[session.Tenant]bool{}
	for k := range s.blobs {
		if !seen[k.tenant] {
			seen[k.tenant] = true
			s.tenants = append(s.tenants, k.tenant)
		}
	}
	// Names that arrived during the read of the streams are read after that.
	read := map[string]uint64{}
	for _, step := range []string{"listed", "marked"} {
		if err := s.o.after(step); err != nil {
			return nil, err
		}
		if err := s.c.named(ctx, read, s.mark); err != nil {
			return nil, err
		}
		if err := s.follow(ctx); err != nil {
			return nil, err
		}
	}
	long, short := s.unnamed()
	for d := range s.missing {
		s.out.Missing = append(s.out.Missing, d)
	}
	slices.SortFunc(s.out.Missing, func(a, z blob.Digest) int { return strings.Compare(a.String(), z.String()) })
	if s.o.DryRun {
		for _, k := range slices.Concat(long, short) {
			s.removed(k)
		}
		return &s.out, nil
	}
	if err := s.remove(ctx, long); err != nil {
		return &s.out, err
	}
	// A long blob that was stored again meanwhile keeps its parts.
	short = slices.DeleteFunc(short, func(k blobKey) bool { return s.named[k] })
	return &s.out, s.remove(ctx, short)
}

// mark notes that a digest is named, whose blob may name others.
func (s *sweep) mark(d blob.Digest) {
	for _, t := range s.tenants {
		k := blobKey{t, d}
		if _, ok := s.blobs[k]; !ok || s.read[k] {
			continue
		}
		s.read[k], s.named[k] = true, true
		s.todo = append(s.todo, k)
	}
}

// follow reads the named blobs for the names of others.
func (s *sweep) follow(ctx context.Context) error {
	for len(s.todo) > 0 {
		k := s.todo[len(s.todo)-1]
		s.todo = s.todo[:len(s.todo)-1]
		if err := s.into(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// into marks the blobs that a blob names.
func (s *sweep) into(ctx context.Context, k blobKey) error {
	rc, err := s.c.logs.Blobs(k.tenant).Get(ctx, k.digest)
	if err != nil {
		return s.unreadable(k, err)
	}
	defer rc.Close()
	// A digest that lies across two reads is found in the second.
	buf, have := make([]byte, 1<<20), 0
	for first := true; ; first = false {
		n, err := io.ReadFull(rc, buf[have:])
		data := buf[:have+n]
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return s.unreadable(k, err)
		}
		if first && manifest.Looks(data) {
			return s.head(ctx, k, data, rc)
		}
		digestsIn(data, s.mark)
		if end {
			return nil
		}
		have = copy(buf, data[len(data)-min(len(data), 63):])
	}
}

// head marks the blobs that a head names: the bytes of its files name none.
func (s *sweep) head(ctx context.Context, k blobKey, data []byte, rest io.Reader) error {
	more, err := io.ReadAll(rest)
	if err != nil && !errors.Is(err, blob.ErrCorrupt) {
		return s.unreadable(k, err)
	}
	data = append(slices.Clip(data), more...)
	heads, files, err := manifest.Refs(data)
	if err != nil { // it only looks like one
		digestsIn(data, s.mark)
		return nil
	}
	for _, d := range heads {
		s.mark(d)
	}
	for _, d := range slices.Concat(heads, files) {
		key := blobKey{k.tenant, d}
		if _, ok := s.blobs[key]; ok {
			s.named[key] = true
		} else {
			s.missing[d] = true
		}
	}
	return ctx.Err()
}

// unreadable handles a named blob that cannot be read. A blob that is damaged, or lacks a
// part, names no others; any other error ends the sweep.
func (s *sweep) unreadable(k blobKey, err error) error {
	if errors.Is(err, blob.ErrCorrupt) || errors.Is(err, blob.ErrNotFound) {
		s.missing[k.digest] = true
		return nil
	}
	return fmt.Errorf("nats/archive: look into blob %s: %w", k.digest.Short(), err)
}

// unnamed returns the blobs to be removed: long ones, and those of one message. Blobs that
// stay keep their parts.
func (s *sweep) unnamed() (long, short []blobKey) {
	limit := s.began.Add(-s.o.fresh - s.o.Grace)
	stays := func(k blobKey, b storedBlob) bool {
		return s.named[k] || !b.time.Before(limit) || s.o.Tenant != "" && k.tenant != s.o.Tenant
	}
	for k, b := range s.blobs {
		if b.parts != nil && stays(k, b) {
			s.keepParts(k, b)
		}
	}
	for k, b := range s.blobs {
		s.out.Stored, s.out.StoredBytes = s.out.Stored+1, s.out.StoredBytes+int64(b.size)
		switch {
		case s.named[k]:
			s.out.Named++
		case stays(k, b):
			s.out.Young++
		case b.parts != nil:
			long = append(long, k)
		default:
			short = append(short, k)
		}
	}
	return long, short
}

// keepParts keeps the parts of a long blob that stays.
func (s *sweep) keepParts(k blobKey, b storedBlob) {
	for _, d := range b.parts {
		s.named[blobKey{k.tenant, d}] = true
	}
}

// removers is how many blobs are removed concurrently.
const removers = 16

// remove removes blobs.
func (s *sweep) remove(ctx context.Context, all []blobKey) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan blobKey)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range min(removers, len(all)) {
		wg.Go(func() {
			for k := range work {
				there, err := s.c.removeBlob(ctx, s.blobs[k].seq)
				mu.Lock()
				switch {
				case err != nil:
					cancel(err)
				case there:
					s.removed(k)
					if err := s.o.after("removed"); err != nil {
						cancel(err)
					}
				default: // it was stored again
					s.out.Young++
					s.keepParts(k, s.blobs[k])
				}
				mu.Unlock()
			}
		})
	}
	for _, k := range all {
		if ctx.Err() != nil {
			break
		}
		work <- k
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}

func (s *sweep) removed(k blobKey) {
	s.out.Removed, s.out.RemovedBytes = s.out.Removed+1, s.out.RemovedBytes+int64(s.blobs[k].size)
}
