package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/session"
)

// Blobs lie in the stream BLOB, one message per digest, and not in a JetStream
// object store: an object takes several messages to put, and a consumer to
// get. Measured side by side (BenchmarkBlob), 4 KiB, one replica that syncs:
// put 0.48 ms against 0.87 ms, get 0.04 ms against 0.50 ms.
//
// A blob over blobPart bytes is a message with the digests of its parts, which
// are blobs themselves. So a reader of any length is stored in little memory,
// and files that share parts share them in the store.

const (
	// blobPart is the maximum size of one message, far below the servers' default of 1 MiB.
	blobPart = wire.MaxBlobPart
	// BlobFresh is the age at which storing a blob again, or asking for it, renews it.
	// Unreferenced blobs are removed only when they are much older, and so never when they
	// are about to be referenced.
	BlobFresh = 24 * time.Hour

	HeaderBlob = "Rath-Blob"
	BlobList   = "list" // the body holds digests; no header: it holds the bytes
)

// BlobTime returns the time of the server that leads the stream of blobs, at most
// blobTimeFresh early or late. The ages of blobs follow from it alone. By its own clock, a
// process whose clock is days from the server's could rely on a blob about to be removed,
// or remove one that others rely on.
func (c *Logs) BlobTime(ctx context.Context) (time.Time, error) {
	asked := time.Now()
	if r := c.blobTime.Load(); r != nil {
		// One of the two clocks stops while the machine sleeps, the other one can be set.
		since, wall := asked.Sub(r.asked), asked.Round(0).Sub(r.asked.Round(0))
		if since < blobTimeFresh && wall < blobTimeFresh {
			return r.server.Add(since), nil
		}
	}
	info, err := conn.Retry(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return c.messages.StreamInfo(ctx, streams.StreamBlob)
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("nats/eventlog: ask the time of stream %s: %w", streams.StreamBlob, conn.StreamError(err))
	}
	c.blobTime.Store(&blobTime{asked, info.TimeStamp})
	return info.TimeStamp, nil
}

// blobTime is a time of the server, and the local time of the request.
type blobTime struct{ asked, server time.Time }

// blobTimeFresh is how long a time of the server is used.
const blobTimeFresh = time.Minute

// Blobs returns the blobs of a tenant. Stored blobs are as durable as the level of the
// connection.
func (c *Logs) Blobs(tenant session.Tenant) blob.Store {
	return &blobStore{wire.NewBlobs(&blobMessages{c, tenant}), c, tenant}
}

// blobStore is also a blob.Prober.
type blobStore struct {
	blob.Store
	c      *Logs
	tenant session.Tenant
}

// Missing implements blob.Prober.
func (b *blobStore) Missing(ctx context.Context, all []blob.Digest) ([]blob.Digest, error) {
	return b.c.MissingBlobs(ctx, b.tenant, all)
}

// blobMessages are those in the stream BLOB.
type blobMessages struct {
	c      *Logs
	tenant session.Tenant
}

func (b *blobMessages) subject(d blob.Digest) string {
	return streams.PrefixBlob + string(b.tenant) + "." + d.String()
}

// StoreBlobMessage checks and stores one message of a tenant's blobs that another program
// sent: the parts of a list have to be stored and to match the blob. Its error is
// run.ErrBusy while the tenant may store no more.
func (c *Logs) StoreBlobMessage(ctx context.Context, t session.Tenant, d blob.Digest, list bool, data []byte) error {
	b := &blobMessages{c, t}
	if err := c.streams.Capacity.Admit(ctx, streams.StreamBlob, t); err != nil {
		return err
	}
	switch {
	case len(data) > blobPart || list && len(data) <= len(d):
		return fmt.Errorf("nats/eventlog: store blob %s: %w: %d bytes; send parts of at most %d bytes, and then their digests as a list", d.Short(), ErrBlobMessage, len(data), blobPart)
	case list && len(data) > wire.MaxBlob/blobPart*len(d):
		return fmt.Errorf("nats/eventlog: store blob %s: %w: a list of %d parts; at most %d bytes are taken in parts", d.Short(), ErrBlobMessage, len(data)/len(d), wire.MaxBlob)
	case !list && blob.Sum(data) != d:
		return fmt.Errorf("nats/eventlog: store blob %s: %w: the bytes are those of %s", d.Short(), ErrBlobMessage, blob.Sum(data).Short())
	case list:
		parts, err := wire.PartsOf(d, data)
		if err != nil {
			return fmt.Errorf("nats/eventlog: store blob %s: %w: %w", d.Short(), ErrBlobMessage, err)
		}
		rc := blob.Verify(wire.NewPartReader(ctx, b, parts), d)
		_, err = io.Copy(io.Discard, rc)
		if err = errors.Join(err, rc.Close()); errors.Is(err, blob.ErrCorrupt) {
			return fmt.Errorf("nats/eventlog: store blob %s: %w: %w", d.Short(), ErrBlobMessage, err)
		} else if err != nil {
			return err
		}
	}
	c.streams.Capacity.Appended(streams.StreamBlob, len(data))
	return b.Store(ctx, d, list, data)
}

// ErrBlobMessage is returned by StoreBlobMessage for bytes that are no message of the given
// blob.
var ErrBlobMessage = errors.New("not the bytes of this blob")

// LoadBlobMessage returns one message of a tenant's blobs: the bytes of the blob or, of a
// long one, the digests of its parts. Its error is blob.ErrNotFound for an absent one.
func (c *Logs) LoadBlobMessage(ctx context.Context, t session.Tenant, d blob.Digest) (data []byte, list bool, err error) {
	return (&blobMessages{c, t}).Load(ctx, d)
}

// MissingBlobs returns the blobs of all that a tenant has to store before a commit may name
// them, in their order. It renews existing blobs that are old. It may return a blob that
// was stored a moment ago, which is harmless.
func (c *Logs) MissingBlobs(ctx context.Context, t session.Tenant, all []blob.Digest) ([]blob.Digest, error) {
	if err := session.ValidID("tenant", string(t)); err != nil {
		return nil, err
	}
	b := &blobMessages{c, t}
	missing := []blob.Digest{}
	long := map[blob.Digest]conn.Message{} // old ones
	for page := range slices.Chunk(all, conn.PageMessages) {
		subjects := make([]string, len(page))
		for i, d := range page {
			subjects[i] = b.subject(d)
		}
		found, err := c.messages.Lasts(ctx, streams.StreamBlob, subjects)
		if err != nil {
			return nil, err
		}
		old := map[blob.Digest]conn.Message{}
		for i, d := range page {
			if m, ok := found[subjects[i]]; !ok {
				missing = append(missing, d)
			} else if now, err := b.c.BlobTime(ctx); err != nil {
				return nil, err
			} else if now.Sub(m.Time) < BlobFresh {
				continue
			} else if m.Header.Get(HeaderBlob) == BlobList {
				long[d] = m
			} else {
				old[d] = m
			}
		}
		if err := b.renew(ctx, old); err != nil {
			return nil, err
		}
	}
	if len(long) == 0 {
		return missing, nil
	}
	lost, err := b.renewLong(ctx, long)
	if err != nil {
		return nil, err
	}
	for _, d := range missing {
		lost[d] = true
	}
	missing = missing[:0]
	for _, d := range all {
		if lost[d] {
			missing = append(missing, d)
		}
	}
	return missing, nil
}

// renewLong renews long blobs, the parts before the list, as a sweep removes the list
// before the parts. It returns the blobs that lack a part.
func (b *blobMessages) renewLong(ctx context.Context, long map[blob.Digest]conn.Message) (lost map[blob.Digest]bool, err error) {
	lost, parts := map[blob.Digest]bool{}, map[blob.Digest][]blob.Digest{}
	var all []blob.Digest
	for d, m := range long {
		if parts[d], err = wire.PartsOf(d, m.Data); err != nil {
			lost[d] = true // it is damaged
		}
		all = append(all, parts[d]...)
	}
	missing, err := b.c.MissingBlobs(ctx, b.tenant, all)
	if err != nil {
		return nil, err
	}
	gone := make(map[blob.Digest]bool, len(missing))
	for _, d := range missing {
		gone[d] = true
	}
	whole := maps.Clone(long)
	for d, list := range parts {
		if lost[d] || slices.ContainsFunc(list, func(d blob.Digest) bool { return gone[d] }) {
			lost[d] = true
			delete(whole, d)
		}
	}
	return lost, b.renew(ctx, whole)
}

// renew stores some messages again.
func (b *blobMessages) renew(ctx context.Context, old map[blob.Digest]conn.Message) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan blob.Digest)
	var stores sync.WaitGroup
	for range min(blobStores, len(old)) {
		stores.Go(func() {
			for d := range work {
				m := old[d]
				if err := b.Store(ctx, d, m.Header.Get(HeaderBlob) == BlobList, m.Data); err != nil {
					cancel(err)
				}
			}
		})
	}
	for d := range old {
		work <- d
	}
	close(work)
	stores.Wait()
	return context.Cause(ctx)
}

// blobStores is how many blobs are renewed concurrently.
const blobStores = 16

// Load implements wire.BlobMessages.
func (b *blobMessages) Load(ctx context.Context, d blob.Digest) (data []byte, list bool, err error) {
	if err := session.ValidID("tenant", string(b.tenant)); err != nil {
		return nil, false, err
	}
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	m, err := b.c.messages.Last(ctx, streams.StreamBlob, b.subject(d))
	if errors.Is(err, conn.ErrNoMessage) {
		return nil, false, fmt.Errorf("%w: %s", blob.ErrNotFound, d)
	}
	if err != nil {
		return nil, false, err
	}
	return m.Data, m.Header.Get(HeaderBlob) == BlobList, nil
}

// Store implements wire.BlobMessages.
func (b *blobMessages) Store(ctx context.Context, d blob.Digest, list bool, data []byte) error {
	if err := session.ValidID("tenant", string(b.tenant)); err != nil {
		return err
	}
	if err := b.c.streams.ReadyToStore(ctx); err != nil {
		return err
	}
	header := nats.Header{}
	if list {
		header[HeaderBlob] = []string{BlobList}
	}
	if err := b.putMessage(ctx, d, header, data); err != nil {
		return err
	}
	// A reconnect in between may have led to a server that stores otherwise.
	return b.c.streams.ReadyToStore(ctx)
}

// putMessage stores one message under a digest unless it exists. It is idempotent, so an
// unclear outcome is retried.
func (b *blobMessages) putMessage(ctx context.Context, d blob.Digest, header nats.Header, data []byte) error {
	subject := b.subject(d)
	ctx, cancel := context.WithTimeout(ctx, conn.RetryBudget)
	defer cancel()
	var last uint64
	for wait := conn.NewBackoff(); ; {
		err := b.publish(ctx, subject, last, header, data)
		if err == nil || errors.Is(err, conn.ErrFull) {
			return err
		}
		if errors.Is(err, conn.ErrExpectation) {
			have, lookErr := b.c.messages.Last(ctx, streams.StreamBlob, subject)
			now := time.Time{}
			if lookErr == nil {
				now, lookErr = b.c.BlobTime(ctx)
			}
			switch {
			case errors.Is(lookErr, conn.ErrNoMessage):
				last = 0
			case lookErr != nil:
				err = lookErr
			case have.Header.Get(HeaderBlob) == header.Get(HeaderBlob) && bytes.Equal(have.Data, data) && now.Sub(have.Time) < BlobFresh:
				return nil
			default: // old, or does not match the digest
				last = have.Seq
			}
		}
		if waitErr := wait.Sleep(ctx); waitErr != nil {
			return errors.Join(waitErr, err)
		}
	}
}

func (b *blobMessages) publish(ctx context.Context, subject string, last uint64, header nats.Header, data []byte) error {
	h := make(nats.Header, len(header)+1)
	maps.Copy(h, header)
	_, err := b.c.messages.PublishExpecting(ctx, subject, last, h, data)
	return err
}
