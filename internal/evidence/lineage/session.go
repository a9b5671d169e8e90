package lineage

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Open is the disposition of a session that has not ended. Package session defines the
// others: adopted, merged, rejected, cancelled, failed.
const Open = "open"

// ScratchEnd is the disposition of a branch that was only read, such as a judge's.
// LateEnd is the disposition of a branch whose run succeeded after the join had been
// decided without it.
const (
	ScratchEnd = "scratch"
	LateEnd    = "late"
)

// Session is the state of one session in the graph.
type Session struct {
	Key         session.Key
	Root        session.ID
	Via         string         // kind of its opening, "" while that record is missing
	Name        string         // of the branch or the import
	Parents     []messages.Ref // that it was opened from
	Version     session.Version
	Commits     uint64
	Head        string // of the workspace, hexadecimal
	Disposition string
	Reason      string        // of the disposition
	By          session.ID    // the session that decided
	Usage       session.Usage // of its own steps, without those of its parents
	Opened      time.Time
	Last        time.Time
	Runs        []run.ID // with records in it, sorted
}

// Session returns the state of a session.
func (g *Graph) Session(k session.Key) (Session, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, err := g.index.history(k)
	if err != nil {
		return Session{}, err
	}
	return g.index.info(t), nil
}

func (g *index) info(t *history) Session {
	s := Session{Key: t.key, Root: t.root, Version: t.version(), Opened: t.records[0].When(), Disposition: Open}
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

// spends reports whether a record's usage is its own: not a sum over other records, and
// not the usage of a row whose step has a record too.
func spends(r *messages.Record) bool {
	switch r.Kind {
	case messages.KindEnded, messages.KindSettled, messages.KindReported, messages.KindGathered, messages.KindAdopted, messages.KindMerged, messages.KindLate:
		return false
	case messages.KindChunk:
		return r.Step == ""
	}
	return true
}

// decision is the outcome of a session, and the session that recorded it.
type decision struct {
	state, reason string
	by            session.ID
}

// decision returns the outcome of a session; nil while it is open. For a branch of a
// fan-out the record of the run that opened it takes precedence. Otherwise it is the first
// record of a parent that names the session, because a branch's disposition is a fact of
// the parent, and then the session's own record.
func (g *index) decision(t *history) *decision {
	parents := map[session.ID]bool{}
	if t.opening != nil {
		for _, p := range t.opening.Parents {
			parents[p.Session] = true
		}
	}
	var own, found, named *messages.Record
	for _, r := range t.records {
		if r.Kind == messages.KindClosed {
			own = r
			parents[session.ID(r.By)] = true
			break
		}
	}
	earlier := func(r, than *messages.Record) bool {
		return than == nil || cmp.Or(cmp.Compare(r.Time, than.Time), cmp.Compare(r.Session, than.Session), cmp.Compare(r.Commit, than.Commit)) < 0
	}
	for by := range g.decided[t.key] {
		for _, r := range g.sessions[by].tidy().records {
			switch {
			case endOfBranch(r, t.key.ID) != nil && earlier(r, named):
				named = r
			case parents[by.ID] && decides(r, t.key.ID) && earlier(r, found): // other sessions only took chunks of it
				found = r
			}
		}
	}
	switch {
	case named != nil:
		e := endOfBranch(named, t.key.ID)
		state := e.State
		if state == session.ClosedCancelled && slices.ContainsFunc(t.records, func(r *messages.Record) bool { return r.Kind == messages.KindEnded && r.State == string(run.Succeeded) }) {
			state = LateEnd
		}
		return &decision{state, e.Reason, named.Session}
	case found != nil:
		state := found.State
		switch found.Kind {
		case messages.KindAdopted:
			state = session.ClosedAdopted
		case messages.KindMerged:
			state = session.ClosedMerged
		}
		return &decision{state, found.Reason, found.Session}
	case own != nil:
		return &decision{own.State, own.Reason, session.ID(own.By)}
	}
	return nil
}

// endOfBranch returns the outcome of a branch in a record, or nil. Reports are ignored,
// because the run that opened the branch decides.
func endOfBranch(r *messages.Record, id session.ID) *run.BranchOutcome {
	if r.Kind != messages.KindDisposed && r.Kind != messages.KindEnded {
		return nil
	}
	if i := slices.IndexFunc(r.Ends, func(e run.BranchOutcome) bool { return e.Session == id }); i >= 0 {
		return &r.Ends[i]
	}
	return nil
}

func decides(r *messages.Record, id session.ID) bool {
	switch r.Kind {
	case messages.KindAdopted, messages.KindMerged:
		return slices.ContainsFunc(r.Parents, func(p messages.Ref) bool { return p.Session == id })
	case messages.KindRejected:
		return slices.ContainsFunc(r.Branches, func(p messages.Ref) bool { return p.Session == id })
	}
	return false
}
