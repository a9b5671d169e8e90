package client

import (
	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/session"
)

// Blobs returns the blobs of the client's tenant, such as the files of heads; package
// workspace makes a head of a directory with it, for messages.Task.Workspace, and the
// other way round. What is stored already is not sent again, so that an upload that was
// cut off goes on where it was. While the tenant may store nothing more Put is
// run.ErrBusy.
func (c *Client) Blobs() blob.Store { return c.conn.RemoteBlobs(c.tenant) }

// Log returns the logs of the sessions of the client's tenant, to read: a client appends
// nothing. The commits are checked as they come.
func (c *Client) Log() session.Log { return c.conn.RemoteLog() }
