package client

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Blobs returns the blobs of the client's tenant, such as the files of heads; package
// workspace makes a head of a directory with it, for messages.Task.Workspace, and the
// other way round. What is stored already is not sent again, so that an upload that was
// cut off goes on where it was. While the tenant may store nothing more Put is
// run.ErrBusy.
func (c *Client) Blobs() blob.Store { return c.requests.RemoteBlobs(c.tenant) }

// Import has a node bring the sessions of a file into the tenant: those of an archive that
// a prune has written under their own ids, or that of a session file of OpenRath. What is
// there already stays as it is, so that an import which was cut off is sent again. It takes
// the role operate, and at most 32 MiB; session.ErrTooLarge otherwise.
// It returns what came in, a row for each session.
func (c *Client) Import(ctx context.Context, file []byte) ([]messages.Imported, error) {
	rows, err := c.requests.Import(ctx, c.tenant, file)
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	return rows, nil
}

// Commits returns a page of the log of a session of the client's tenant, as it is stored,
// after a position: nil for its beginning. The hash of a commit is that of its bytes.
// session.ErrNotFound: there is no such session.
func (c *Client) Commits(ctx context.Context, id session.ID, at *messages.CommitPosition) (messages.Commits, error) {
	return c.requests.Commits(ctx, session.Key{Tenant: c.tenant, ID: id}, at)
}
