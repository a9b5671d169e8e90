package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/offload"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Files and logs go over requests, so that a program with the credentials of a client has
// what those have that read the streams. The subject says the tenant, and a digest opens
// nothing: the blobs of each tenant are its own.

// controlBlob stores a message of a tenant's blobs.
func (c *controls) controlBlob(ctx context.Context, t session.Tenant, id, verb string, body []byte) error {
	if verb != messages.VerbBlobPut {
		return fmt.Errorf("verb %q: %w: blobs take %s", verb, run.ErrMalformed, messages.VerbBlobPut)
	}
	d, err := digestOf(id)
	if err != nil {
		return err
	}
	m, err := wire.DecodeBlob(body)
	if err != nil {
		return err
	}
	err = c.all.Logs.StoreBlobMessage(ctx, t, d, m.List, m.Data)
	if errors.Is(err, eventlog.ErrBlobMessage) {
		err = fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	return err
}

// digestOf reads the name of a blob in a subject.
func digestOf(id string) (blob.Digest, error) {
	d, err := blob.ParseDigest(id)
	if err != nil || d.IsZero() || d.String() != id {
		return d, fmt.Errorf("blob %q: %w: name it by 64 lower-case hexadecimal digits", id, run.ErrMalformed)
	}
	return d, nil
}

func (a answerer) blob(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	switch n := len(q.Digests); n {
	case 0:
		return nil, missing("digests", "send the digest of one blob")
	case 1:
	default:
		return nil, &strict.Error{Message: "query", Field: "digests", Problem: fmt.Sprintf("there are %d", n), Remedy: "ask for one blob at a time"}
	}
	data, list, err := a.c.Logs.LoadBlobMessage(ctx, t, q.Digests[0])
	if errors.Is(err, blob.ErrNotFound) {
		err = fmt.Errorf("%w: %w", session.ErrNotFound, err)
	}
	return wire.Blob{Data: data, List: list}, err
}

func (a answerer) missing(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	ds, err := a.c.Logs.MissingBlobs(ctx, t, q.Digests)
	return wire.Missing{Missing: ds}, err
}

func (a answerer) commits(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if q.Session == "" {
		return nil, missing("session", "send the id of a session")
	}
	ref, err := session.ParseRef(t, q.Session)
	if err != nil {
		return nil, err
	}
	if ref.ID, err = a.c.Logs.ResolveSession(ctx, t, string(ref.ID), false); err != nil {
		return nil, err
	}
	at, err := q.At.Position()
	if err != nil {
		return nil, err
	}
	out := wire.Commits{Commits: []wire.StoredCommit{}}
	room := pageRoom
	for e, err := range a.c.Logs.StoredLog().Read(ctx, ref.Key, at) {
		if err != nil {
			return nil, err
		}
		// In JSON each quote of a commit takes two bytes.
		if room -= 2*len(e.Raw) + commitRoom; len(out.Commits) > 0 && (room < 0 || len(out.Commits) >= limitOf(q)) {
			out.Next = wire.PositionOf(at)
			break
		}
		out.Commits = append(out.Commits, wire.StoredCommit{Token: e.At.Token, Commit: e.Raw})
		at = e.At
	}
	return out, nil
}

// commitRoom is about what a commit takes in an answer beside its bytes.
const commitRoom = 64

// RemoteBlobs returns the blobs of a tenant as a client stores and reads them. Beside
// the errors of blob.Store, Put returns run.ErrBusy while the tenant may store nothing.
func (c *Requests) RemoteBlobs(t session.Tenant) blob.Store {
	m := &remoteBlobs{c, t}
	return &remoteStore{eventlog.NewBlobs(m), m}
}

// remoteStore is also a blob.Prober.
type remoteStore struct {
	blob.Store
	m *remoteBlobs
}

// Missing implements blob.Prober.
func (s *remoteStore) Missing(ctx context.Context, all []blob.Digest) ([]blob.Digest, error) {
	return s.m.missing(ctx, all)
}

// remoteBlobs are the messages of a tenant's blobs, by requests.
type remoteBlobs struct {
	requests *Requests
	t        session.Tenant
}

// Load implements eventlog.BlobMessages.
func (r *remoteBlobs) Load(ctx context.Context, d blob.Digest) (data []byte, list bool, err error) {
	var m wire.Blob
	err = ask(ctx, r.requests, r.t, messages.QueryBlob, wire.Query{Digests: []blob.Digest{d}}, &m)
	if errors.Is(err, session.ErrNotFound) {
		err = fmt.Errorf("%w: %s", blob.ErrNotFound, d)
	}
	return m.Data, m.List, err
}

// Store implements eventlog.BlobMessages. The nodes answer a few hundred requests at once
// and refuse others, which are sent again.
func (r *remoteBlobs) Store(ctx context.Context, d blob.Digest, list bool, data []byte) error {
	body, err := messages.Encode(wire.Blob{Data: data, List: list})
	if err != nil {
		return err
	}
	user, err := r.requests.conn.User(ctx, r.t)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, conn.RetryBudget)
	defer cancel()
	for wait := conn.NewBackoff(); ; {
		_, err := answered(ctx, func(ctx context.Context) ([]byte, error) {
			return r.requests.question(ctx, messages.BlobSubject(r.t, user, d), body, controlElse)
		})
		if !errors.Is(err, run.ErrBusy) {
			return err
		}
		if waitErr := wait.Sleep(ctx); waitErr != nil {
			return err
		}
	}
}

func (r *remoteBlobs) missing(ctx context.Context, all []blob.Digest) ([]blob.Digest, error) {
	var out []blob.Digest
	for len(all) > 0 {
		n := min(len(all), wire.MaxDigests)
		var m wire.Missing
		if err := ask(ctx, r.requests, r.t, messages.QueryMissing, wire.Query{Digests: all[:n]}, &m); err != nil {
			return nil, err
		}
		out, all = append(out, m.Missing...), all[n:]
	}
	return out, nil
}

// ask puts a query and decodes its answer.
func ask(ctx context.Context, r *Requests, t session.Tenant, verb string, q wire.Query, into any) error {
	data, err := r.Query(ctx, t, verb, q)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("answer to %s: %w", verb, err)
	}
	return nil
}

// RemoteLog returns the logs of sessions as a client reads them: Append is
// run.ErrNotSupported.
func (c *Requests) RemoteLog() commitlog.Log {
	return offload.New(&remoteLog{c}, c.RemoteBlobs, nil)
}

type remoteLog struct{ requests *Requests }

// Append implements commitlog.Log.
func (r *remoteLog) Append(context.Context, commitlog.Position, commitlog.Commit) (commitlog.Position, error) {
	return commitlog.Position{}, fmt.Errorf("append to a log as a client: %w: submit a task, or use a store", run.ErrNotSupported)
}

// Read implements commitlog.Log. It checks the chain itself.
func (r *remoteLog) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		for {
			q := wire.Query{Session: string(k.ID), Limit: wire.MaxLimit}
			if after != (commitlog.Position{}) {
				q.At = wire.PositionOf(after)
			}
			var page wire.Commits
			err := ask(ctx, r.requests, k.Tenant, messages.QueryCommits, q, &page)
			if errors.Is(err, session.ErrNotFound) {
				return // it has no commits
			}
			if err != nil {
				yield(commitlog.Entry{}, fmt.Errorf("read session %s: %w", k, err))
				return
			}
			for _, s := range page.Commits {
				c, hash, err := commitlog.Successor(k, after, []byte(s.Commit))
				if err != nil {
					yield(commitlog.Entry{}, fmt.Errorf("read session %s: the answer does not follow commit %d: %w", k, after.Seq, err))
					return
				}
				after = commitlog.Position{Seq: c.Seq, Token: s.Token, Hash: hash}
				if !yield(commitlog.Entry{Commit: c, At: after, Raw: s.Commit}, nil) {
					return
				}
			}
			if page.Next == nil || len(page.Commits) == 0 {
				return
			}
		}
	}
}

// Last implements commitlog.Log.
func (r *remoteLog) Last(ctx context.Context, k session.Key) (last commitlog.Entry, err error) {
	for e, err := range r.Read(ctx, k, commitlog.Position{}) {
		if err != nil {
			return commitlog.Entry{}, err
		}
		last = e
	}
	if last.At.Seq == 0 {
		return last, fmt.Errorf("session %s: %w", k, session.ErrNotFound)
	}
	return last, nil
}
