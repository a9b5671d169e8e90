package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/remotelog"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Files and logs go over requests, so that a program with the credentials of a client can
// read the same data as one that reads the streams. The subject names the tenant, and a
// digest gives no access by itself: the blobs of each tenant are separate.

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
	at, err := remotelog.Position(q.At)
	if err != nil {
		return nil, err
	}
	out := messages.Commits{Commits: []messages.StoredCommit{}}
	room := pageRoom
	for e, err := range a.c.Logs.StoredLog().Read(ctx, ref.Key, at) {
		if err != nil {
			return nil, err
		}
		// In JSON each quote of a commit takes two bytes.
		if room -= 2*len(e.Raw) + commitRoom; len(out.Commits) > 0 && (room < 0 || len(out.Commits) >= limitOf(q)) {
			out.Next = remotelog.PositionOf(at)
			break
		}
		out.Commits = append(out.Commits, messages.StoredCommit{Token: e.At.Token, Commit: e.Raw})
		at = e.At
	}
	if q.At == nil && len(out.Commits) == 0 {
		return nil, fmt.Errorf("session %s: %w", q.Session, session.ErrNotFound)
	}
	return out, nil
}

// commitRoom is the approximate size of a commit in an answer beside its bytes.
const commitRoom = 64
