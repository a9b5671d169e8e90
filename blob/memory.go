package blob

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
)

type memory struct {
	mu    sync.RWMutex
	blobs map[Digest][]byte
}

// NewMemory returns an empty store in the process's memory, for tests and for runtimes
// without durable storage. It never deletes a blob.
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
