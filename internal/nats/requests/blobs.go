package requests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// RemoteBlobs returns the blobs of a tenant with a client's access. Beside the errors of
// blob.Store, Put returns run.ErrBusy while the tenant may store no more.
func (c *Requests) RemoteBlobs(t session.Tenant) blob.Store {
	m := c.TenantBlobs(t)
	return &remoteStore{wire.NewBlobs(m), m}
}

// TenantBlobs returns the messages of a tenant's blobs.
func (c *Requests) TenantBlobs(t session.Tenant) *TenantBlobs { return &TenantBlobs{c, t} }

// remoteStore is also a blob.Prober.
type remoteStore struct {
	blob.Store
	m *TenantBlobs
}

// Missing implements blob.Prober.
func (s *remoteStore) Missing(ctx context.Context, all []blob.Digest) ([]blob.Digest, error) {
	return s.m.missing(ctx, all)
}

// TenantBlobs are the messages of a tenant's blobs, by requests.
type TenantBlobs struct {
	requests *Requests
	t        session.Tenant
}

// Load implements wire.BlobMessages.
func (r *TenantBlobs) Load(ctx context.Context, d blob.Digest) (data []byte, list bool, err error) {
	var m wire.Blob
	err = r.requests.Ask(ctx, r.t, messages.QueryBlob, wire.Query{Digests: []blob.Digest{d}}, &m)
	if errors.Is(err, session.ErrNotFound) {
		err = fmt.Errorf("%w: %s", blob.ErrNotFound, d)
	}
	return m.Data, m.List, err
}

// Store implements wire.BlobMessages. The nodes answer a few hundred requests concurrently
// and reject others, which are sent again.
func (r *TenantBlobs) Store(ctx context.Context, d blob.Digest, list bool, data []byte) error {
	body, err := messages.Encode(wire.Blob{Data: data, List: list})
	if err != nil {
		return err
	}
	user, err := r.requests.user(ctx, r.t)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, conn.RetryBudget)
	defer cancel()
	for wait := conn.NewBackoff(); ; {
		_, err := answered(ctx, func(ctx context.Context) ([]byte, error) {
			return r.requests.question(ctx, messages.BlobSubject(r.t, user, d), nil, body, controlElse)
		})
		if !errors.Is(err, run.ErrBusy) {
			return err
		}
		if waitErr := wait.Sleep(ctx); waitErr != nil {
			return err
		}
	}
}

func (r *TenantBlobs) missing(ctx context.Context, all []blob.Digest) ([]blob.Digest, error) {
	var out []blob.Digest
	for len(all) > 0 {
		n := min(len(all), wire.MaxDigests)
		var m wire.Missing
		if err := r.requests.Ask(ctx, r.t, messages.QueryMissing, wire.Query{Digests: all[:n]}, &m); err != nil {
			return nil, err
		}
		out, all = append(out, m.Missing...), all[n:]
	}
	return out, nil
}

// Ask sends a query and decodes its answer.
func (c *Requests) Ask(ctx context.Context, t session.Tenant, verb string, q wire.Query, into any) error {
	data, err := c.Query(ctx, t, verb, q)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("answer to %s: %w", verb, err)
	}
	return nil
}

// PutMissing stores a blob. It does not send parts that are already stored.
func (r *TenantBlobs) PutMissing(ctx context.Context, data []byte) (blob.Digest, error) {
	whole := blob.Sum(data)
	if missing, err := r.missing(ctx, []blob.Digest{whole}); err != nil || len(missing) == 0 {
		return whole, err
	}
	parts := map[blob.Digest][]byte{}
	var all []blob.Digest
	var list []byte
	for part := range slices.Chunk(data, wire.MaxBlobPart) {
		d := blob.Sum(part)
		if parts[d] == nil {
			all = append(all, d)
		}
		parts[d], list = part, append(list, d[:]...)
	}
	missing, err := r.missing(ctx, all)
	if err != nil {
		return whole, err
	}
	for _, d := range missing {
		if err := r.Store(ctx, d, false, parts[d]); err != nil {
			return whole, err
		}
	}
	if len(list) == len(whole) {
		return whole, nil // the only part is the blob
	}
	return whole, r.Store(ctx, whole, true, list)
}
