package blob

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
)

// Memory is a Store in the process's memory, for tests and for runtimes that
// keep nothing. It holds what was put until it is garbage itself.
type Memory struct {
	mu    sync.RWMutex
	blobs map[Digest][]byte
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{blobs: make(map[Digest][]byte)} }

// Put implements Store.
func (m *Memory) Put(ctx context.Context, r io.Reader) (Ref, error) {
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
func (m *Memory) Get(ctx context.Context, d Digest) (io.ReadCloser, error) {
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

// Len returns the number of blobs held.
func (m *Memory) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.blobs)
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
