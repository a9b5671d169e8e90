package engine

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/session"
)

// Registry holds the workflows that a node offers. The zero value is ready to
// use. It is safe for concurrent use.
type Registry struct {
	mu sync.RWMutex
	m  map[string]flow.Registration
}

// NewRegistry returns a registry of some workflows.
func NewRegistry(all []flow.Registration) (*Registry, error) {
	r := &Registry{}
	for _, g := range all {
		if err := r.Register(g); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Register adds a workflow. It fails for an invalid or taken name and for a
// registration without a constructor.
func (r *Registry) Register(g flow.Registration) error {
	if err := session.ValidID("workflow", g.Name); err != nil {
		return err
	}
	if g.New == nil && g.NewFor == nil {
		return fmt.Errorf("flow: workflow %q has no New: set flow.Registration.New", g.Name)
	}
	if g.Limit != nil {
		if err := g.Limit.Valid(); err != nil {
			return fmt.Errorf("flow: workflow %q: %w", g.Name, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.m[g.Name]; taken {
		return fmt.Errorf("flow: workflow %q is registered twice", g.Name)
	}
	if r.m == nil {
		r.m = map[string]flow.Registration{}
	}
	r.m[g.Name] = g
	return nil
}

// Lookup returns the registration of a name.
func (r *Registry) Lookup(name string) (flow.Registration, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g, ok := r.m[name]
	return g, ok
}

// All returns the registrations sorted by name.
func (r *Registry) All() []flow.Registration {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]flow.Registration, 0, len(r.m))
	for _, g := range r.m {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b flow.Registration) int { return strings.Compare(a.Name, b.Name) })
	return all
}
