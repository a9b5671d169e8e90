package retention

import (
	"bytes"
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/dossier"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Restored tells of one session that was brought back.
type Restored struct {
	Session session.ID
	Commits int
	// There is set if the session's commits were in the store already.
	There bool
}

// Restore brings the sessions of an archive back under their own ids, and lets
// them go on: what was purged here, or what was archived in another store. It
// verifies the archive first. A session that is purged here must have been
// archived with the same last commit; a session that is here must have the same
// commits: session.ErrForeign otherwise. Restoring again changes nothing.
//
// Until all of it is there every session of it stays archived, for readers too.
// The connection has to store; the rights of a node are enough.
func Restore(ctx context.Context, c *api.Conn, doc []byte, by string) (*dossier.Evidence, []Restored, error) {
	t, _, err := dossier.VerifyTree(doc, nil)
	if err != nil {
		return nil, nil, err
	}
	store := c.Blobs(t.Home.Tenant)
	for d, data := range t.Blobs {
		if _, err := store.Put(ctx, bytes.NewReader(data)); err != nil {
			return t, nil, fmt.Errorf("retention: store blob %s: %w", d.Short(), err)
		}
	}
	var all []Restored
	for _, l := range t.Logs {
		k := session.Key{Tenant: t.Home.Tenant, ID: l.Session}
		back, err := c.Restore(ctx, k, l.Commits)
		if err != nil {
			return t, all, err
		}
		all = append(all, Restored{Session: l.Session, Commits: len(l.Commits), There: !back})
		if err := runs(ctx, c, t, k, l.Commits); err != nil {
			return t, all, err
		}
	}
	var ids []session.ID
	for _, l := range t.Logs {
		ids = append(ids, l.Session)
	}
	return t, all, goOn(ctx, c, t.Home.Tenant, ids, session.Restoration{By: by, Reason: "brought back from its archive"})
}

// runs brings back what is kept of a log's runs beside it.
func runs(ctx context.Context, c *api.Conn, t *dossier.Evidence, k session.Key, raws []string) error {
	ends := map[run.ID]*messages.Result{}
	var all []journal.Submitted
	for _, raw := range raws {
		commit, err := session.Decode([]byte(raw))
		if err != nil {
			return err
		}
		for i := range commit.Events {
			ev := &commit.Events[i]
			if d := ev.Blob.Digest; !d.IsZero() {
				ev.Data = string(t.Blobs[d]) // verified to be there
			}
		}
		facts := journal.Facts(commit)
		for _, f := range facts {
			if v, ok := f.What.(journal.Submitted); ok {
				all = append(all, v)
			}
		}
		e := session.Entry{Commit: commit, At: session.Position{Seq: commit.Seq, Hash: session.HashOf([]byte(raw))}}
		for _, r := range messages.Results(e, facts) {
			for _, s := range t.Signatures {
				if s.Statement == r.Say(k.Tenant) {
					r.Statement, r.Signature = s.Statement, s.Signature
					break
				}
			}
			ends[r.Run] = &r
		}
	}
	for _, v := range all {
		if err := c.RestoreRun(ctx, k, v.Task.Run, v.Digest, ends[v.Task.Run]); err != nil {
			return fmt.Errorf("retention: bring back run %s: %w", v.Task.Run, err)
		}
	}
	return nil
}
