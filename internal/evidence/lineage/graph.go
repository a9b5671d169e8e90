package lineage

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Graph is an index of records. The same records give the same graph, in any order
// and any number of times. It is safe for concurrent use. Its memory grows with the
// records: build it from the records that a query needs.
type Graph struct {
	mu    sync.Mutex
	index index // guarded by mu
}

// index finds records by session and by run.
type index struct {
	sessions map[session.Key]*history
	runs     map[runKey]map[session.Key]struct{} // the sessions with records of a run
	children map[session.Key]map[session.Key]struct{}
	decided  map[session.Key]map[session.Key]struct{} // the sessions that decided about a session, or called it
	homes    map[runKey]session.ID                    // see SetHome
}

type runKey struct {
	tenant session.Tenant
	run    run.ID
}

type position struct {
	commit uint64
	k      int
}

// history holds the records of one session.
type history struct {
	key  session.Key
	root session.ID
	at   map[position]*messages.Record

	// Derived from at by tidy, on demand.
	clean      bool
	records    []*messages.Record // in the order of the log
	versions   []session.Version  // of the session right after each record
	opening    *messages.Record   // nil while it is missing
	whole      bool               // no commit is missing from the opening to the last record
	runs       map[run.ID][]int   // indexes of the records of a run
	quarantine string             // the reason for the session's quarantine, "" for none
}

// NewGraph returns an empty graph.
func NewGraph() *Graph {
	return &Graph{index: index{
		sessions: map[session.Key]*history{},
		runs:     map[runKey]map[session.Key]struct{}{},
		children: map[session.Key]map[session.Key]struct{}{},
		decided:  map[session.Key]map[session.Key]struct{}{},
	}}
}

// Add adds records to the graph and returns the number of new ones. Session, commit
// and K identify a record: a duplicate has no effect, and of two different records the
// graph keeps one, independent of the order. It skips invalid records.
func (g *Graph) Add(records ...messages.Record) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	added := 0
	for i := range records {
		if validRecord(&records[i]) == nil && g.index.add(cloneRecord(&records[i])) {
			added++
		}
	}
	return added
}

func (g *index) add(r *messages.Record) bool {
	r.Summary, r.Reason, r.Name = line(r.Summary, MaxSummary), line(r.Reason, MaxReason), line(r.Name, MaxSummary)
	k := r.Key()
	t := g.sessions[k]
	if t == nil {
		t = &history{key: k, at: map[position]*messages.Record{}}
		g.sessions[k] = t
	}
	at := position{r.Commit, r.K}
	old := t.at[at]
	if old != nil && compareRecords(old, r) <= 0 {
		return false
	}
	t.at[at], t.clean = r, false
	g.link(k, r)
	return old == nil
}

// link updates the indexes from one session to others. After two different records
// with the same identity they may contain too many sessions; the caller checks the
// records.
func (g *index) link(k session.Key, r *messages.Record) {
	put := func(m map[session.Key]map[session.Key]struct{}, from session.ID) {
		fk := session.Key{Tenant: k.Tenant, ID: from}
		if m[fk] == nil {
			m[fk] = map[session.Key]struct{}{}
		}
		m[fk][k] = struct{}{}
	}
	for _, p := range r.Parents {
		if opens(r.Kind) {
			put(g.children, p.Session)
		} else if p.Session != k.ID {
			put(g.decided, p.Session)
		}
	}
	if r.Kind == messages.KindRejected || r.Kind == messages.KindTool {
		for _, b := range r.Branches {
			put(g.decided, b.Session)
		}
	}
	for _, e := range r.Ends {
		put(g.decided, e.Session)
	}
	if r.Run != "" {
		rk := runKey{k.Tenant, r.Run}
		if g.runs[rk] == nil {
			g.runs[rk] = map[session.Key]struct{}{}
		}
		g.runs[rk][k] = struct{}{}
	}
}

// Records returns the records of a session in the order of its log, with their
// versions where known.
func (g *Graph) Records(k session.Key) []messages.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.index.sessions[k]
	if t == nil {
		return nil
	}
	t.tidy()
	out := make([]messages.Record, len(t.records))
	for i := range t.records {
		out[i] = *t.record(i)
	}
	return out
}

// record returns a copy of record i with its version.
func (t *history) record(i int) *messages.Record {
	r := cloneRecord(t.records[i])
	r.Version = t.versions[i]
	return r
}

func opens(k messages.Kind) bool {
	switch k {
	case messages.KindOpened, messages.KindForked, messages.KindDetached, messages.KindConcatenated, messages.KindImported:
		return true
	}
	return false
}

// tidy derives the fields that depend on all records of the session.
func (t *history) tidy() *history {
	if t.clean {
		return t
	}
	t.clean = true
	t.records = slices.SortedFunc(maps.Values(t.at), func(a, b *messages.Record) int {
		return cmp.Or(cmp.Compare(a.Commit, b.Commit), cmp.Compare(a.K, b.K))
	})
	t.versions = make([]session.Version, len(t.records))
	t.opening, t.quarantine, t.runs = nil, "", map[run.ID][]int{}
	t.root = t.records[0].Root
	for i, r := range t.records {
		switch {
		case opens(r.Kind) && r.Commit == 1 && t.opening == nil:
			t.opening = r
		case r.Kind == messages.KindQuarantined:
			t.quarantine = cmp.Or(r.Reason, r.Summary)
		case r.Kind == messages.KindReadmitted:
			t.quarantine = ""
		}
		if r.Run != "" {
			t.runs[r.Run] = append(t.runs[r.Run], i)
		}
	}
	t.whole = t.opening != nil
	from, _ := t.base()
	base, last, rows := from.Version, uint64(0), 0
	for i, r := range t.records {
		if r.Commit != last {
			base += session.Version(rows)
			if r.Commit != last+1 {
				t.whole = false // a version depends on all earlier commits
			}
			last, rows = r.Commit, 0
		}
		rows = max(rows, r.Rows)
		if t.versions[i] = r.Version; t.whole {
			t.versions[i] = base + session.Version(r.Rows)
		}
	}
	return t
}

// of yields the records of a run, with their indexes, in the order of the log.
func (t *history) of(id run.ID) iter.Seq2[int, *messages.Record] {
	t.tidy()
	return func(yield func(int, *messages.Record) bool) {
		for _, i := range t.runs[id] {
			if !yield(i, t.records[i]) {
				return
			}
		}
	}
}

// homeOf returns the session whose log decides about a run, from the records of this
// session; "" if they do not name it.
func (t *history) homeOf(id run.ID) session.ID {
	for _, r := range t.of(id) {
		switch {
		case r.Kind == messages.KindSubmitted, r.Kind == messages.KindQueued, r.Kind == messages.KindClaimed && r.Home == "":
			return t.key.ID
		case r.Kind == messages.KindClaimed:
			return r.Home
		}
	}
	return ""
}

// base returns the commit of the parent from which the session was forked or detached;
// ok is false for other sessions.
func (t *history) base() (messages.Ref, bool) {
	o := t.tidy().opening
	if o == nil || o.Kind != messages.KindForked && o.Kind != messages.KindDetached || len(o.Parents) == 0 {
		return messages.Ref{}, false
	}
	return o.Parents[0], true
}

// version returns the latest version of the session.
func (t *history) version() session.Version {
	t.tidy()
	return slices.Max(t.versions)
}

// commitOf returns the commit that made a version: the first one that reaches it, or
// the last commit for version zero.
func (t *history) commitOf(v session.Version) uint64 {
	t.tidy()
	if v != 0 {
		for i, r := range t.records {
			if t.versions[i] >= v {
				return r.Commit
			}
		}
	}
	return t.records[len(t.records)-1].Commit
}

func compareRecords(a, b *messages.Record) int {
	if c := cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Seq, b.Seq)); c != 0 && sameFact(a, b) {
		return c
	}
	x, errX := EncodeRecord(a)
	y, errY := EncodeRecord(b)
	if errX != nil || errY != nil {
		return 0
	}
	return slices.Compare(x, y)
}

// sameFact reports whether two records are equal apart from their position in the
// stream, and apart from a version that only one of them has.
func sameFact(a, b *messages.Record) bool {
	x, y := *a, *b
	x.Partition, x.Seq, y.Partition, y.Seq = 0, 0, 0, 0
	if x.Version == 0 || y.Version == 0 {
		x.Version, y.Version = 0, 0
	}
	ex, errX := EncodeRecord(&x)
	ey, errY := EncodeRecord(&y)
	return errX == nil && errY == nil && string(ex) == string(ey)
}

func (g *index) history(k session.Key) (*history, error) {
	t := g.sessions[k]
	if t == nil {
		return nil, fmt.Errorf("lineage: session %s: %w", k, ErrNotFound)
	}
	return t.tidy(), nil
}
