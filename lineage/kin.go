package lineage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Open is the disposition of a session that nobody has ended. The others are
// those of package session: adopted, merged, rejected, cancelled, failed.
const Open = "open"

// Session is what the graph tells of one session.
type Session struct {
	Key         session.Key
	Root        session.ID
	Via         string // how it was opened, "" while that record is missing
	Name        string // of the branch or the import
	Parents     []Ref  // that it was opened from
	Version     session.Version
	Commits     uint64
	Head        string // of the workspace, hexadecimal
	Disposition string
	Reason      string        // of the disposition
	By          session.ID    // the session that decided
	Quarantine  string        // why it is set apart, "" if it is not
	Usage       session.Usage // of its own steps, without those of its parents
	Opened      time.Time
	Last        time.Time
	Runs        []run.ID // that recorded something in it, sorted
}

// Session returns what the graph tells of a session.
func (g *Graph) Session(k session.Key) (Session, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, err := g.thread(k)
	if err != nil {
		return Session{}, err
	}
	return g.info(t), nil
}

func (g *Graph) info(t *thread) Session {
	s := Session{Key: t.key, Root: t.root, Version: t.version(), Opened: t.records[0].When(), Disposition: Open, Quarantine: t.apart}
	if t.opening != nil {
		s.Via, s.Name, s.Parents = t.opening.Via, t.opening.Name, slices.Clone(t.opening.Parents)
	}
	for _, r := range t.records {
		s.Commits = max(s.Commits, r.Commit)
		if r.Head != "" {
			s.Head = r.Head
		}
		if spends(r) {
			s.Usage = s.Usage.Add(r.Usage)
		}
		if w := r.When(); w.After(s.Last) {
			s.Last = w
		}
	}
	s.Runs = slices.Sorted(maps.Keys(t.runs))
	if d := g.decision(t); d != nil {
		s.Disposition, s.Reason, s.By = d.state, d.reason, d.by
	}
	return s
}

// spends reports whether a record's usage is its own: not a sum of what other
// records tell, and not that of a row whose step has a record beside it.
func spends(r *Record) bool {
	switch r.Kind {
	case Ended, Reported, Gathered, Adopted, Merged, Late:
		return false
	case Chunk:
		return r.Step == ""
	}
	return true
}

// decision is how a session ended, by whose word.
type decision struct {
	state, reason string
	by            session.ID
}

// decision returns how a session ended; nil while it is open. The run that
// opened a branch of a fan-out says so of each branch by name. Otherwise it is
// the first record of a parent that names the session, because a branch's
// disposition is a fact of the parent, and else what the session itself says.
func (g *Graph) decision(t *thread) *decision {
	parents := map[session.ID]bool{}
	if t.opening != nil {
		for _, p := range t.opening.Parents {
			parents[p.Session] = true
		}
	}
	var own, found, named *Record
	for _, r := range t.records {
		if r.Kind == Closed {
			own = r
			parents[session.ID(r.By)] = true
			break
		}
	}
	earlier := func(r, than *Record) bool {
		return than == nil || cmp.Or(cmp.Compare(r.Time, than.Time), cmp.Compare(r.Session, than.Session), cmp.Compare(r.Commit, than.Commit)) < 0
	}
	for by := range g.decided[t.key] {
		for _, r := range g.sessions[by].tidy().records {
			switch {
			case r.ends(t.key.ID) != nil && earlier(r, named):
				named = r
			case parents[by.ID] && decides(r, t.key.ID) && earlier(r, found): // others merely took chunks of it
				found = r
			}
		}
	}
	switch {
	case named != nil:
		e := named.ends(t.key.ID)
		return &decision{e.State, e.Reason, named.Session}
	case found != nil:
		state := found.State
		switch found.Kind {
		case Adopted:
			state = session.ClosedAdopted
		case Merged:
			state = session.ClosedMerged
		}
		return &decision{state, found.Reason, found.Session}
	case own != nil:
		return &decision{own.State, own.Reason, session.ID(own.By)}
	}
	return nil
}

// ends returns what a record says about the end of a branch. A report is no
// word about it: the run that opened the branch decides.
func (r *Record) ends(id session.ID) *End {
	if r.Kind != Disposed && r.Kind != Ended {
		return nil
	}
	for i := range r.Ends {
		if r.Ends[i].Session == id {
			return &r.Ends[i]
		}
	}
	return nil
}

func decides(r *Record, id session.ID) bool {
	switch r.Kind {
	case Adopted, Merged:
		return slices.ContainsFunc(r.Parents, func(p Ref) bool { return p.Session == id })
	case Rejected:
		return slices.ContainsFunc(r.Branches, func(p Ref) bool { return p.Session == id })
	}
	return false
}

// Sessions returns the sessions of a tree: the root, what was forked from it,
// and so on, each parent before its children and siblings by time. Sessions of
// other roots that were opened from one of them are part of it.
func (g *Graph) Sessions(t session.Tenant, root session.ID) ([]Session, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rows, err := g.rows(session.Key{Tenant: t, ID: root}, 0)
	if err != nil {
		return nil, err
	}
	out := make([]Session, len(rows))
	for i, r := range rows {
		out[i] = r.info
	}
	return out, nil
}

// row is a session with its place in a tree.
type row struct {
	info   Session
	depth  int
	folded string // what is told of the sessions opened from it that are left out
}

// rows walks a tree without recursion: a chain of forks may be of any length.
// Where more than foldFrom sessions were opened from one, only fold of them are
// there; zero leaves out none.
func (g *Graph) rows(root session.Key, fold int) ([]row, error) {
	if _, err := g.thread(root); err != nil {
		return nil, err
	}
	var out []row
	seen := map[session.Key]bool{root: true}
	stack := []row{{depth: 0, info: Session{Key: root}}}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		t := g.sessions[top.info.Key].tidy()
		top.info = g.info(t)
		kids := g.kids(t.key)
		if fold > 0 && len(kids) > foldFrom {
			kids, top.folded = g.fold(kids, fold)
		}
		out = append(out, top)
		for _, k := range slices.Backward(kids) {
			if !seen[k] {
				seen[k] = true
				stack = append(stack, row{depth: top.depth + 1, info: Session{Key: k}})
			}
		}
	}
	return out, nil
}

// foldOrder says which of many branches are shown first: those that became
// something, that somebody has to look at, and then the others.
var foldOrder = []string{session.ClosedAdopted, Open, session.ClosedFailed, session.ClosedRejected, session.ClosedMerged, session.ClosedCancelled}

// fold keeps n of many sessions, in their order, and tells of the others.
func (g *Graph) fold(kids []session.Key, n int) (kept []session.Key, rest string) {
	ends := make(map[session.Key]string, len(kids))
	for _, k := range kids {
		ends[k] = Open
		if d := g.decision(g.sessions[k]); d != nil {
			ends[k] = d.state
		}
	}
	chosen := slices.Clone(kids)
	slices.SortStableFunc(chosen, func(a, b session.Key) int {
		return cmp.Compare(slices.Index(foldOrder, ends[a]), slices.Index(foldOrder, ends[b]))
	})
	count := map[string]int{}
	for _, k := range chosen[n:] {
		count[ends[k]]++
	}
	var parts []string
	for _, state := range foldOrder {
		if count[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[state], state))
		}
	}
	chosen = chosen[:n]
	kept = slices.DeleteFunc(slices.Clone(kids), func(k session.Key) bool { return !slices.Contains(chosen, k) })
	return kept, "... " + counted(len(kids)-n, "session") + " more from here: " + strings.Join(parts, ", ")
}

// kids returns the sessions that were opened from one, in the order of time.
func (g *Graph) kids(k session.Key) []session.Key {
	var out []session.Key
	for kid := range g.children[k] {
		if t := g.sessions[kid].tidy(); t.opening != nil {
			out = append(out, kid)
		}
	}
	slices.SortFunc(out, func(a, b session.Key) int {
		x, y := g.sessions[a].opening, g.sessions[b].opening
		return cmp.Or(cmp.Compare(x.Time, y.Time), run.ComparePaths(x.Step, y.Step), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Roots returns the roots of a tenant's trees, the newest first.
func (g *Graph) Roots(t session.Tenant) []session.ID {
	g.mu.Lock()
	defer g.mu.Unlock()
	newest := map[session.ID]int64{}
	for k, th := range g.sessions {
		if k.Tenant == t {
			root := th.tidy().root
			newest[root] = max(newest[root], th.records[0].Time)
		}
	}
	roots := make([]session.ID, 0, len(newest))
	for id := range newest {
		roots = append(roots, id)
	}
	slices.SortFunc(roots, func(a, b session.ID) int {
		return cmp.Or(cmp.Compare(newest[b], newest[a]), cmp.Compare(a, b))
	})
	return roots
}

// Ancestors returns what a version of a session came from: of each session
// that it was forked from, or took chunks of, the newest version that is part
// of it. The nearest come first. Version zero is the newest.
func (g *Graph) Ancestors(k session.Key, v session.Version) ([]Ref, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err := g.thread(k); err != nil {
		return nil, err
	}
	best := map[session.ID]Ref{}
	var order []session.ID
	queue := []Ref{{Session: k.ID, Version: v}}
	done := map[session.ID]uint64{} // commits of a session that were looked at
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		t := g.sessions[session.Key{Tenant: k.Tenant, ID: at.Session}]
		if t == nil {
			continue
		}
		to := at.Commit
		if to == 0 {
			to = t.commitOf(at.Version)
		}
		from := done[at.Session]
		if to <= from {
			continue
		}
		done[at.Session] = to
		for _, r := range t.tidy().records {
			if r.Commit <= from || r.Commit > to {
				continue
			}
			for _, p := range r.Parents {
				if p.Session != k.ID {
					old, ok := best[p.Session]
					if !ok {
						order = append(order, p.Session)
					}
					if !ok || p.Version > old.Version {
						best[p.Session] = p
					}
				}
				queue = append(queue, p)
			}
		}
	}
	out := make([]Ref, len(order))
	for i, id := range order {
		out[i] = best[id]
	}
	return out, nil
}

// Descendants returns the sessions that were opened from a session, directly
// or not, nearest first.
func (g *Graph) Descendants(k session.Key) ([]session.ID, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err := g.thread(k); err != nil {
		return nil, err
	}
	var out []session.ID
	seen := map[session.Key]bool{k: true}
	queue := []session.Key{k}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, kid := range g.kids(at) {
			if !seen[kid] {
				seen[kid] = true
				out, queue = append(out, kid.ID), append(queue, kid)
			}
		}
	}
	return out, nil
}

// Branches returns the sessions that were opened from a session, with what
// became of each and why.
func (g *Graph) Branches(k session.Key) ([]Session, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err := g.thread(k); err != nil {
		return nil, err
	}
	var out []Session
	for _, kid := range g.kids(k) {
		out = append(out, g.info(g.sessions[kid]))
	}
	return out, nil
}

// Match returns the sessions and runs of a tenant whose ids begin with a
// prefix, sorted.
func (g *Graph) Match(t session.Tenant, prefix string) (sessions []session.ID, runs []run.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k := range g.sessions {
		if k.Tenant == t && strings.HasPrefix(string(k.ID), prefix) {
			sessions = append(sessions, k.ID)
		}
	}
	for k := range g.runs {
		if k.tenant == t && strings.HasPrefix(string(k.run), prefix) {
			runs = append(runs, k.run)
		}
	}
	slices.Sort(sessions)
	slices.Sort(runs)
	return sessions, runs
}

// Maker says who made one version of a session.
type Maker struct {
	Ref // where it was made: an ancestor, for what a fork shows of its parent
	// Record is the one of the row, the placement or the join.
	Record Record
	// Asked is the model step that asked for the tool call, where Record tells
	// of one and the graph holds it.
	Asked    *Record
	Agent    string
	Run      run.ID
	Step     run.Path
	Attempt  uint64
	Tool     string
	Call     string
	Model    string
	Workflow string
	Branch   string // name of the branch it was made on
	Time     time.Time
}

// Why returns who made a version of a session: which agent, run, step,
// attempt, tool call, model and branch.
func (g *Graph) Why(k session.Key, v session.Version) (Maker, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, i, err := g.made(k, v)
	if err != nil {
		return Maker{}, err
	}
	return g.maker(t, i), nil
}

// made returns the place of the record that made a version of a session: in
// an ancestor, for what a fork shows of its parent.
func (g *Graph) made(k session.Key, v session.Version) (*thread, int, error) {
	t, err := g.thread(k)
	if err != nil {
		return nil, 0, err
	}
	if v == 0 || v > t.version() {
		return nil, 0, fmt.Errorf("lineage: version %d of session %s, which ends at %d: %w", v, k.ID, t.version(), ErrNotFound)
	}
	for base, ok := t.base(); ok && v <= base.Version; base, ok = t.base() {
		up := session.Key{Tenant: k.Tenant, ID: base.Session}
		if t, err = g.thread(up); err != nil {
			return nil, 0, fmt.Errorf("lineage: version %d of session %s was made in %s: %w", v, k.ID, base.Session, ErrNotFound)
		}
	}
	i := t.content(v)
	if i < 0 {
		return nil, 0, fmt.Errorf("lineage: version %d of session %s: the record is missing: %w", v, t.key.ID, ErrNotFound)
	}
	return t, i, nil
}

// content returns the index of the record that made a version, -1 if it is
// missing.
func (t *thread) content(v session.Version) int {
	t.tidy()
	for i, r := range t.records {
		if t.versions[i] == v && r.content() {
			return i
		}
	}
	return -1
}

// content reports whether the record tells of an event that moved the version.
func (r *Record) content() bool {
	switch r.Kind {
	case Chunk, Placed, Adopted, Merged:
		return r.Rows > 0
	case Model, Tool, Compressed:
		return r.Role != ""
	}
	return false
}

func (g *Graph) maker(t *thread, i int) Maker {
	r := t.record(i)
	m := Maker{
		Ref: r.Ref(), Record: *r, Agent: r.Agent, Run: r.Run, Step: r.Step, Attempt: r.Attempt, Tool: r.Tool, Call: r.Call,
		Model: r.Model, Workflow: r.Workflow, Time: r.When(),
	}
	if t.opening != nil {
		m.Branch = t.opening.Name
	}
	if r.Run == "" {
		return m
	}
	step := g.step(t, r.Run, r.Step, Tool, Model)
	if step != nil { // the row of a tool's result is committed after the call's end
		m.Attempt, m.Call, m.Tool = max(m.Attempt, step.Attempt), or(step.Call, m.Call), or(m.Tool, step.Tool)
		m.Agent, m.Model = or(m.Agent, step.Agent), or(m.Model, step.Model)
	}
	if m.Tool != "" {
		if m.Asked = g.step(t, r.Run, parentStep(r.Step), Model); m.Asked != nil {
			m.Agent, m.Model = or(m.Agent, m.Asked.Agent), or(m.Model, m.Asked.Model)
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
func (t *thread) attempt(i int, id run.ID) uint64 {
	var n uint64
	for _, r := range t.records[:i+1] {
		if r.Run == id {
			n = max(n, r.Attempt)
		}
	}
	return n
}

// step finds the record of a step, first where it is expected.
func (g *Graph) step(t *thread, id run.ID, path run.Path, want ...Kind) *Record {
	if path == "" {
		return nil
	}
	in := func(t *thread) *Record {
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
	var found *Record
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

func parentStep(p run.Path) run.Path {
	i := strings.LastIndexByte(string(p), '.')
	return p[:max(i, 0)]
}
