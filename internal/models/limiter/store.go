package limiter

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Store keeps the ledgers of limits. Its methods may be called concurrently.
type Store interface {
	// Read returns the last entry of a name from the store's leader; the zero Entry if
	// there is none.
	Read(ctx context.Context, name string) (Entry, error)
	// Write stores data after the entry with the sequence last. It returns ErrChanged
	// if that is not the last one. After any other error the data may be stored or not.
	Write(ctx context.Context, name string, last uint64, data []byte) error
}

// Entry is the stored value of a name.
type Entry struct {
	Data []byte
	Seq  uint64
	Time time.Time // of the write, by the store's clock
}

// ErrChanged is returned by a Store if another write was faster.
var ErrChanged = errors.New("limiter: the ledger has changed")

// Memory is a Store of one process. Its zero value is empty.
type Memory struct {
	mu  sync.Mutex
	all map[string]Entry
}

// Read implements Store.
func (m *Memory) Read(_ context.Context, name string) (Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[name], nil
}

// Write implements Store.
func (m *Memory) Write(_ context.Context, name string, last uint64, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[name].Seq != last {
		return ErrChanged
	}
	if m.all == nil {
		m.all = map[string]Entry{}
	}
	m.all[name] = Entry{Data: data, Seq: last + 1, Time: time.Now()}
	return nil
}

var _ Store = (*Memory)(nil)
