package lineage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Impact is the set of records that may depend on one chunk, placement, join or step:
// the later records that could see it. It is an upper bound, because a join may skip
// chunks of a branch, and a summary may drop its content.
type Impact struct {
	Of       messages.Ref      // where it was made
	Record   messages.Record   // of it
	Sessions []Reach           // that include it: the session of Of, then the others by time
	Steps    []messages.Record // after it in those sessions, by time
	Runs     []Touched
	Files    []messages.Record // it and those steps, if they moved a workspace head
	Written  []messages.Record // notes that those steps wrote to memories
	// Recalls are later searches of those memories in other sessions: they may
	// have found such a note.
	Recalls []messages.Record
}

// Reach is a session that includes the content of an [Impact].
type Reach struct {
	Session session.ID      `json:"session"`
	From    session.Version `json:"from"` // the first version that includes it
	// Via is the kind of the record that brought it into the session (forked,
	// merged and so on); "" in the session of its origin.
	Via    messages.Kind `json:"via,omitempty"`
	Parent session.ID    `json:"parent,omitempty"` // the session that it came from
	Name   string        `json:"name,omitempty"`
	State  string        `json:"state"`

	opened time.Time
}

// Touched is a run with steps in an [Impact].
type Touched struct {
	Run      run.ID    `json:"run"`
	State    run.State `json:"state"`
	Workflow string    `json:"workflow,omitempty"`
	First    run.Path  `json:"first"` // the first of those steps
	Steps    int       `json:"steps"` // their number
}

// Impact returns the impact of one version of a session: of the chunk, the placement
// or the join that made it.
func (g *Graph) Impact(k session.Key, v session.Version) (Impact, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, i, err := g.index.made(k, v)
	if err != nil {
		return Impact{}, err
	}
	return g.index.impact(t, i), nil
}

// ImpactOfStep returns the impact of a step of a run.
func (g *Graph) ImpactOfStep(tenant session.Tenant, id run.ID, path run.Path) (Impact, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, i, err := g.index.find(tenant, id, path)
	if err != nil {
		return Impact{}, err
	}
	return g.index.impact(t, i), nil
}

// Step returns the maker of a step of a run, with the step's outcome.
func (g *Graph) Step(tenant session.Tenant, id run.ID, path run.Path) (Maker, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, i, err := g.index.find(tenant, id, path)
	if err != nil {
		return Maker{}, err
	}
	return g.index.maker(t, i), nil
}

// Calls returns the records of a tenant's tool calls with an id: the unique id from
// Rath, or the model's own, which may repeat.
func (g *Graph) Calls(tenant session.Tenant, call string) []messages.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []messages.Record
	for k, t := range g.index.sessions {
		if k.Tenant != tenant {
			continue
		}
		for i, r := range t.tidy().records {
			if r.Call == call && (r.Kind == messages.KindTool || r.Kind == messages.KindIntent) {
				out = append(out, *t.record(i))
			}
		}
	}
	slices.SortFunc(out, byTime)
	return slices.CompactFunc(out, func(a, b messages.Record) bool { return a.Run == b.Run && a.Step == b.Step })
}

// Opening returns the record that opened a session.
func (g *Graph) Opening(k session.Key) (messages.Record, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, err := g.index.history(k)
	if err != nil {
		return messages.Record{}, err
	}
	for i, r := range t.records {
		if r == t.opening {
			return *t.record(i), nil
		}
	}
	return messages.Record{}, fmt.Errorf("lineage: the beginning of session %s is missing: %w", k.ID, ErrNotFound)
}

func byTime(a, b messages.Record) int {
	return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Commit, b.Commit), cmp.Compare(a.K, b.K))
}

// find returns the position of a step's record. It prefers the outcome to an
// announcement before it.
func (g *index) find(tenant session.Tenant, id run.ID, path run.Path) (*history, int, error) {
	var found *history
	at, rank := -1, 0
	for k := range g.runs[runKey{tenant, id}] {
		t := g.sessions[k]
		for i, r := range t.of(id) {
			if r.Step != path || path == "" || opens(r.Kind) {
				continue
			}
			own := 1
			if stepDone(r.Kind) {
				own = 2
			}
			if own > rank || own == rank && k.ID < found.key.ID {
				found, at, rank = t, i, own
			}
		}
	}
	if found != nil {
		return found, at, nil
	}
	if len(g.runs[runKey{tenant, id}]) == 0 {
		return nil, 0, fmt.Errorf("lineage: run %s of tenant %s: %w", id, tenant, ErrNotFound)
	}
	return nil, 0, fmt.Errorf("lineage: run %s has no step %s: %w", id, path, ErrNotFound)
}

// reach is the part of a session that includes the content: from a record on.
type reach struct {
	t       *history
	i       int // the record that brought it; -1 if it was there from the start
	version session.Version
	via     messages.Kind
	from    session.ID
}

// impact follows a record through the sessions that include it.
func (g *index) impact(t *history, i int) Impact {
	r := t.record(i)
	out := Impact{Of: r.Ref(), Record: *r}
	start := &reach{t: t, i: i, version: t.shown(i)}
	found := map[session.Key]*reach{t.key: start}
	for queue := []*reach{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if found[at.t.key] != at {
			continue // it was found to begin earlier
		}
		for _, next := range g.spread(at) {
			old := found[next.t.key]
			if old == nil || next.i < old.i {
				found[next.t.key] = next
				queue = append(queue, next)
			}
		}
	}
	for _, at := range found {
		s := g.info(at.t)
		out.Sessions = append(out.Sessions, Reach{s.Key.ID, at.version, at.via, at.from, s.Name, s.Disposition, s.Opened})
		g.after(at, &out)
	}
	slices.SortFunc(out.Sessions, func(a, b Reach) int {
		return cmp.Or(min(len(a.Via), 1)-min(len(b.Via), 1), a.opened.Compare(b.opened), cmp.Compare(a.Session, b.Session))
	})
	slices.SortFunc(out.Steps, byTime)
	slices.SortFunc(out.Written, byTime)
	slices.SortFunc(out.Files, byTime)
	g.touched(t.key.Tenant, &out)
	g.recalled(t.key.Tenant, found, &out)
	return out
}

// shown returns the first version with a record's content: the record's own, or the
// version of the row that a later commit added.
func (t *history) shown(i int) session.Version {
	r := t.records[i]
	if isContent(r) || r.Step == "" {
		return t.versions[i]
	}
	for j := i + 1; j < len(t.records); j++ {
		if o := t.records[j]; o.Kind == messages.KindChunk && o.Run == r.Run && o.Step == r.Step {
			return t.versions[j]
		}
	}
	return t.versions[i]
}

// spread returns the sessions that inherit the content from a session.
func (g *index) spread(at *reach) []*reach {
	var out []*reach
	for _, kid := range g.kids(at.t.key) {
		t := g.sessions[kid]
		for _, p := range t.opening.Parents {
			if p.Session == at.t.key.ID && p.Version >= at.version {
				out = append(out, &reach{t: t, i: -1, version: t.opening.Version, via: t.opening.Kind, from: at.t.key.ID})
				break
			}
		}
	}
	for by := range g.decided[at.t.key] {
		t := g.sessions[by].tidy()
		for i, r := range t.records {
			if by == at.t.key {
				continue
			}
			from := r.Parents
			switch r.Kind {
			case messages.KindAdopted, messages.KindMerged:
			case messages.KindTool: // the outcome of the call's branch is in its result and its files
				from = r.Branches
			default:
				continue
			}
			if slices.ContainsFunc(from, func(p messages.Ref) bool { return p.Session == at.t.key.ID && p.Version >= at.version }) {
				out = append(out, &reach{t: t, i: i, version: t.versions[i], via: r.Kind, from: at.t.key.ID})
				break
			}
		}
	}
	return out
}

// after collects a session's records after it includes the content.
func (g *index) after(at *reach, out *Impact) {
	head := ""
	for i, r := range at.t.records {
		before := cmp.Or(r.HeadFrom, head)
		head = cmp.Or(r.Head, head)
		moved := r.Head != "" && before != "" && r.Head != before && movesHead(r.Kind)
		if moved && i >= at.i {
			out.Files = append(out.Files, *at.t.record(i))
		}
		if i <= at.i || !stepDone(r.Kind) || flushes(r) || r.Run == out.Record.Run && r.Step == out.Record.Step && r.Step != "" {
			continue
		}
		out.Steps = append(out.Steps, *at.t.record(i))
		if r.Kind == messages.KindRemembered && !r.Failed() {
			out.Written = append(out.Written, *at.t.record(i))
		}
	}
}

// touched lists the runs of the steps.
func (g *index) touched(tenant session.Tenant, out *Impact) {
	index := map[run.ID]int{}
	for _, s := range out.Steps {
		if s.Run == "" {
			continue
		}
		n, ok := index[s.Run]
		if !ok {
			r, known := g.run(runKey{tenant, s.Run})
			if !known {
				continue
			}
			n = len(out.Runs)
			index[s.Run] = n
			out.Runs = append(out.Runs, Touched{Run: r.ID, State: r.State, Workflow: r.Workflow, First: s.Step})
		}
		out.Runs[n].Steps++
	}
}

// recalled lists the later searches of the memories that were written to.
func (g *index) recalled(tenant session.Tenant, within map[session.Key]*reach, out *Impact) {
	first := map[string]int64{}
	for _, w := range out.Written {
		if at, ok := first[w.Name]; !ok || w.Time < at {
			first[w.Name] = w.Time
		}
	}
	if len(first) == 0 {
		return
	}
	for k, t := range g.sessions {
		if k.Tenant != tenant || within[k] != nil {
			continue
		}
		for i, r := range t.tidy().records {
			if at, ok := first[r.Name]; ok && r.Kind == messages.KindRecalled && r.Time > at {
				out.Recalls = append(out.Recalls, *t.record(i))
			}
		}
	}
	slices.SortFunc(out.Recalls, byTime)
}
