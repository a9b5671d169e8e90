// Package takeover imports sessions from files into a store: sessions of an archive under
// their own ids, sessions of OpenRath as new ones.
//
// The command line imports over a store, and a node for a client that has put the file as a
// blob, by the same code:
//
//	rows, err := takeover.File(ctx, conn, tenant, "ana", data)
//
// The log of each session names the importing user.
package takeover

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/openrath"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/retention"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// File imports a file for a user of a tenant, with the restrictions of a node: no data of
// another tenant, no session that makes a run copy a directory of its node, and no import
// while the streams accept no new runs. A repeated call resumes where the previous one
// stopped, and changes nothing once the import is complete.
func File(ctx context.Context, c *api.Conn, t session.Tenant, user string, doc []byte) ([]messages.Imported, error) {
	if !dossier.IsTree(doc) {
		file, err := openrath.Read(bytes.NewReader(doc), "the file")
		if err != nil {
			return nil, fmt.Errorf("%w: %w", run.ErrMalformed, err)
		}
		k := SessionOf(t, c.Logs.HomeOf, file)
		if err := c.Dispatch.Admit(ctx, k); err != nil {
			return nil, err
		}
		row, err := Session(ctx, c.Logs.Log(), t, c.Logs.HomeOf, file, user)
		return []messages.Imported{row}, err
	}
	tree, err := open(doc, t, "import it with a user of that tenant")
	if err == nil {
		err = named(tree)
	}
	if err != nil {
		return nil, refusal(err)
	}
	for _, l := range tree.Logs {
		if err := c.Dispatch.Admit(ctx, session.Key{Tenant: t, ID: l.Session}); err != nil {
			return nil, err
		}
	}
	rows, err := restore(ctx, c, tree, user)
	return rows, refusal(err)
}

// named rejects an archive in which a session was sent to a directory: a run on it, or on a
// fork of it, copies the directory's contents on the machine of its node. The code of a
// workflow and the operator may choose such a directory, but not a user of a tenant.
func named(tree *dossier.Evidence) error {
	for _, l := range tree.Logs {
		for _, raw := range l.Commits {
			commit, err := commitlog.Decode([]byte(raw))
			if err != nil {
				return err
			}
			for _, ev := range commit.Events {
				if d := ev.Blob.Digest; !d.IsZero() {
					ev.Data = string(tree.Blobs[d]) // verified to be there
				}
				at, err := placement(ev)
				if err != nil {
					return err
				}
				if at.Spec != "" && at.Head.IsZero() {
					return fmt.Errorf("session %s was sent to the directory %.80q, whose files are not in the archive: %w; the operator can import it, at the store", l.Session, at.Spec, session.ErrForeign)
				}
			}
		}
	}
	return nil
}

// placement returns where an event sends its session.
func placement(ev session.Event) (session.Placement, error) {
	switch ev.Kind {
	case session.KindPlaced:
		return session.DecodePlacement(ev)
	case session.KindJoined:
		j, err := session.DecodeJoin(ev)
		return j.Placement, err
	case session.KindChunk:
		c, err := session.DecodeChunk(ev)
		return c.Origin().Placement, err
	}
	return session.Placement{}, nil
}

// refusal returns an error of an archive with the code for the client.
func refusal(err error) error {
	if _, bad := errors.AsType[*dossier.Failure](err); bad {
		return fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	if errors.Is(err, session.ErrForeign) {
		return fmt.Errorf("%w: %w", run.ErrState, err)
	}
	return err
}

// Tree brings the sessions of an archive back. They are of tenant t, or of any if t is empty.
func Tree(ctx context.Context, c *api.Conn, t session.Tenant, doc []byte, by string) ([]messages.Imported, error) {
	tree, err := open(doc, t, "name that one with --tenant, or none")
	if err != nil {
		return nil, err
	}
	return restore(ctx, c, tree, by)
}

// open reads an archive of tenant t, or of any if t is empty.
func open(doc []byte, t session.Tenant, remedy string) (*dossier.Evidence, error) {
	tree, err := retention.Open(doc)
	if err == nil && t != "" && tree.Home.Tenant != t {
		return nil, fmt.Errorf("the archive is of tenant %s: %w; %s", tree.Home.Tenant, session.ErrTenant, remedy)
	}
	return tree, err
}

func restore(ctx context.Context, c *api.Conn, tree *dossier.Evidence, by string) ([]messages.Imported, error) {
	back, err := retention.Restore(ctx, c, tree, by)
	if err != nil {
		return nil, err
	}
	var all []messages.Imported
	for i, r := range back {
		v := messages.Imported{Session: r.Session, Kind: dossier.FormTree}
		for _, raw := range tree.Logs[i].Commits {
			commit, err := commitlog.Decode([]byte(raw))
			if err != nil {
				return nil, err
			}
			for _, ev := range commit.Events {
				switch ev.Kind {
				case session.KindChunk:
					v.Rows++
				case session.KindClosed:
					v.Closed = true
				}
			}
		}
		if r.There {
			v.Note = "was there already"
		}
		all = append(all, v)
	}
	return all, nil
}
