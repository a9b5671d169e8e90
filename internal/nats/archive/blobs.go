package archive

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/session"
)

// blobKey is a blob of a tenant.
type blobKey struct {
	tenant session.Tenant
	digest blob.Digest
}

// storedBlob is the message of a blob.
type storedBlob struct {
	seq   uint64
	time  time.Time
	size  int
	parts []blob.Digest // of a long one
}

// storedBlobs reads all stored blobs.
func (c *Archive) storedBlobs(ctx context.Context) (map[blobKey]storedBlob, error) {
	all := map[blobKey]storedBlob{}
	err := c.logs.DumpStream(ctx, streams.StreamBlob, false, func(m eventlog.Stored) error {
		tenant, name, _ := strings.Cut(strings.TrimPrefix(m.Subject, streams.PrefixBlob), ".")
		d, err := blob.ParseDigest(name)
		if err != nil {
			return nil //nolint:nilerr // the end, or not a blob
		}
		b := storedBlob{seq: m.Seq, time: m.Time, size: len(m.Data)}
		if nats.Header(m.Header).Get(eventlog.HeaderBlob) == eventlog.BlobList {
			if b.parts, err = wire.PartsOf(d, m.Data); err != nil {
				b.parts = nil // it is damaged, and names no blob
			}
		}
		all[blobKey{session.Tenant(tenant), d}] = b
		return nil
	})
	return all, err
}

// removeBlob removes a message of a blob, and reports whether it existed: a blob that was
// stored again meanwhile has another sequence.
func (c *Archive) removeBlob(ctx context.Context, seq uint64) (bool, error) {
	removed, err := c.messages.RemoveMessage(ctx, streams.StreamBlob, seq)
	if errors.Is(err, conn.ErrDenied) {
		return false, fmt.Errorf("nats/archive: remove a blob, which takes the credentials of an operator: %w", err)
	}
	if err != nil {
		return false, fmt.Errorf("nats/archive: remove a blob: %w", err)
	}
	return removed, nil
}

// naming returns the streams whose messages name blobs, in the order in which a name moves
// through them: a task that leaves the first is in a later one by then. Lineage names only
// blobs that the logs name.
func (c *Archive) naming(ctx context.Context) ([]string, error) {
	events, err := c.streams.EventStreams(ctx)
	if err != nil {
		return nil, err
	}
	all := append([]string{streams.StreamTasks}, events...)
	return append(all, streams.StreamResult, streams.StreamDLQ), nil
}

// named calls fn for each digest that a message names which is not before after, the
// sequences up to which the streams were read, and raises those.
func (c *Archive) named(ctx context.Context, after map[string]uint64, fn func(blob.Digest)) error {
	all, err := c.naming(ctx)
	if err != nil {
		return err
	}
	for _, stream := range all {
		from, read := after[stream]
		if !read || stream == streams.StreamTasks {
			err := c.logs.DumpStream(ctx, stream, false, func(m eventlog.Stored) error {
				digestsIn(m.Data, fn)
				after[stream] = max(after[stream], m.Seq)
				return nil
			})
			if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return err
			}
			continue
		}
		info, err := conn.Retry(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) { return c.messages.StreamInfo(ctx, stream) })
		if err != nil {
			return fmt.Errorf("nats/archive: read stream %s: %w", stream, conn.StreamError(err))
		}
		for m, err := range c.messages.UpTo(ctx, stream, ">", from, info.State.LastSeq) {
			if err != nil {
				return err
			}
			digestsIn(m.Data, fn)
		}
		after[stream] = info.State.LastSeq
	}
	return nil
}

// hex64 matches possible digests, also inside of JSON that is text.
var hex64 = regexp.MustCompile(`[0-9a-f]{64,}`)

// digestsIn calls fn for each text in data that may be a digest.
func digestsIn(data []byte, fn func(blob.Digest)) {
	for len(data) > 0 {
		at := hex64.FindIndex(data)
		if at == nil {
			return
		}
		// In a longer run of digits each substring may be a digest.
		for run := data[at[0]:at[1]]; len(run) >= 64; run = run[1:] {
			if d, err := blob.ParseDigest(string(run[:64])); err == nil {
				fn(d)
			}
		}
		data = data[at[1]:]
	}
}
