package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Choice selects the runs of a list.
type Choice struct {
	Where    *lineage.Selector // nil chooses all
	States   []run.State       // empty is all
	Workflow string            // "" is all
	Now      time.Time
}

func (o *Choice) takes(r *lineage.Run) bool {
	if r.Workflow == wire.WorkflowNotify && !o.apart() {
		return false
	}
	return (o.Workflow == "" || r.Workflow == o.Workflow) && (len(o.States) == 0 || slices.Contains(o.States, r.State))
}

// apart reports whether the choice may have runs that send notifications.
func (o *Choice) apart() bool {
	return o.Workflow != "" || o.Where.Names("workflow", "run", "session", "under")
}

// Listed is a run of a list, with its position there and its graph.
type Listed struct {
	lineage.Run
	At    uint64
	Graph *lineage.Graph
}

// runList reads one page of a tenant's runs, the newest first. The submission of a run in
// LINEAGE determines its position; nearly all of its other records follow in the stream, so
// the page has read them before. Records that may lie in pages before this one are read
// from the subjects of the run's tree.
type runList struct {
	*history
	Choice
	limit int
	top   uint64 // the page reads from there backwards
	whole bool   // graph has everything newer than the page
	trees bool   // the selector asks for whole trees
	graph *lineage.Graph
	apart map[session.ID]bool // sessions that newer records may mark as quarantined
	back  map[session.ID]bool // sessions restored from archives
	read  map[session.ID]*lineage.Graph
	above map[session.ID]bool // trees whose records above the page were asked for: all are in graph
	told  map[run.ID]bool
	rows  []Listed
}

// submission is where a run has its place.
type submission struct {
	at   uint64
	id   run.ID
	home session.ID
	root session.ID
}

// treesKept bounds the trees that are cached while a page is read.
const treesKept = 64

// Runs returns a page of the runs that were submitted before a sequence of LINEAGE, zero
// for all, and the sequence before which to continue; zero at the end. A page may have few
// rows or none and not be the last one: it ends when enough was read.
func (h *history) Runs(ctx context.Context, before uint64, limit int, o Choice) (rows []Listed, next uint64, err error) {
	l := runList{
		history: h, Choice: o, limit: limit, top: h.until(before), whole: before == 0,
		graph: lineage.NewGraph(), read: map[session.ID]*lineage.Graph{}, above: map[session.ID]bool{}, back: map[session.ID]bool{}, told: map[run.ID]bool{},
	}
	_, l.trees = o.Where.Under()
	if !l.whole {
		if l.apart, err = h.sessionsWith(ctx, messages.KindQuarantined); err == nil {
			l.back, err = h.sessionsWith(ctx, messages.KindRestored)
		}
		if err != nil {
			return nil, 0, err
		}
	}
	// The relay of another partition may publish records that follow from a submission a
	// moment before it: the runs of a stretch are reported once the stretch below it is
	// read.
	var held []submission
	read := 0
	for s, err := range h.backwards(ctx, l.top) {
		if err != nil {
			return nil, 0, err
		}
		var found []submission
		for _, r := range slices.Backward(s.records) {
			l.graph.Add(*r.Record)
			switch {
			case submits(r.Record):
				found = append(found, submission{r.at, r.Run, r.Session, r.Root})
			case r.Kind == messages.KindRestored:
				l.back[r.Session] = true
			}
		}
		next, err := l.tell(ctx, held)
		if read += len(s.records); next == 0 && s.to < l.top && read > scanMost {
			next = s.to + 1
		}
		if err != nil || next > 0 {
			return l.rows, next, err
		}
		held = found
	}
	if next, err = l.tell(ctx, held); err == nil && next == 0 {
		err = l.rest(ctx)
	}
	return l.rows, next, err
}

func submits(r *messages.Record) bool {
	return r.Kind == messages.KindSubmitted || r.Kind == messages.KindQueued
}

// tell adds the chosen runs. It stops at a run for which the page has no room, and returns
// where to continue.
func (l *runList) tell(ctx context.Context, all []submission) (next uint64, err error) {
	if all, err = l.atHome(ctx, all); err != nil {
		return 0, err
	}
	ends, err := l.ends(ctx, all)
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		if l.told[s.id] {
			continue
		}
		l.told[s.id] = true
		r, chosen, err := l.graph.Choose(l.tenant, s.id, l.Where, l.Now)
		read := l.whole
		if end, known := ends[s.root]; known && err == nil && r.Ended.IsZero() {
			if read, err = l.readAbove(ctx, s.root, end); err != nil {
				return 0, err
			}
			if read && end > l.top {
				r, chosen, err = l.graph.Choose(l.tenant, s.id, l.Where, l.Now)
			}
		}
		g := l.graph
		if err != nil || l.trees || !r.Whole || r.Ended.IsZero() && !read || l.apart[r.Home.ID] {
			if g, err = l.treeOf(ctx, s.root); err != nil {
				return 0, err
			}
			r, chosen, err = g.Choose(l.tenant, s.id, l.Where, l.Now)
		}
		if errors.Is(err, lineage.ErrNotFound) || err == nil && !(chosen && l.takes(&r)) {
			continue // LINEAGE has dropped it meanwhile, or it was not requested
		}
		if err != nil {
			return 0, err
		}
		// A page ends between messages: the next one begins with all of the one below.
		if n := len(l.rows); n >= l.limit && s.at != l.rows[n-1].At {
			return s.at + 1, nil
		}
		l.rows = append(l.rows, Listed{r, s.at, g})
	}
	return 0, nil
}

// atHome returns the submissions of runs that own their id: a session restored from an
// archive may have a run with the id of another one, to which the alias belongs.
func (l *runList) atHome(ctx context.Context, all []submission) (own []submission, err error) {
	var doubtful []string
	doubt := func(s *submission) bool {
		return session.ID(s.id) != s.home && (l.back[s.home] || len(l.graph.Homes(l.tenant, s.id)) > 1)
	}
	for i := range all {
		if doubt(&all[i]) {
			doubtful = append(doubtful, eventlog.RunAliasSubject(l.tenant, all[i].id))
		}
	}
	if doubtful == nil {
		return all, nil
	}
	slices.Sort(doubtful)
	aliases := map[string]conn.Message{}
	for some := range slices.Chunk(slices.Compact(doubtful), conn.PageMessages) {
		found, err := l.c.messages.Lasts(ctx, "KV_"+streams.BucketAlias, some)
		if err != nil {
			return nil, fmt.Errorf("nats/project: read aliases: %w", err)
		}
		maps.Copy(aliases, found)
	}
	for i := range all {
		s := &all[i]
		if m, ok := aliases[eventlog.RunAliasSubject(l.tenant, s.id)]; ok && doubt(s) {
			a, err := translate.DecodeAlias(m.Data)
			if err == nil && a.Session != "" {
				l.graph.SetHome(l.tenant, s.id, a.Session)
			}
			if err == nil && a.Session != "" && a.Session != s.home {
				continue
			}
		}
		own = append(own, *s)
	}
	return own, nil
}

// ends returns the ends in LINEAGE of the trees of runs whose end this page has not seen.
// For thousands of waiting runs the end is their submission.
func (l *runList) ends(ctx context.Context, all []submission) (map[session.ID]uint64, error) {
	if l.whole || l.trees {
		return nil, nil
	}
	roots := map[string]session.ID{}
	for _, s := range all {
		if l.told[s.id] {
			continue
		}
		if r, _, err := l.graph.Choose(l.tenant, s.id, nil, l.Now); err == nil && r.Ended.IsZero() {
			roots[lineage.TreeSubject(l.tenant, s.root)] = s.root
		}
	}
	ends := make(map[session.ID]uint64, len(roots))
	for some := range slices.Chunk(slices.Sorted(maps.Keys(roots)), conn.PageMessages) {
		lasts, upTo, err := l.c.messages.LastsNow(ctx, streams.StreamLineage, some)
		if err != nil {
			return nil, fmt.Errorf("nats/project: read lineage: %w", err)
		}
		if upTo < l.last { // a replica that lags
			continue
		}
		for subject, m := range lasts {
			ends[roots[subject]] = m.Seq
		}
	}
	return ends, nil
}

// aboveOne is the number of messages above a page that are read one by one before the rest
// is read in bulk: for a bulk read a server counts the messages that follow, passing those
// of other trees.
const aboveOne = 8

// readAbove adds the records of a tree in LINEAGE above the page, up to its end: a run that
// waited has the rest of its records there. They have one subject, whose messages a server
// finds without passing those of other trees. It adds none and returns false if other trees
// may belong to it, see Tree. A page reads a tree once: all branches of a fan-out are runs
// of one tree.
func (l *runList) readAbove(ctx context.Context, root session.ID, end uint64) (all bool, err error) {
	all, read := l.above[root]
	if !read {
		if all, err = l.addAbove(ctx, root, end); err == nil {
			l.above[root] = all
		}
	}
	return all, err
}

func (l *runList) addAbove(ctx context.Context, root session.ID, end uint64) (all bool, err error) {
	subject := lineage.TreeSubject(l.tenant, root)
	var above []messages.Record
	at := l.top
	for n := 0; at < end && n < aboveOne; n++ {
		m, err := l.c.messages.LeaderNext(ctx, streams.StreamLineage, subject, at+1)
		if errors.Is(err, conn.ErrNoMessage) {
			return false, nil // LINEAGE has dropped it meanwhile
		}
		if err != nil {
			return false, fmt.Errorf("nats/project: read lineage: %w", err)
		}
		at = m.Seq
		for _, r := range l.decode(m) {
			above = append(above, *r.Record)
		}
	}
	for r, err := range l.records(ctx, subject, at+1, end) {
		if err != nil {
			return false, err
		}
		above = append(above, *r.Record)
	}
	for i := range above {
		if r := &above[i]; len(r.Parents) > 0 || r.Result != nil && r.Result.Session != r.Session {
			return false, nil
		}
	}
	for _, r := range above {
		l.graph.Add(r)
	}
	return true, nil
}

// rest adds the runs whose submission LINEAGE no longer holds. They are the last ones.
func (l *runList) rest(ctx context.Context) error {
	for _, r := range l.graph.Select(l.tenant, nil, l.Now) {
		if l.told[r.ID] || r.Whole || r.Root == "" {
			continue
		}
		if own, err := l.atHome(ctx, []submission{{id: r.ID, home: r.Home.ID}}); err != nil {
			return err
		} else if len(own) == 0 {
			continue
		}
		g, err := l.treeOf(ctx, r.Root)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(g.Records(r.Home), func(rec messages.Record) bool { return rec.Run == r.ID && submits(&rec) }) {
			continue // its place is in another page
		}
		r, chosen, err := g.Choose(l.tenant, r.ID, l.Where, l.Now)
		if err == nil && chosen && l.takes(&r) {
			l.rows = append(l.rows, Listed{r, l.first, g})
		}
	}
	return nil
}

func (l *runList) treeOf(ctx context.Context, root session.ID) (*lineage.Graph, error) {
	if g := l.read[root]; g != nil {
		return g, nil
	}
	g, err := l.Tree(ctx, root)
	if err != nil {
		return nil, err
	}
	if len(l.read) >= treesKept {
		clear(l.read)
	}
	l.read[root] = g
	return g, nil
}

// sessionsWith returns the sessions with records of a kind that has subjects of its own:
// sessions that are or were quarantined or restored.
func (h *history) sessionsWith(ctx context.Context, kind messages.Kind) (map[session.ID]bool, error) {
	all, err := h.c.streams.Subjects(ctx, streams.StreamLineage, streams.PrefixLineage+string(h.tenant)+".*."+string(kind)+".*")
	if err != nil {
		return nil, err
	}
	ids := make(map[session.ID]bool, len(all))
	for subject := range all {
		ids[session.ID(subject[strings.LastIndexByte(subject, '.')+1:])] = true
	}
	return ids, nil
}

// Below returns the chosen runs of a session's tree.
func (h *history) Below(ctx context.Context, id session.ID, o Choice) ([]Listed, error) {
	root, err := h.c.RootOf(ctx, session.Key{Tenant: h.tenant, ID: id})
	if errors.Is(err, session.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g, err := h.Tree(ctx, root)
	if err != nil {
		return nil, err
	}
	var rows []Listed
	for _, r := range g.Select(h.tenant, o.Where, o.Now) {
		if o.takes(&r) {
			rows = append(rows, Listed{Run: r, Graph: g})
		}
	}
	return rows, nil
}

// OnlyOpen reports whether a list is of runs alone that have not ended.
func (o *Choice) OnlyOpen() bool {
	return len(o.States) > 0 && !slices.ContainsFunc(o.States, run.State.Terminal)
}

// Open is Runs for a choice of runs that have not ended, from the trees of the sessions
// that have such runs: it does not read the runs that have ended since, however many.
func (h *history) Open(ctx context.Context, ids []session.ID, before uint64, limit int, o Choice) (rows []Listed, next uint64, err error) {
	read, seen := map[session.ID]bool{}, map[session.ID]bool{}
	for _, id := range ids {
		if seen[id] { // another branch of a fan-out that was read
			continue
		}
		root, err := h.c.RootOf(ctx, session.Key{Tenant: h.tenant, ID: id})
		if errors.Is(err, session.ErrNotFound) || read[root] {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		read[root] = true
		t, err := h.tree(ctx, root)
		if err != nil {
			return nil, 0, err
		}
		maps.Copy(seen, t.sessions)
		for _, r := range t.graph.Select(h.tenant, o.Where, o.Now) {
			at := cmp.Or(t.places[r.ID], h.first)
			if r.Root == root && o.takes(&r) && (before == 0 || at < before) {
				rows = append(rows, Listed{r, at, t.graph})
			}
		}
	}
	slices.SortFunc(rows, func(a, b Listed) int { return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.ID, b.ID)) })
	for n := limit; n < len(rows); n++ { // a page ends between messages, as those of Runs
		if rows[n].At != rows[n-1].At {
			return rows[:n], rows[n].At + 1, nil
		}
	}
	return rows, 0, nil
}

// InfoOf returns the graph's information on a run, with the decision that an operator has
// to make.
func InfoOf(g *lineage.Graph, r lineage.Run) messages.RunInfo {
	out := translate.RunInfo(r)
	if r.State.Terminal() {
		if c, err := g.Run(r.Home.Tenant, run.CleanupOf(r.ID)); err == nil {
			out.Cleanup, out.CleanupState = c.ID, c.State
		}
	}
	if r.State != run.NeedsReview {
		return out
	}
	for _, rec := range g.Records(r.Home) {
		if rec.Kind == messages.KindReview && rec.Run == r.ID {
			out.Review = &messages.Review{Step: rec.Step, Call: rec.Call, Tool: rec.Tool, Code: rec.Code, Reason: rec.Reason, Revision: rec.Revision}
		}
	}
	return out
}

// cleans reports whether an id is the id of a cleanup run.
func cleans(id run.ID) bool {
	_, ok := run.CleanedBy(id)
	return ok
}

// LastRun returns the run that was submitted last, which no branch of a fan-out and no
// cleanup run was.
func (h *history) LastRun(ctx context.Context) (messages.RunInfo, error) {
	for before := uint64(0); ; {
		rows, next, err := h.Runs(ctx, before, lastAmong, Choice{Now: time.Now()})
		if err != nil {
			return messages.RunInfo{}, err
		}
		var last *Listed
		for i := range rows {
			if r := &rows[i]; r.BranchOf == nil && !cleans(r.ID) && (last == nil || r.Submitted.After(last.Submitted)) {
				last = r
			}
		}
		switch {
		case last != nil:
			return InfoOf(last.Graph, last.Run), nil
		case next == 0:
			return messages.RunInfo{}, fmt.Errorf("no run yet: %w", run.ErrUnknownRun)
		}
		before = next
	}
}
