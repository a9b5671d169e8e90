package client

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Blobs returns the blobs of the client's tenant, such as the files of heads. With it,
// package workspace makes a head of a directory, for messages.Task.Workspace, and a
// directory of a head. Blobs that are stored already are not sent again, so an
// interrupted upload resumes where it stopped. Put returns run.ErrBusy while the tenant
// has no storage left.
func (c *Client) Blobs() blob.Store { return c.requests.RemoteBlobs(c.tenant) }

// Import makes a node import the sessions of a file into the tenant: the sessions of an
// archive that a prune has written, under their own ids, or the session of an OpenRath
// session file. Existing sessions are kept, so an interrupted import can be repeated.
// It requires the role operate. A file of more than 32 MiB is session.ErrTooLarge. It
// returns the imported sessions, a row each.
func (c *Client) Import(ctx context.Context, file []byte) ([]messages.Imported, error) {
	rows, err := c.requests.Import(ctx, c.tenant, file)
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	return rows, nil
}

// Commits returns a page of the stored log of a session of the client's tenant, after a
// position: nil for its beginning. The hash of a commit is that of its bytes. It
// returns session.ErrNotFound if the session does not exist.
func (c *Client) Commits(ctx context.Context, id session.ID, at *messages.CommitPosition) (messages.Commits, error) {
	return c.requests.Commits(ctx, session.Key{Tenant: c.tenant, ID: id}, at)
}
