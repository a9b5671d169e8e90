package execd

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/rathcluster/rath/internal/sandbox/directory"
	"github.com/rathcluster/rath/internal/sandbox/mirror"
)

// Files returns the files of the sandbox, for a [mirror.Mirror] of a workspace that is not
// a directory of this host. Each request has a connection of its own.
func (c *Client) Files() mirror.Tree {
	return mirror.Remote{Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
		s, err := c.dial(ctx)
		if err != nil {
			return nil, fmt.Errorf("the daemon of the sandbox is gone: %w", err)
		}
		f := filesConn{s.Conn, context.AfterFunc(c.closing, func() { s.Close() })}
		if err := s.send(kindFiles, nil); err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}}
}

// filesConn is a connection that ends with its client.
type filesConn struct {
	net.Conn
	release func() bool
}

func (f filesConn) Close() error {
	f.release()
	return f.Conn.Close()
}

// openFiles opens the workspace, which belongs to the commands' user, for requests of
// files. d.mu is held.
func (d *server) openFiles(o Opening) (err error) {
	var owner *directory.Owner
	if o.UID != 0 {
		owner = &directory.Owner{UID: o.UID, GID: o.GID}
	}
	if d.files, err = mirror.Open(d.workspace, owner); err != nil {
		return fmt.Errorf("the files of the sandbox: %w", err)
	}
	return nil
}

// serveFiles serves a request of files.
func (d *server) serveFiles(s *stream) {
	d.mu.Lock()
	files := d.files
	d.mu.Unlock()
	if files == nil {
		return // the box is not open yet; the client sees the end
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// A connection that breaks ends the request, and the client has the cause.
	_ = mirror.Serve(ctx, files, s.Conn)
}
