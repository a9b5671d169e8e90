package eventlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Aliases are the entries of the bucket ALIAS: they map a run's id, or a user's name for a
// session, to the session whose log has it. The first writer creates an alias. It does not
// change after that, except to record that a run was cancelled before a log had it, or that
// its task was refused.

// RunAliasSubject returns the subject of a run's alias.
func RunAliasSubject(t session.Tenant, id run.ID) string {
	return streams.KeySubject(streams.BucketAlias, translate.RunAliasKey(t, id))
}

func sessionAliasSubject(t session.Tenant, name string) string {
	return streams.KeySubject(streams.BucketAlias, translate.SessionAliasKey(t, name))
}

// ReadAlias reads an entry from the leader; revision is zero if there is none.
func ReadAlias(ctx context.Context, c *Logs, subject string) (a translate.Alias, revision uint64, err error) {
	m, err := c.messages.LeaderLast(ctx, "KV_"+streams.BucketAlias, subject)
	if errors.Is(err, conn.ErrNoMessage) {
		return a, 0, nil
	}
	if err == nil {
		a, err = translate.DecodeAlias(m.Data)
	}
	if err != nil {
		return a, 0, fmt.Errorf("nats/eventlog: read %s: %w", subject, err)
	}
	return a, m.Seq, nil
}

// CreateAlias stores an entry unless one exists, and returns the stored one; fresh reports
// that there was none before.
func CreateAlias(ctx context.Context, c *Logs, subject string, a translate.Alias) (have translate.Alias, revision uint64, fresh bool, err error) {
	have, revision, fresh, _, err = aliasAfter(ctx, c, subject, 0, a)
	return have, revision, fresh, err
}

// PutAlias stores an entry over the one of a revision, zero for none. stored is also true
// if an earlier attempt of the caller stored it.
func PutAlias(ctx context.Context, c *Logs, subject string, last uint64, a translate.Alias) (have translate.Alias, revision uint64, stored bool, err error) {
	have, revision, _, stored, err = aliasAfter(ctx, c, subject, last, a)
	return have, revision, stored, err
}

// aliasAfter stores an entry over the one of a revision. mine reports that this call did
// so, same that the entry has the wanted contents, perhaps by an earlier attempt.
func aliasAfter(ctx context.Context, c *Logs, subject string, last uint64, a translate.Alias) (have translate.Alias, revision uint64, mine, same bool, err error) {
	data, err := json.Marshal(a)
	if err != nil {
		return a, 0, false, false, fmt.Errorf("nats/eventlog: create %s: %w", subject, err)
	}
	m, mine, err := c.messages.PutAfter(ctx, "KV_"+streams.BucketAlias, subject, last, data)
	if err == nil {
		have, err = translate.DecodeAlias(m.Data)
	}
	if err != nil {
		return a, 0, false, false, fmt.Errorf("nats/eventlog: create %s: %w", subject, err)
	}
	now, err := json.Marshal(have)
	return have, m.Seq, mine, err == nil && bytes.Equal(now, data), err
}

// Minter places the sessions that tasks of this connection make.
func (c *Logs) Minter() commitlog.IDGenerator {
	return commitlog.IDGenerator{Generation: c.streams.Generation(), Partitions: c.streams.Partitions()}
}

// HomeOf returns the id of the session that a run makes when its task names none: the same
// for each delivery of the task.
func (c *Logs) HomeOf(t session.Tenant, id run.ID) session.ID {
	return c.Minter().Child(t, string(id), "home")
}

// ResolveSession returns the id of the session of a name: an id is its own name. With
// create a new name gets a session; otherwise the error is session.ErrNotFound.
func (c *Logs) ResolveSession(ctx context.Context, t session.Tenant, name string, create bool) (session.ID, error) {
	k := session.Key{Tenant: t, ID: session.ID(name)}
	if err := k.Valid(); err != nil {
		return "", fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	located, err := c.located(ctx, k.ID)
	if err != nil {
		return "", err
	}
	if located {
		return k.ID, nil
	}
	subject := sessionAliasSubject(t, name)
	a, revision, err := ReadAlias(ctx, c, subject)
	if err == nil && revision == 0 {
		if !create {
			return "", fmt.Errorf("session %s: %w; ask for the runs to see which there are", name, session.ErrNotFound)
		}
		a, _, _, err = CreateAlias(ctx, c, subject, translate.Alias{Session: c.mintNamed(t, name)})
	}
	if err == nil {
		err = session.ValidID("session", string(a.Session))
	}
	return a.Session, err
}

// mintNamed makes a recognisable id, if the name is short enough.
func (c *Logs) mintNamed(t session.Tenant, name string) session.ID {
	if len(name) > maxNamed {
		sum := sha256.Sum256([]byte(string(t) + "\x00session\x00" + name))
		name = hex.EncodeToString(sum[:10])
	}
	return c.Minter().ID(name)
}

// maxNamed is the longest body of a session id.
const maxNamed = 40

// located reports whether a session id names an existing event stream: a name may look like
// an id.
func (c *Logs) located(ctx context.Context, id session.ID) (bool, error) {
	g, p, ok := id.Locate()
	switch {
	case !ok:
		return false, nil
	case g == c.streams.Generation():
		return p < c.streams.Partitions(), nil
	case g > c.streams.Generation():
		return false, nil
	}
	return conn.Retry(ctx, func(ctx context.Context) (bool, error) {
		info, err := c.streams.Reconciler.LookStream(ctx, streams.EventStream(g, p))
		return info != nil, err
	})
}

// RunSession returns the home session of a run. A branch's run has the id of its session,
// and a cleanup run has the session of the run that it cleans up.
// The error is run.ErrUnknownRun if the run was not submitted.
func (c *Logs) RunSession(ctx context.Context, t session.Tenant, id run.ID) (session.Key, error) {
	a, revision, err := ReadAlias(ctx, c, RunAliasSubject(t, id))
	if err != nil {
		return session.Key{}, err
	}
	if revision != 0 && a.Session != "" {
		return session.Key{Tenant: t, ID: a.Session}, nil
	}
	if revision == 0 {
		if ok, err := c.located(ctx, session.ID(id)); err != nil || ok {
			return session.Key{Tenant: t, ID: session.ID(id)}, err
		}
		if of, ok := run.CleanedBy(id); ok {
			return c.RunSession(ctx, t, of)
		}
	}
	return session.Key{}, fmt.Errorf("run %s: %w", id, run.ErrUnknownRun)
}

// DigestOf distinguishes two submissions under one id.
func DigestOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
