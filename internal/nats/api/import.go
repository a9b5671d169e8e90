package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// importFor is how long a node works on an import before it answers that the import
// continues.
const importFor = 20 * time.Second

// TakeOver imports the sessions of a file for a user of a tenant. A repeated call resumes
// where the previous one stopped.
type TakeOver func(ctx context.Context, t session.Tenant, user string, file []byte) ([]messages.Imported, error)

// importer answers requests to import, one at a time.
type importer struct {
	c    *Conn
	take TakeOver
	busy chan struct{}
}

// answer imports the file that a request names.
func (i *importer) answer(ctx context.Context, of wire.Controlled) wire.ImportAnswer {
	ctx, cancel := context.WithTimeout(ctx, importFor)
	defer cancel()
	rows, err := i.run(ctx, of)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
		return wire.ImportAnswer{Answer: wire.Answer{Note: wire.ImportGoesOn}}
	}
	return wire.ImportAnswer{Answer: wire.AnswerOf(unanswered(ctx, err)), Imported: rows}
}

func (i *importer) run(ctx context.Context, of wire.Controlled) ([]messages.Imported, error) {
	if of.Verb != messages.VerbImport {
		return nil, fmt.Errorf("verb %q: %w: archives take %s", of.Verb, run.ErrMalformed, messages.VerbImport)
	}
	d, err := digestOf(of.ID)
	if err != nil {
		return nil, err
	}
	if i.take == nil {
		return nil, fmt.Errorf("import: %w: this node does not import", run.ErrNotSupported)
	}
	select {
	case i.busy <- struct{}{}:
		defer func() { <-i.busy }()
	default:
		return nil, fmt.Errorf("import: %w: the node imports another file; try again", run.ErrBusy)
	}
	file, err := i.read(ctx, of.Tenant, d)
	if err != nil {
		return nil, err
	}
	return i.take(ctx, of.Tenant, of.User, file)
}

// read reads a file, after it has checked the file's length alone.
func (i *importer) read(ctx context.Context, t session.Tenant, d blob.Digest) ([]byte, error) {
	data, list, err := i.c.Logs.LoadBlobMessage(ctx, t, d)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, fmt.Errorf("import: blob %s is not stored here: %w; put it first", d.Short(), session.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	tooLarge := fmt.Errorf("import: more than %d bytes: %w; import it at the store, or with the credentials of a node", wire.MaxImport, session.ErrTooLarge)
	if list && len(data)/len(d) > wire.MaxImport/wire.MaxBlobPart {
		return nil, tooLarge
	}
	r, err := i.c.Logs.Blobs(t).Get(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	file, err := io.ReadAll(io.LimitReader(r, wire.MaxImport+1))
	switch {
	case errors.Is(err, blob.ErrCorrupt):
		return nil, fmt.Errorf("import: %w: %w", run.ErrMalformed, err)
	case err == nil && len(file) > wire.MaxImport:
		return nil, tooLarge
	}
	return file, err
}
