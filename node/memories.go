package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/memory/local"
	"github.com/rathcluster/rath/session"
)

// memories opens the memories below a directory, each once, and keeps them
// open until close.
type memories struct {
	dir string

	mu   sync.Mutex
	open map[string]*local.Store
}

func (m *memories) get(_ context.Context, t session.Tenant, name string) (memory.Store, error) {
	if err := session.ValidID("memory", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	path := filepath.Join(m.dir, string(t), name)
	if s := m.open[path]; s != nil {
		return s, nil
	}
	s, err := local.Open(path, nil)
	if err != nil {
		return nil, fmt.Errorf("node: memory %s: %w", name, err)
	}
	if m.open == nil {
		m.open = map[string]*local.Store{}
	}
	m.open[path] = s
	return s, nil
}

func (m *memories) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, s := range m.open {
		errs = append(errs, s.Close())
	}
	m.open = nil
	return errors.Join(errs...)
}
