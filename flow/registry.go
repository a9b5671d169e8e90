package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rathcluster/rath/session"
)

// Registration offers a workflow to the tasks that name it.
type Registration struct {
	Name        string // of one subject token: [A-Za-z0-9_-]{1,64}
	Description string
	// Revision is the author's string for this version of the code; it is
	// recorded with each run.
	Revision string
	// Class is ClassBatch for work that may take what is left; "" and
	// ClassInteractive are for results that people wait for.
	Class string
	// Input is the JSON Schema of a task's input; nil accepts anything.
	Input json.RawMessage
	// New makes the workflow for one run. NewFor, if set, is called instead
	// and may read what the task asks for. A node that starts calls it as well, NewFor
	// with no input, then a text and an object until it makes one, to tell what the workflow is
	// made of: the agents and workflows in its fields.
	New    func() Workflow
	NewFor func(Settings) (Workflow, error)
}

// Settings is what a task asks for beyond its input.
type Settings struct {
	Input json.RawMessage
	Model string
	Tools []string
	MCP   []string // servers
}

// The classes of workflows.
const (
	ClassInteractive = "interactive"
	ClassBatch       = "batch"
)

// Registry holds the workflows that a node offers. The zero value is ready to
// use. It is safe for concurrent use.
type Registry struct {
	mu sync.RWMutex
	m  map[string]Registration
}

// Register adds a workflow. It fails for an invalid or taken name and for a
// registration without a constructor.
func (r *Registry) Register(g Registration) error {
	if err := session.ValidID("workflow", g.Name); err != nil {
		return err
	}
	if g.New == nil && g.NewFor == nil {
		return fmt.Errorf("flow: workflow %q has no New: set flow.Registration.New", g.Name)
	}
	if g.Class != "" && g.Class != ClassInteractive && g.Class != ClassBatch {
		return fmt.Errorf("flow: workflow %q has class %q: use %s or %s", g.Name, g.Class, ClassInteractive, ClassBatch)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.m[g.Name]; taken {
		return fmt.Errorf("flow: workflow %q is registered twice", g.Name)
	}
	if r.m == nil {
		r.m = map[string]Registration{}
	}
	r.m[g.Name] = g
	return nil
}

// Lookup returns the registration of a name.
func (r *Registry) Lookup(name string) (Registration, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g, ok := r.m[name]
	return g, ok
}

// All returns the registrations sorted by name.
func (r *Registry) All() []Registration {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]Registration, 0, len(r.m))
	for _, g := range r.m {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b Registration) int { return strings.Compare(a.Name, b.Name) })
	return all
}
