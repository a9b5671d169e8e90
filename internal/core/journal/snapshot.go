package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// foldVersion numbers the format of a snapshot and the semantics of folding. A snapshot
// with another number is ignored, so any change of either must increment it.
const foldVersion = 1

// wireSnapshot is the content of a snapshot under foldVersion.
type wireSnapshot struct {
	Active      run.ID            `json:"active,omitempty"`
	Branch      run.ID            `json:"branch,omitempty"`
	Ended       wireEnded         `json:"ended,omitzero"`
	Epoch       uint64            `json:"epoch"`
	Events      *EventState       `json:"events,omitempty"`
	Fold        int               `json:"fold"`
	Delivered   []deliveredSignal `json:"heard,omitempty"`
	Incarnation string            `json:"incarnation,omitempty"`
	Limits      *LimitState       `json:"limits,omitempty"`
	Open        []wireRecord      `json:"open,omitempty"`
	Quarantine  *Quarantined      `json:"quarantine,omitempty"`
	Queue       []run.ID          `json:"queue,omitempty"`
	Tables      []json.RawMessage `json:"tables"` // values of the session: the newest, then one for each former table
	// Whole names the pages of the whole state if it is long.
	Whole *session.PageRef `json:"whole,omitempty"`
}

// maxInline is the maximum size of a state that is stored in one piece, in bytes.
const maxInline = 256 << 10

// Snapshot is the state of a writer after a commit. It shares no mutable state with the
// writer, so it may be saved while the writer continues.
type Snapshot struct {
	key   session.Key
	at    commitlog.Position
	state []byte
	pages []*session.Page
}

// Snapshot returns the state after the last commit. It fails while events are staged.
// Its cost is proportional to the additions since an earlier snapshot.
func (w *StateMachine) Snapshot() (*Snapshot, error) {
	if len(w.staged) > 0 {
		return nil, fmt.Errorf("journal: snapshot of %s while events are staged: %w", w.key, run.ErrState)
	}
	s := &Snapshot{key: w.key, at: w.at}
	if w.at.Seq == 0 || w.value.Archived() != nil || w.state.closed {
		// No commit follows in an archived session, and its snapshot must not outlive
		// its log.
		return &Snapshot{}, nil
	}
	newest, table, pages, err := w.value.MarshalPaged()
	if err != nil {
		return nil, err
	}
	w.value = newest
	b := &w.state
	state := wireSnapshot{
		Active: b.Active, Branch: b.branch, Quarantine: b.quarantine, Epoch: b.Epoch, Fold: foldVersion,
		Incarnation: b.Incarnation, Delivered: b.delivered, Events: b.events, Limits: b.limits, Queue: b.Queue,
		Tables: []json.RawMessage{json.RawMessage(table)},
	}
	s.pages = pages
	former := map[int]session.Session{}
	for _, r := range b.open() {
		rec, pages, err := r.marshal(former)
		if err != nil {
			return nil, err
		}
		state.Open = append(state.Open, rec)
		s.pages = append(s.pages, pages...)
	}
	for n, v := range former {
		if n == newest.Mark().Table() {
			continue
		}
		// Steps of a run that replaced its session's chunks need the old ones.
		_, table, pages, err := v.MarshalPaged()
		if err != nil {
			return nil, err
		}
		state.Tables = append(state.Tables, json.RawMessage(table))
		s.pages = append(s.pages, pages...)
	}
	if state.Ended, pages, err = b.marshalEnded(); err != nil {
		return nil, err
	}
	s.pages = append(s.pages, pages...)
	if s.state, err = json.Marshal(state); err != nil {
		return nil, fmt.Errorf("journal: snapshot of %s: %w", w.key, err)
	}
	if len(s.state) > maxInline {
		p := session.NewPage(1, string(s.state))
		s.pages = append(s.pages, p)
		if s.state, err = json.Marshal(wireSnapshot{Fold: foldVersion, Whole: new(p.Ref())}); err != nil {
			return nil, fmt.Errorf("journal: snapshot of %s: %w", w.key, err)
		}
	}
	w.sinceSnapshot = 0
	return s, nil
}

// Save stores the snapshot: first the pages that are not stored yet, then the state
// that names them. It does nothing for a log without snapshots.
func (s *Snapshot) Save(ctx context.Context, log commitlog.Log) error {
	keeper, ok := log.(commitlog.Snapshotter)
	if !ok || s.at.Seq == 0 {
		return nil
	}
	for _, p := range s.pages {
		if err := p.Save(func(digest string, part []byte) error { return keeper.SavePage(ctx, s.key.Tenant, digest, part) }); err != nil {
			return fmt.Errorf("journal: snapshot of %s: %w", s.key, err)
		}
	}
	if err := keeper.Save(ctx, s.key, s.at, s.state); err != nil {
		return fmt.Errorf("journal: snapshot of %s: %w", s.key, err)
	}
	return nil
}

// SinceSnapshot returns the number of commits that the writer folded or made since its
// state was loaded or taken: those that LoadStateMachine would have to read.
func (w *StateMachine) SinceSnapshot() int { return w.sinceSnapshot }

// LoadStateMachine folds a session's log for an incarnation. It starts from the
// session's snapshot if there is one that agrees with the log.
func LoadStateMachine(ctx context.Context, log commitlog.Log, values *Values, k session.Key, incarnation string) (*StateMachine, error) {
	resolver := values.Resolver(context.WithoutCancel(ctx))
	if w := values.restore(ctx, log, k); w != nil {
		w.incarnation, w.resolve = incarnation, resolver
		ok, err := readTail(ctx, log, k, w.at, func(e commitlog.Entry) (bool, error) { return true, w.Fold(e) })
		if err != nil {
			return nil, err
		}
		if ok {
			values.Keep(w.value)
			return w, nil
		}
	}
	w := NewStateMachine(k, incarnation, resolver)
	for e, err := range log.Read(ctx, k, commitlog.Position{}) {
		if err != nil {
			return nil, fmt.Errorf("journal: load %s: %w", k, err)
		}
		if err := w.Fold(e); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// begins reports whether a log begins with the commit at a position, or cannot be read:
// all before it was purged.
func begins(ctx context.Context, log commitlog.Log, k session.Key, at commitlog.Position) bool {
	for e, err := range log.Read(ctx, k, commitlog.Position{}) {
		return err != nil || e.At.Seq == at.Seq
	}
	return true
}

// readTail reads the commits after a position until take returns false. It returns false if
// the log does not contain that position: the commit that archived the session, whose
// predecessor was there, may be all that is left. The caller then reads the log from its
// beginning.
func readTail(ctx context.Context, log commitlog.Log, k session.Key, at commitlog.Position, take func(commitlog.Entry) (bool, error)) (bool, error) {
	// Another writer may append between the two reads; the first read is then retried.
	for range 3 {
		taken := false
		for e, err := range log.Read(ctx, k, at) {
			if err != nil {
				return false, fmt.Errorf("journal: read %s after commit %d: %w", k, at.Seq, err)
			}
			if !taken && (e.At.Seq != at.Seq+1 || e.Commit.Prev != at.Hash) {
				return false, nil
			}
			if _, archives := commitlog.Tombstone(e.Commit); archives && begins(ctx, log, k, e.At) {
				return false, nil
			}
			taken = true
			if more, err := take(e); err != nil || !more {
				return true, err
			}
		}
		if taken {
			return true, nil
		}
		last, err := log.Last(ctx, k)
		switch {
		case errors.Is(err, session.ErrNotFound):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("journal: read the end of %s: %w", k, err)
		case last.At.Seq <= at.Seq:
			return last.At.Seq == at.Seq && last.At.Hash == at.Hash, nil
		}
	}
	return false, nil
}

// restore returns the writer of a session's snapshot, nil if there is no usable
// snapshot.
func (v *Values) restore(ctx context.Context, log commitlog.Log, k session.Key) *StateMachine {
	state, at, load, ok := v.snapshot(ctx, log, k)
	if !ok {
		return nil
	}
	w := &StateMachine{key: k, at: at}
	tables := map[int]session.Session{}
	for i, t := range state.Tables {
		s, err := session.UnmarshalPaged(string(t), load)
		if err != nil || s.Key() != k {
			return nil
		}
		if i == 0 {
			w.value, w.root = s, s.Root()
		}
		tables[s.Mark().Table()] = s
	}
	if l, _ := w.value.Link(); l.Seq != at.Seq || l.Hash != at.Hash {
		return nil
	}
	w.state = RunState{Epoch: state.Epoch, Incarnation: state.Incarnation, Active: state.Active, branch: state.Branch, quarantine: state.Quarantine, delivered: state.Delivered, events: state.Events, limits: state.Limits, Queue: state.Queue, runs: map[run.ID]*Record{}}
	for _, rec := range state.Open {
		r, err := rec.unmarshal(tables, load)
		if err != nil {
			return nil
		}
		w.state.runs[r.ID] = r
	}
	if err := w.state.unmarshalEnded(state.Ended, load); err != nil {
		return nil
	}
	return w
}

type pageLoader = func(session.PageRef) (*session.Page, error)

// snapshot reads and decodes the stored state of a session. An unreadable state counts
// as absent: the log itself has everything.
func (v *Values) snapshot(ctx context.Context, log commitlog.Log, k session.Key) (state wireSnapshot, at commitlog.Position, load pageLoader, ok bool) {
	keeper, isKeeper := log.(commitlog.Snapshotter)
	if !isKeeper {
		return state, at, nil, false
	}
	at, raw, err := keeper.Load(ctx, k)
	if err != nil {
		return state, at, nil, false
	}
	load = func(r session.PageRef) (*session.Page, error) { return v.page(ctx, keeper, k.Tenant, r) }
	if err := json.Unmarshal(raw, &state); err != nil || state.Fold != foldVersion {
		return state, at, nil, false
	}
	if state.Whole != nil {
		p, err := load(*state.Whole)
		if err != nil {
			return state, at, nil, false
		}
		state = wireSnapshot{}
		if err := json.Unmarshal([]byte(p.Data()), &state); err != nil || state.Fold != foldVersion {
			return state, at, nil, false
		}
	}
	return state, at, load, len(state.Tables) > 0
}

// maxPages bounds the cached pages.
const maxPages = 128

// page returns a page, which sessions forked from one another share.
func (v *Values) page(ctx context.Context, keeper commitlog.Snapshotter, t session.Tenant, r session.PageRef) (*session.Page, error) {
	if len(r.Parts) == 0 {
		return nil, fmt.Errorf("journal: page without parts: %w", session.ErrNotFound)
	}
	name := pageName{t, r.Parts[0], len(r.Parts), r.Items}
	v.mu.Lock()
	p, ok := v.pages[name]
	v.mu.Unlock()
	if ok && slices.Equal(p.Ref().Parts, r.Parts) {
		return p, nil
	}
	p, err := session.LoadPage(r, func(digest string) ([]byte, error) { return keeper.LoadPage(ctx, t, digest) })
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.pages[name]; !ok {
		if len(v.pageOrder) >= maxPages {
			delete(v.pages, v.pageOrder[0])
			v.pageOrder = v.pageOrder[1:]
		}
		v.pageOrder = append(v.pageOrder, name)
	}
	v.pages[name] = p
	return p, nil
}

type pageName struct {
	tenant session.Tenant
	first  string
	parts  int
	items  int
}
