package lineage

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Maker is the origin of one version of a session: the record of the row, the placement,
// the join or the step, completed from the records around it. For a version that a fork
// shares with its parent, its session is the ancestor.
type Maker struct {
	messages.Record
	Recorded *messages.Record // the record without the completion
	// Asked is the model step that requested the tool call; nil if there was none, or
	// it is not in the graph.
	Asked *messages.Record
}

// Why returns the maker of a version of a session: agent, run, step, attempt, tool call
// and model.
func (g *Graph) Why(k session.Key, v session.Version) (Maker, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, i, err := g.index.made(k, v)
	if err != nil {
		return Maker{}, err
	}
	return g.index.maker(t, i), nil
}

// made returns the position of the record that made a version of a session. The record of
// a version that a fork shares with its parent is in an ancestor.
func (g *index) made(k session.Key, v session.Version) (*history, int, error) {
	t, err := g.history(k)
	if err != nil {
		return nil, 0, err
	}
	if v == 0 || v > t.version() {
		return nil, 0, fmt.Errorf("lineage: version %d of session %s, which ends at %d: %w", v, k.ID, t.version(), ErrNotFound)
	}
	for base, ok := t.base(); ok && v <= base.Version; base, ok = t.base() {
		up := session.Key{Tenant: k.Tenant, ID: base.Session}
		if t, err = g.history(up); err != nil {
			return nil, 0, fmt.Errorf("lineage: version %d of session %s was made in %s: %w", v, k.ID, base.Session, ErrNotFound)
		}
	}
	i := t.content(v)
	if i < 0 {
		return nil, 0, fmt.Errorf("lineage: version %d of session %s: the record is missing: %w", v, t.key.ID, ErrNotFound)
	}
	return t, i, nil
}

// content returns the index of the record that made a version, or -1.
func (t *history) content(v session.Version) int {
	t.tidy()
	for i, r := range t.records {
		if t.versions[i] == v && isContent(r) {
			return i
		}
	}
	return -1
}

// isContent reports whether the record is of an event that advanced the version.
func isContent(r *messages.Record) bool {
	switch r.Kind {
	case messages.KindChunk, messages.KindPlaced, messages.KindAdopted, messages.KindMerged:
		return r.Rows > 0
	case messages.KindModel, messages.KindTool, messages.KindCompressed:
		return r.Role != ""
	}
	return false
}

func (g *index) maker(t *history, i int) Maker {
	r := t.record(i)
	m := Maker{Record: *r, Recorded: r}
	if r.Run == "" {
		return m
	}
	step := g.step(t, r.Run, r.Step, messages.KindTool, messages.KindModel)
	if step != nil { // the row of a tool's result is committed after the call's end
		m.Attempt, m.Call, m.Tool = max(m.Attempt, step.Attempt), cmp.Or(step.Call, m.Call), cmp.Or(m.Tool, step.Tool)
		m.Agent, m.Model = cmp.Or(m.Agent, step.Agent), cmp.Or(m.Model, step.Model)
	}
	if m.Tool != "" {
		if m.Asked = g.step(t, r.Run, r.Step.Parent(), messages.KindModel); m.Asked != nil {
			m.Agent, m.Model = cmp.Or(m.Agent, m.Asked.Agent), cmp.Or(m.Model, m.Asked.Model)
		}
	}
	if m.Workflow == "" {
		if rec, ok := g.run(runKey{t.key.Tenant, r.Run}); ok {
			m.Workflow = rec.Workflow
			if m.Attempt == 0 {
				m.Attempt = t.attempt(i, r.Run)
			}
		}
	}
	return m
}

// attempt returns the attempt of a run that had claimed the session when a
// record was made.
func (t *history) attempt(i int, id run.ID) uint64 {
	var n uint64
	for _, r := range t.records[:i+1] {
		if r.Run == id {
			n = max(n, r.Attempt)
		}
	}
	return n
}

// step finds the record of a step, first in the session where it is expected.
func (g *index) step(t *history, id run.ID, path run.Path, want ...messages.Kind) *messages.Record {
	if path == "" {
		return nil
	}
	in := func(t *history) *messages.Record {
		for i, r := range t.of(id) {
			if r.Step == path && slices.Contains(want, r.Kind) {
				return t.record(i)
			}
		}
		return nil
	}
	if r := in(t); r != nil {
		return r
	}
	var found *messages.Record
	for k := range g.runs[runKey{t.key.Tenant, id}] {
		if k == t.key {
			continue
		}
		if r := in(g.sessions[k]); r != nil && (found == nil || r.Session < found.Session) {
			found = r
		}
	}
	return found
}
