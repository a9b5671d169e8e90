package requests

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Import sends a file to a node that imports it, after it has stored the missing blobs. It
// repeats the request while the node is away, busy or not done; the node resumes where it
// was.
func (c *Requests) Import(ctx context.Context, t session.Tenant, file []byte) ([]messages.Imported, error) {
	if len(file) > wire.MaxImport {
		return nil, fmt.Errorf("%d bytes, the limit is %d: %w; import it at the store, or with the credentials of a node", len(file), wire.MaxImport, session.ErrTooLarge)
	}
	user, err := c.user(ctx, t)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, importAll)
	defer cancel()
	d, err := c.TenantBlobs(t).PutMissing(ctx, file)
	if err != nil {
		return nil, err
	}
	wait, lost := conn.NewBackoff(), time.Now()
	for {
		// One node at a time gets the request: a second one would do the same work.
		data, err := c.conn.Ask(ctx, messages.ImportSubject(t, user, d), nil)
		var a wire.ImportAnswer
		if err == nil {
			a, err = messages.Decode[wire.ImportAnswer]("answer", data)
		}
		if err == nil {
			err = a.Err()
		}
		switch {
		case err == nil && a.Done:
			return a.Imported, nil
		case err == nil && a.Note == wire.ImportGoesOn:
			wait, lost = conn.NewBackoff(), time.Now()
			continue
		case err == nil:
			return nil, &strict.Error{Message: "answer", Problem: "neither done nor an error"}
		case !Passes(err) && !errors.Is(err, conn.ErrNoAnswer) && !errors.Is(err, conn.ErrUnreachable), time.Since(lost) > ImportPatience:
			return nil, err
		}
		if waitErr := wait.Sleep(ctx); waitErr != nil {
			return nil, err
		}
	}
}

// importAll bounds the attempts of an import.
const importAll = 10 * time.Minute

// Passes reports whether a request is sent again after an error.
func Passes(err error) bool {
	return errors.Is(err, run.ErrBusy) || errors.Is(err, session.ErrUnavailable) || conn.IsTransient(err)
}

// ImportPatience is how long all nodes may be silent: longer than another node takes to
// notice that one has died with a request.
const ImportPatience = 2 * conn.AskTimeout
