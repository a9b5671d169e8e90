package journal

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Steps and ended runs are stored in pages of at most this many, and of fewer if they
// are long.
const (
	pageItems = 64
	pageBytes = 64 << 10
	// taskBytes is the size above which a task gets a page of its own.
	taskBytes = 4 << 10
)

// paged is a list whose first n items are in pages already.
type paged[T any] struct {
	items []T
	n     int
	pages []*session.Page
}

// unpage drops the pages that hold the item at index i or later ones.
func (s *paged[T]) unpage(i int) {
	for s.n > i {
		last := len(s.pages) - 1
		s.n -= s.pages[last].Ref().Items
		s.pages = s.pages[:last:last]
	}
}

// wireList is a paged list in a snapshot.
type wireList struct {
	Pages []session.PageRef `json:"pages,omitempty"`
	Tail  []json.RawMessage `json:"tail,omitempty"`
}

// wireEnded holds the runs that ended, in the order of their ends.
type wireEnded = wireList

// marshalPaged makes full pages of items, encoded by encode, and returns the list with
// the pages it names.
func marshalPaged[T any](s *paged[T], encode func(T) (json.RawMessage, error)) (w wireList, pages []*session.Page, err error) {
	size := 0
	for _, item := range s.items[s.n:] {
		raw, err := encode(item)
		if err != nil {
			return w, nil, err
		}
		w.Tail = append(w.Tail, raw)
		if size += len(raw); len(w.Tail) == pageItems || size >= pageBytes {
			data, err := json.Marshal(w.Tail)
			if err != nil {
				return w, nil, err
			}
			s.pages = append(s.pages, session.NewPage(len(w.Tail), string(data)))
			s.n += len(w.Tail)
			w.Tail, size = nil, 0
		}
	}
	for _, p := range s.pages {
		w.Pages = append(w.Pages, p.Ref())
	}
	return w, slices.Clone(s.pages), nil
}

func unmarshalPaged[T any](w wireList, load pageLoader, decode func(json.RawMessage) (T, error)) (s paged[T], err error) {
	add := func(all []json.RawMessage) error {
		for _, raw := range all {
			item, err := decode(raw)
			if err != nil {
				return err
			}
			s.items = append(s.items, item)
		}
		return nil
	}
	for _, ref := range w.Pages {
		p, err := load(ref)
		if err != nil {
			return s, err
		}
		var all []json.RawMessage
		if err := json.Unmarshal([]byte(p.Data()), &all); err != nil || len(all) != ref.Items {
			return s, fmt.Errorf("journal: page of a snapshot: %w", session.ErrForeign)
		}
		if err := add(all); err != nil {
			return s, err
		}
		s.pages, s.n = append(s.pages, p), s.n+len(all)
	}
	return s, add(w.Tail)
}

type wireStep struct {
	Done StepCompleted `json:"done"`
	Mark session.Mark  `json:"mark"`
	Time int64         `json:"time"`
}

type wireResolution struct {
	Attempt  uint64   `json:"attempt"`
	Resolved Resolved `json:"resolved"`
}

type wireRecord struct {
	After     []Predecessor      `json:"after,omitempty"`
	Attempt   uint64             `json:"attempt,omitempty"`
	AwaitedBy []Ancestor         `json:"awaited_by,omitempty"`
	Awaits    []session.ID       `json:"awaits,omitempty"`
	Base      *session.Mark      `json:"base,omitempty"`
	Branches  []session.ID       `json:"branches,omitempty"`
	By        string             `json:"by,omitempty"`
	Cancel    *CancelRequested   `json:"cancel,omitempty"`
	Children  []session.ID       `json:"children,omitempty"`
	Cut       int                `json:"cut,omitempty"`
	Deaths    Deaths             `json:"deaths,omitzero"`
	Digest    string             `json:"digest,omitempty"`
	Due       map[run.Path]int64 `json:"due,omitempty"`
	Ended     *Ended             `json:"ended,omitempty"`
	EndedAt   int64              `json:"ended_at,omitempty"`
	Epoch     uint64             `json:"epoch,omitempty"`
	Reserved  Reservations       `json:"escrow,omitzero"`
	Granted   bool               `json:"granted,omitempty"`
	Warming   *FanOut            `json:"held,omitempty"`
	Home      session.Key        `json:"home"`
	ID        run.ID             `json:"id"`
	Inbox     []SignalReceived   `json:"inbox,omitempty"`
	Inboxed   uint64             `json:"inboxed,omitempty"`
	Intents   []StepStarted      `json:"intents,omitempty"`
	Keyed     bool               `json:"keyed,omitempty"`
	Late      int                `json:"late,omitempty"`
	Limit     *Limit             `json:"limit,omitempty"`
	Lost      session.Usage      `json:"lost,omitzero"`
	Past      past               `json:"past,omitzero"`
	Pinned    string             `json:"pinned,omitempty"`
	Resolved  []wireResolution   `json:"resolved,omitempty"`
	Review    *Review            `json:"review,omitempty"`
	Settled   *Settled           `json:"settled,omitempty"`
	Started   int64              `json:"started,omitempty"`
	State     run.State          `json:"state"`
	Status    Status             `json:"status,omitzero"`
	Steps     wireList           `json:"steps,omitzero"`
	Submitted int64              `json:"submitted,omitempty"`
	Suspended *RunWaiting        `json:"suspended,omitempty"`
	Task      *wireTask          `json:"task,omitempty"`
	TaskPage  *session.PageRef   `json:"task_page,omitempty"`
	Delivered []string           `json:"told,omitempty"`
	Via       string             `json:"via,omitempty"`
	Wake      uint64             `json:"wake,omitempty"`
	Warnings  []string           `json:"warnings,omitempty"`
}

// open returns the runs that have not ended, in the order of their ids.
func (b *RunState) open() (all []*Record) {
	for _, r := range b.runs {
		if !r.State.Terminal() {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(x, y *Record) int { return strings.Compare(string(x.ID), string(y.ID)) })
	return all
}

func (r *Record) wire() wireRecord {
	return wireRecord{
		Attempt: r.Attempt, By: r.By, Via: r.Via, Cancel: r.Cancel, Children: r.children, Cut: r.cut, Deaths: r.Deaths, Reserved: r.reserved.clone(), Lost: r.lost, Digest: r.Digest, Ended: r.Ended,
		EndedAt: millis(r.EndedAt), Epoch: r.Epoch, Granted: r.Granted, Home: r.Home, ID: r.ID, Keyed: r.Keyed, Late: r.late, Limit: r.Limit, Review: r.Review, Settled: r.settled,
		Started: millis(r.Started), State: r.State, Status: r.Status, Submitted: millis(r.Submitted), Warnings: r.Warnings,
		After: r.After, AwaitedBy: r.awaitedBy, Awaits: r.awaits, Branches: r.branches, Warming: r.warming, Inbox: r.inbox, Inboxed: r.inboxed, Suspended: r.Suspended, Pinned: r.pinned, Delivered: r.delivered, Wake: r.wake, Due: r.Due, Past: r.past,
	}
}

func (w wireRecord) record() *Record {
	return &Record{
		Attempt: w.Attempt, By: w.By, Via: w.Via, Cancel: w.Cancel, children: w.Children, cut: w.Cut, Deaths: w.Deaths, reserved: w.Reserved, lost: w.Lost, Digest: w.Digest, Ended: w.Ended,
		EndedAt: fromMillis(w.EndedAt), Epoch: w.Epoch, Granted: w.Granted, Home: w.Home, ID: w.ID, Keyed: w.Keyed, late: w.Late, Limit: w.Limit, Review: w.Review, settled: w.Settled,
		Started: fromMillis(w.Started), State: w.State, Status: w.Status, Submitted: fromMillis(w.Submitted), Warnings: w.Warnings,
		After: w.After, awaitedBy: w.AwaitedBy, awaits: w.Awaits, branches: w.Branches, warming: w.Warming, inbox: w.Inbox, inboxed: w.Inboxed, Suspended: w.Suspended, pinned: w.Pinned, delivered: w.Delivered, wake: w.Wake, Due: w.Due, past: w.Past,
	}
}

// marshal returns the snapshot form of an open run. It adds to former the longest value
// of each table that the run's steps refer to.
func (r *Record) marshal(former map[int]session.Session) (w wireRecord, pages []*session.Page, err error) {
	w = r.wire()
	see := func(s session.Session) session.Mark {
		m := s.Mark()
		if old, ok := former[m.Table()]; !ok || old.Ref().Version < s.Ref().Version {
			former[m.Table()] = s
		}
		return m
	}
	if !r.Base.Unborn() {
		w.Base = new(see(r.Base))
	}
	// The last step of each table is the newest.
	for i, s := range r.order.items {
		if next := i + 1; next == len(r.order.items) || r.order.items[next].Session.Mark().Table() != s.Session.Mark().Table() {
			see(s.Session)
		}
	}
	w.Steps, pages, err = marshalPaged(&r.order, func(s *Step) (json.RawMessage, error) {
		return json.Marshal(wireStep{s.StepCompleted, s.Session.Mark(), millis(s.Time)})
	})
	if err != nil {
		return w, nil, fmt.Errorf("journal: snapshot of run %s: %w", r.ID, err)
	}
	for _, p := range slices.Sorted(maps.Keys(r.intents)) {
		w.Intents = append(w.Intents, r.intents[p])
	}
	for _, p := range slices.Sorted(maps.Keys(r.resolved)) {
		w.Resolved = append(w.Resolved, wireResolution{r.resolved[p].attempt, r.resolved[p].Resolved})
	}
	if r.Task.ID == "" {
		return w, pages, nil
	}
	task := r.Task.wire()
	if r.taskPage == nil && len(task.Input) > taskBytes {
		raw, err := canonical.Marshal(task)
		if err != nil {
			return w, nil, err
		}
		r.taskPage = session.NewPage(1, raw)
	}
	if r.taskPage == nil {
		w.Task = &task
		return w, pages, nil
	}
	w.TaskPage = new(r.taskPage.Ref())
	return w, append(pages, r.taskPage), nil
}

func (w wireRecord) unmarshal(tables map[int]session.Session, load pageLoader) (*Record, error) {
	r := w.record()
	rebuild := func(m session.Mark) (session.Session, error) {
		v, ok := tables[m.Table()]
		if !ok {
			return v, fmt.Errorf("journal: snapshot of run %s: %w", w.ID, session.ErrForeign)
		}
		return v.Rebuild(m)
	}
	var err error
	if w.Base != nil {
		if r.Base, err = rebuild(*w.Base); err != nil {
			return nil, err
		}
	}
	r.order, err = unmarshalPaged(w.Steps, load, func(raw json.RawMessage) (*Step, error) {
		var s wireStep
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		v, err := rebuild(s.Mark)
		return &Step{StepCompleted: s.Done, Session: v, Time: fromMillis(s.Time)}, err
	})
	if err != nil {
		return nil, err
	}
	for _, s := range r.order.items {
		put(&r.steps, s.Path, s)
		if n, ok := IterationOf(s.Path.Parent(), s.Path); ok && s.EndsIteration() {
			put(&r.loops, s.Path.Parent(), n)
		}
	}
	for _, i := range w.Intents {
		put(&r.intents, i.Path, i)
	}
	for _, v := range w.Resolved {
		put(&r.resolved, v.Resolved.Path, resolution{v.Resolved, v.Attempt})
	}
	if w.TaskPage != nil {
		if r.taskPage, err = load(*w.TaskPage); err != nil {
			return nil, err
		}
		w.Task = new(wireTask)
		if err := json.Unmarshal([]byte(r.taskPage.Data()), w.Task); err != nil {
			return nil, fmt.Errorf("journal: snapshot of run %s: %w", w.ID, err)
		}
	}
	if w.Task != nil {
		r.Task = w.Task.task(w.Home)
	}
	return r, nil
}

// marshalEnded encodes the ended runs. They no longer need their steps.
func (b *RunState) marshalEnded() (wireEnded, []*session.Page, error) {
	return marshalPaged(&b.ended, func(r *Record) (json.RawMessage, error) {
		w := r.wire()
		if r.Task.ID != "" {
			w.Task = new(r.Task.wire())
		}
		return json.Marshal(w)
	})
}

func (b *RunState) unmarshalEnded(w wireEnded, load pageLoader) (err error) {
	b.ended, err = unmarshalPaged(w, load, func(raw json.RawMessage) (*Record, error) {
		var rec wireRecord
		if err := json.Unmarshal(raw, &rec); err != nil {
			return nil, err
		}
		r := rec.record()
		if rec.Task != nil {
			r.Task = rec.Task.task(r.Home)
		}
		return r, nil
	})
	for i, r := range b.ended.items {
		r.place = i
		b.runs[r.ID] = r
	}
	return err
}
