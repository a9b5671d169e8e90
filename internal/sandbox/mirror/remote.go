package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// The requests to a remote Tree.
const (
	listRequest  = 'L'
	fetchRequest = 'G'
	sendRequest  = 'S'
)

// Remote is the Tree that [Serve] serves at the other end of a stream.
type Remote struct {
	// Dial opens a stream for one request. A single Close ends both directions. If the
	// stream has a SetDeadline, it bounds the request.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
}

var _ Tree = Remote{}

// call makes a request. It writes the rest of the request while it reads the answer, which
// may arrive before the request was read completely.
func (t Remote) call(ctx context.Context, op byte, names []string, more func(*writer) error, answer func(*reader) error) error {
	s, err := t.Dial(ctx)
	if err != nil {
		return err
	}
	if d, ok := s.(interface{ SetDeadline(time.Time) error }); ok {
		if at, bounded := ctx.Deadline(); bounded {
			_ = d.SetDeadline(at)
		}
	}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	wrote := make(chan error, 1)
	go func() {
		w := newWriter(s)
		_ = w.w.WriteByte(op)
		w.names(names)
		err := w.flush()
		if err == nil && more != nil {
			err = more(w)
		}
		wrote <- err
	}()
	r := newReader(s)
	answered := answer(r)
	_ = s.Close() // it may be closed already: the other side of a transfer ends its context
	err = <-wrote
	if answered == nil {
		return nil
	}
	if errors.Is(answered, errStream) && err != nil {
		return errors.Join(answered, err)
	}
	return answered
}

// List implements Tree.
func (t Remote) List(ctx context.Context, sum []string) (list []Entry, err error) {
	err = t.call(ctx, listRequest, sum, nil, func(r *reader) (err error) {
		list, err = r.entries(DefaultEntries)
		return err
	})
	return list, err
}

// Fetch implements Tree.
func (t Remote) Fetch(ctx context.Context, names []string, to io.Writer) error {
	return t.call(ctx, fetchRequest, names, nil, func(r *reader) error { return copyFiles(newWriter(to), r) })
}

// copyFiles copies a self-delimiting stream of files.
func copyFiles(w *writer, r *reader) error {
	for {
		e, err := r.next()
		if err == io.EOF {
			w.end(nil)
			return w.flush()
		}
		if err != nil {
			return err
		}
		if e.Kind != File {
			w.entry(e)
			continue
		}
		w.file(e)
		err = r.content(
			func(p []byte) error { w.chunk(p); return nil },
			func(n int64) error { w.hole(n); return nil },
		)
		if err != nil {
			return err
		}
		w.close()
		if err := w.flush(); err != nil {
			return err
		}
	}
}

// Send implements Tree.
func (t Remote) Send(ctx context.Context, remove []string, from io.Reader) (wrote []Entry, err error) {
	more := func(w *writer) error {
		if err := copyFiles(w, newReader(from)); err != nil {
			w.end(err) // so that the other side does not wait
			return errors.Join(err, w.flush())
		}
		return nil
	}
	err = t.call(ctx, sendRequest, remove, more, func(r *reader) (err error) {
		wrote, err = r.entries(DefaultEntries)
		return err
	})
	return wrote, err
}

// Serve answers one request over a stream. It returns errors of the stream; errors of the
// tree are sent to the other end.
func Serve(ctx context.Context, t Tree, s io.ReadWriter) error {
	r, w := newReader(s), newWriter(s)
	op, err := r.r.ReadByte()
	if err != nil {
		return cut(err)
	}
	names, err := r.names(DefaultEntries)
	if err != nil {
		return err
	}
	switch op {
	case listRequest:
		list, err := t.List(ctx, names)
		for _, e := range list {
			w.entry(e)
		}
		w.end(err)
	case fetchRequest:
		return t.Fetch(ctx, names, s) // which ends the stream
	case sendRequest:
		wrote, err := t.Send(ctx, names, r.r)
		for _, e := range wrote {
			w.entry(e)
		}
		w.end(err)
	default:
		return fmt.Errorf("%w: a request of kind %q", errStream, op)
	}
	return w.flush()
}
