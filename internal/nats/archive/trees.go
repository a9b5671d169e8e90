package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// Tree is the unit of archiving: a root with all sessions forked from it, directly or not,
// and the trees that its logs refer to or that refer to it, because a session is read from
// all of them.
type Tree struct {
	Tenant session.Tenant
	// Root is the oldest root.
	Root     session.ID
	Sessions []TreeSession // the oldest first
	// Last is the time of the last commit, except commits that archive a session, or resume
	// one that was never purged.
	Last time.Time
	// Bytes is the size of the stored commits.
	Bytes int64
	// Busy is the reason the tree has not finished, "" if it has: none of its sessions has
	// open work.
	Busy string
	// OfKey is set for the log of a key or of an event: it is removed and not archived.
	OfKey bool
}

// TreeSession is the state of one session of a tree in its log.
type TreeSession struct {
	ID   session.ID
	Root session.ID
	// At is the last commit; the tombstone for a purged session.
	At commitlog.Position
	// Archived is the time and the file of the session's archiving; nil if it is not
	// archived.
	Archived *session.ArchivedError
	// Purged is set when only the tombstone is left, or when not all commits were restored.
	Purged bool
}

// Trees reads all event streams up to their current end and returns the trees of a tenant,
// or of all with "", the longest unused first. Its time is the time to read the whole
// store; it keeps some hundred bytes per session in memory. The connection needs the rights
// of a node or an operator.
func (c *Archive) Trees(ctx context.Context, t session.Tenant) ([]Tree, error) {
	streams, err := c.streams.EventStreams(ctx)
	if err != nil {
		return nil, err
	}
	f := forest{tenant: t, sessions: map[session.Key]*wood{}, up: map[session.Key]session.Key{}}
	for _, stream := range streams {
		var g, p uint32
		if _, err := fmt.Sscanf(stream, "EV_%d_%d", &g, &p); err != nil {
			return nil, fmt.Errorf("nats/archive: event stream %s: %w", stream, err)
		}
		h := eventlog.NewChain(c.logs, g, p)
		h.Copies = eventlog.AllCopies
		err := c.logs.DumpStream(ctx, stream, false, func(m eventlog.Stored) error {
			if m.Subject == "" {
				return nil // the end
			}
			return f.take(ctx, h, conn.Message{Subject: m.Subject, Seq: m.Seq, Time: m.Time, Header: m.Header, Data: m.Data})
		})
		if err != nil {
			return nil, err
		}
	}
	return f.trees(), nil
}

// forest folds the event streams into trees.
type forest struct {
	tenant   session.Tenant
	open     schedule.Runs
	sessions map[session.Key]*wood
	up       map[session.Key]session.Key // of a session, one that belongs to the same tree
}

// wood is the forest's state of one session.
type wood struct {
	TreeSession
	key    session.Key
	copied bool   // the last commit that archives it was restored
	grave  uint64 // number of the tombstone that the log begins with
	first  time.Time
	last   time.Time
	bytes  int64
	step   string // of a branch: the step that opened it
	closed bool
	newer  bool // written by a later release
	ofKey  bool // the log of a limit or of an event
}

func (f *forest) take(ctx context.Context, h *eventlog.Chain, m conn.Message) error {
	k, ok := h.Key(m.Subject)
	if !ok || f.tenant != "" && k.Tenant != f.tenant {
		return nil
	}
	e, ok, err := h.PatientlyNext(ctx, m)
	if err != nil && !errors.Is(err, session.ErrTooOld) {
		return err
	}
	if err != nil {
		f.session(k).newer = true
	}
	if !ok {
		return nil
	}
	if err := f.fill(ctx, h, &e); err != nil {
		return err
	}
	f.fold(e, len(m.Data), eventlog.RestoredOf(m) > 0)
	return nil
}

// fill loads spilled data of the relevant events.
func (f *forest) fill(ctx context.Context, h *eventlog.Chain, e *commitlog.Entry) error {
	needed := false
	for i := range e.Commit.Events {
		ev := &e.Commit.Events[i]
		if ev.Blob.Digest.IsZero() {
			continue
		}
		if ev.Kind == session.KindOpened || ev.Kind == session.KindJoined || strings.HasPrefix(ev.Kind, "run.") {
			needed = true
		}
	}
	if !needed {
		return nil
	}
	return h.Fill(ctx, e)
}

func (f *forest) session(k session.Key) *wood {
	s := f.sessions[k]
	if s == nil {
		k = apart(k)
		s = &wood{TreeSession: TreeSession{ID: k.ID, Root: k.ID}, key: k}
		f.sessions[k] = s
	}
	return s
}

// apart returns a copy of a key that shares no text with its commit: otherwise the whole
// commit would stay in memory with it.
func apart(k session.Key) session.Key {
	return session.Key{Tenant: session.Tenant(strings.Clone(string(k.Tenant))), ID: session.ID(strings.Clone(string(k.ID)))}
}

// fold folds the next commit of a session, stored in so many bytes; copied marks a restored
// copy.
func (f *forest) fold(e commitlog.Entry, bytes int, copied bool) {
	s := f.session(e.Commit.Key)
	k := s.key
	events := e.Commit.Events
	when := events[len(events)-1].Time
	grave := s.At.Seq == 0 && e.At.Seq > 1
	if grave {
		s.grave, s.Purged = e.At.Seq, true
	}
	if s.first.IsZero() {
		s.first = when
	}
	if root := e.Commit.Root; root != s.Root {
		s.Root = session.ID(strings.Clone(string(root)))
	}
	s.bytes += int64(bytes)
	f.tie(k, session.Key{Tenant: k.Tenant, ID: s.Root})
	f.open.Fold(e)
	fence := false
	for _, ev := range events {
		switch ev.Kind {
		case session.KindArchived:
			if s.Archived, _ = commitlog.Tombstone(e.Commit); s.Archived != nil {
				s.Archived.Key, s.Archived.File = k, strings.Clone(s.Archived.File)
			}
			s.copied, fence = copied, true
		case session.KindRestored:
			s.Archived = nil
			fence = fence || !s.copied && s.grave == 0 // it was not used
		case session.KindClosed:
			s.closed = true
		case journal.KindKeyClosed:
			fence = true
		}
		s.ofKey = s.ofKey || journal.KeyLogEvent(ev.Kind)
		f.refer(k, s, ev)
	}
	if !fence || s.last.IsZero() {
		s.last = when
	}
	if !grave && e.At.Seq < s.grave {
		return // a restored commit, and not the last one
	}
	s.Purged = grave
	s.At = e.At
}

// refer records an event's references to other sessions. The readers of the session report
// references that do not decode.
func (f *forest) refer(k session.Key, s *wood, ev session.Event) {
	switch ev.Kind {
	case session.KindOpened:
		if o, err := session.DecodeOpening(ev); err == nil {
			if o.Kind == session.OpenFork || o.Kind == session.OpenImplicit || o.Kind == session.OpenCall {
				s.step = strings.Clone(o.Step)
			}
			for _, l := range o.Parents {
				f.tie(k, l.Key)
			}
		}
	case session.KindJoined:
		if j, err := session.DecodeJoin(ev); err == nil {
			for _, p := range j.Parents {
				f.tie(k, p.Link.Key)
			}
		}
	case journal.KindClaimed:
		if v, err := journal.Decode[journal.Claimed](ev); err == nil {
			f.tie(k, v.Home)
		}
	case journal.KindEnded:
		if v, err := journal.Decode[journal.Ended](ev); err == nil && v.Result != nil {
			f.tie(k, v.Result.Key)
		}
	}
}

// tie joins two sessions into one tree.
func (f *forest) tie(a, b session.Key) {
	if a.Tenant != b.Tenant || b.ID == "" {
		return
	}
	if a, b = f.top(a), f.top(b); a != b {
		f.up[a] = apart(b)
	}
}

func (f *forest) top(k session.Key) session.Key {
	for {
		up, ok := f.up[k]
		if !ok {
			return k
		}
		if above, ok := f.up[up]; ok {
			f.up[k] = above
		}
		k = up
	}
}

// together ties sessions that were archived to one file. A tombstone does not name its
// session's parents. If the rest of a partly purged tree were taken for the whole tree, the
// file would be written again, without the purged sessions.
func (f *forest) together() {
	type file struct {
		tenant session.Tenant
		name   string
	}
	first := map[file]session.Key{}
	for k, s := range f.sessions {
		if s.Archived == nil {
			continue
		}
		to := file{k.Tenant, s.Archived.File}
		if other, ok := first[to]; ok {
			f.tie(k, other)
		} else {
			first[to] = k
		}
	}
}

func (f *forest) trees() []Tree {
	f.together()
	found := map[session.Key]*Tree{}
	for _, k := range slices.SortedFunc(maps.Keys(f.sessions), func(a, b session.Key) int {
		x, y := f.sessions[a], f.sessions[b]
		return cmp.Or(x.first.Compare(y.first), strings.Compare(string(a.Tenant), string(b.Tenant)), strings.Compare(string(a.ID), string(b.ID)))
	}) {
		s, top := f.sessions[k], f.top(k)
		t := found[top]
		if t == nil {
			t = &Tree{Tenant: k.Tenant, Root: s.Root}
			found[top] = t
		}
		t.Sessions = append(t.Sessions, s.TreeSession)
		t.Bytes, t.OfKey = t.Bytes+s.bytes, s.ofKey
		if s.last.After(t.Last) {
			t.Last = s.last
		}
		if t.Busy == "" {
			t.Busy = f.busy(k, s)
		}
	}
	all := make([]Tree, 0, len(found))
	for _, t := range found {
		t.mixed()
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b Tree) int {
		return cmp.Or(a.Last.Compare(b.Last), strings.Compare(string(a.Tenant), string(b.Tenant)), strings.Compare(string(a.Root), string(b.Root)))
	})
	return all
}

// busy returns the reason a session keeps its tree, "" if it does not.
func (f *forest) busy(k session.Key, s *wood) string {
	open := f.open.Open(k)
	switch {
	case s.newer:
		return fmt.Sprintf("session %s was written by a later release", k.ID)
	case s.Purged:
		return ""
	case open != "":
		return open
	case s.step != "" && !s.closed:
		return fmt.Sprintf("branch %s is not closed", k.ID)
	}
	return ""
}

// mixed detects a tree of which a part was purged and another part was resumed: the latter
// cannot be read without the former.
func (t *Tree) mixed() {
	purged, live := session.ID(""), session.ID("")
	for _, s := range t.Sessions {
		switch {
		case s.Purged && purged == "":
			purged = s.ID
		case s.Archived == nil && live == "":
			live = s.ID
		}
	}
	if purged != "" && live != "" && t.Busy == "" {
		t.Busy = fmt.Sprintf("session %s refers to session %s, which is archived; bring that back first", live, purged)
	}
}

// LineageOf returns the sequence up to which the lineage of a session's event stream is
// published. A commit that is purged before that leaves no record.
func (c *Archive) LineageOf(ctx context.Context, id session.ID) (uint64, error) {
	g, p, ok := id.Locate()
	if !ok {
		return 0, fmt.Errorf("nats/archive: session id %q names no event stream: it was not minted", id)
	}
	relay := project.LineageRelay{C: c.projections, Generation: g, Partition: p, Stream: streams.EventStream(g, p)}
	at, err := relay.Cursor(ctx)
	return at.Seq, err
}
