package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"sync"
)

type memory struct {
	mu    sync.RWMutex
	blobs map[Digest][]byte
}

// NewMemory returns an empty store in the process's memory, for tests and for runtimes that
// keep nothing. It holds what was put until it is garbage itself.
func NewMemory() Store { return &memory{blobs: make(map[Digest][]byte)} }

// Put implements Store.
func (m *memory) Put(ctx context.Context, r io.Reader) (Ref, error) {
	data, err := io.ReadAll(&contextReader{ctx: ctx, r: r})
	if err != nil {
		return Ref{}, fmt.Errorf("blob: put: %w", err)
	}
	ref := Ref{Digest: Sum(data), Size: int64(len(data))}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.blobs[ref.Digest]; !ok {
		m.blobs[ref.Digest] = data
	}
	return ref, nil
}

// Get implements Store.
func (m *memory) Get(ctx context.Context, d Digest) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	data, ok := m.blobs[d]
	m.mu.RUnlock()
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, d)
	}
	return Verify(io.NopCloser(bytes.NewReader(data)), d), nil
}

// contextReader stops a long read when ctx ends, between two reads.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Verify returns a reader of rc's bytes that ends with io.EOF only if they
// are the bytes that d names, and with ErrCorrupt otherwise. A reader that
// must not act on wrong bytes reads to the end before it acts. Closing the
// result closes rc. Like any reader it is for one goroutine at a time.
func Verify(rc io.ReadCloser, d Digest) io.ReadCloser {
	return &verifier{rc: rc, want: d, sum: sha256.New()}
}

type verifier struct {
	rc   io.ReadCloser
	want Digest
	sum  hash.Hash
	end  error // sticky, so that a second Read after the end says the same
}

func (v *verifier) Read(p []byte) (int, error) {
	if v.end != nil {
		return 0, v.end
	}
	n, err := v.rc.Read(p)
	v.sum.Write(p[:n])
	if err == io.EOF {
		var got Digest
		v.sum.Sum(got[:0])
		if got != v.want {
			err = fmt.Errorf("%w: want %s, have %s", ErrCorrupt, v.want.Short(), got.Short())
		}
	}
	v.end = err
	return n, err
}

func (v *verifier) Close() error { return v.rc.Close() }
