package retention

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Restored describes one restored session.
type Restored struct {
	Session session.ID
	Commits int
	// There is set if the store already had the session's commits.
	There bool
}

// Open verifies an archive, and that no run in it is open: session.ErrForeign otherwise.
// Prune archives no open run, and one would resume where it is restored.
func Open(doc []byte) (*dossier.Evidence, error) {
	t, _, err := dossier.VerifyTree(doc, nil)
	if err != nil {
		return nil, err
	}
	for _, l := range t.Logs {
		r, err := runsOf(t, session.Key{Tenant: t.Home.Tenant, ID: l.Session}, l.Commits)
		if err != nil {
			return nil, err
		}
		for _, id := range slices.Sorted(maps.Keys(r.begun)) {
			if r.ends[id] == nil {
				return nil, fmt.Errorf("retention: run %s of session %s has not ended in the archive: %w: it is none that a prune has written", id, l.Session, session.ErrForeign)
			}
		}
	}
	return t, nil
}

// Restore restores the sessions of an archive that Open has verified under their own ids,
// and resumes them. They were purged here, or archived in another store. A session that is
// purged here must have been archived with the same last commit, and a session that exists
// here must have the same commits; the error is session.ErrForeign otherwise. Restore is
// idempotent. Each log records by whom it was restored.
//
// Every session of the archive stays archived, for readers too, until all of it is
// restored. The connection has to store; the rights of a node are enough.
func Restore(ctx context.Context, c *api.Conn, t *dossier.Evidence, by string) ([]Restored, error) {
	store := c.Logs.Blobs(t.Home.Tenant)
	for d, data := range t.Blobs {
		if _, err := store.Put(ctx, bytes.NewReader(data)); err != nil {
			return nil, fmt.Errorf("retention: store blob %s: %w", d.Short(), err)
		}
	}
	var all []Restored
	var reasons []string
	for _, l := range t.Logs {
		k := session.Key{Tenant: t.Home.Tenant, ID: l.Session}
		back, fresh, err := c.Archive.Restore(ctx, k, l.Commits)
		if err != nil {
			return all, err
		}
		all = append(all, Restored{Session: l.Session, Commits: len(l.Commits), There: !back})
		if err := runs(ctx, c, t, k, l.Commits); err != nil {
			return all, err
		}
		reason := "brought back from its archive"
		if fresh {
			reason = "brought from an archive; it was not here before"
		}
		reasons = append(reasons, reason)
	}
	for i, l := range t.Logs {
		if err := goOn(ctx, c, t.Home.Tenant, []session.ID{l.Session}, commitlog.Restoration{By: by, Reason: reasons[i]}); err != nil {
			return all, err
		}
	}
	return all, nil
}

// runs restores the data stored beside a log for its runs.
func runs(ctx context.Context, c *api.Conn, t *dossier.Evidence, k session.Key, raws []string) error {
	r, err := runsOf(t, k, raws)
	if err != nil {
		return err
	}
	for _, v := range r.submitted {
		if err := c.Archive.RestoreRun(ctx, k, v.Task.Run, v.Digest, r.ends[v.Task.Run]); err != nil {
			return fmt.Errorf("retention: bring back run %s: %w", v.Task.Run, err)
		}
	}
	return nil
}

// logRuns are the runs whose home is one log.
type logRuns struct {
	submitted []journal.Submitted
	begun     map[run.ID]bool // submitted or claimed
	ends      map[run.ID]*messages.Result
}

func runsOf(t *dossier.Evidence, k session.Key, raws []string) (*logRuns, error) {
	out := &logRuns{begun: map[run.ID]bool{}, ends: map[run.ID]*messages.Result{}}
	for _, raw := range raws {
		commit, err := commitlog.Decode([]byte(raw))
		if err != nil {
			return nil, err
		}
		for i := range commit.Events {
			ev := &commit.Events[i]
			if d := ev.Blob.Digest; !d.IsZero() {
				ev.Data = string(t.Blobs[d]) // verified to be there
			}
		}
		facts := journal.Facts(commit)
		for _, f := range facts {
			switch v := f.What.(type) {
			case journal.Submitted:
				out.submitted, out.begun[v.Task.Run] = append(out.submitted, v), true
			case journal.Claimed:
				if v.Home == k {
					out.begun[v.Run] = true
				}
			}
		}
		e := commitlog.Entry{Commit: commit, At: commitlog.Position{Seq: commit.Seq, Hash: commitlog.HashOf([]byte(raw))}}
		for _, r := range translate.Results(e, facts) {
			for _, s := range t.Signatures {
				if s.Statement == r.Say(k.Tenant) {
					r.Statement, r.Signature = s.Statement, s.Signature
					break
				}
			}
			out.ends[r.Run] = &r
		}
		for _, r := range out.ends {
			translate.Settle(r, facts)
		}
	}
	return out, nil
}
