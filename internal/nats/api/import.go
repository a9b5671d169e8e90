package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// importFor is how long a node works on an import before it answers that it goes on.
	importFor = 20 * time.Second
	// importAll is how long a client asks for one.
	importAll = 10 * time.Minute
)

// TakeOver brings the sessions of a file into the streams for a user of a tenant. Called
// again it goes on where it was cut off.
type TakeOver func(ctx context.Context, t session.Tenant, user string, file []byte) ([]wire.Imported, error)

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

func (i *importer) run(ctx context.Context, of wire.Controlled) ([]wire.Imported, error) {
	if of.Verb != messages.VerbImport {
		return nil, fmt.Errorf("verb %q: %w: archives take %s", of.Verb, run.ErrMalformed, messages.VerbImport)
	}
	d, err := digestOf(of.ID)
	if err != nil {
		return nil, err
	}
	if i.take == nil {
		return nil, fmt.Errorf("import: %w: this node takes over nothing", run.ErrNotSupported)
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

// read reads a file, of which no more than its length is looked at before.
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

// Import has a node take over a file, of which what is missing is stored first. It asks
// again while the node is away, busy or not done, which goes on where it was.
func (c *Requests) Import(ctx context.Context, t session.Tenant, file []byte) ([]wire.Imported, error) {
	if len(file) > wire.MaxImport {
		return nil, fmt.Errorf("%d bytes, at most %d are taken: %w; import it at the store, or with the credentials of a node", len(file), wire.MaxImport, session.ErrTooLarge)
	}
	user, err := c.conn.User(ctx, t)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, importAll)
	defer cancel()
	d, err := (&remoteBlobs{c, t}).putMissing(ctx, file)
	if err != nil {
		return nil, err
	}
	wait, lost := conn.NewBackoff(), time.Now()
	for {
		// One node is asked at a time: a second one would do the same work.
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
		case !passes(err) && !errors.Is(err, conn.ErrNoAnswer) && !errors.Is(err, conn.ErrUnreachable), time.Since(lost) > importPatience:
			return nil, err
		}
		if waitErr := wait.Sleep(ctx); waitErr != nil {
			return nil, err
		}
	}
}

// importPatience is how long no node may answer: longer than another one takes to notice
// that one has died with a request.
const importPatience = 2 * conn.AskTimeout

// putMissing stores a blob, of whose parts those that are stored are not sent again.
func (r *remoteBlobs) putMissing(ctx context.Context, data []byte) (blob.Digest, error) {
	whole := blob.Sum(data)
	if missing, err := r.missing(ctx, []blob.Digest{whole}); err != nil || len(missing) == 0 {
		return whole, err
	}
	parts := map[blob.Digest][]byte{}
	var all []blob.Digest
	var list []byte
	for part := range slices.Chunk(data, wire.MaxBlobPart) {
		d := blob.Sum(part)
		if parts[d] == nil {
			all = append(all, d)
		}
		parts[d], list = part, append(list, d[:]...)
	}
	missing, err := r.missing(ctx, all)
	if err != nil {
		return whole, err
	}
	for _, d := range missing {
		if err := r.Store(ctx, d, false, parts[d]); err != nil {
			return whole, err
		}
	}
	if len(list) == len(whole) {
		return whole, nil // the only part is the blob
	}
	return whole, r.Store(ctx, whole, true, list)
}
