package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/evidence/events"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// maxItems and maxBytes bound the memory of a topic: a reader that is further behind is
	// cut.
	maxItems = 4096
	maxBytes = 4 << 20
	// maxDrafting bounds the runs of a tree whose drafts are followed.
	maxDrafting = 256
	// lookAgain is the pause before the live state of a run is asked for again.
	lookAgain = 200 * time.Millisecond
)

// errLagged means that a reader is behind the memory of its topic.
var errLagged = fmt.Errorf("%w: the reader is slower than the events", run.ErrBusy)

// topic is the stream of a tree, or of a tenant, that all of its readers share. It remembers
// its last items.
type topic struct {
	scope  events.Scope
	client *client.Client // of the first reader
	fail   func(error)    // ends the topic

	ready chan struct{} // closed when each later record will be among the items

	mu       sync.Mutex
	items    []*item // those before are never changed: readers hold parts of the slice
	first    uint64  // the number of items[0]
	bytes    int     // of items
	more     chan struct{}
	fold     events.Fold
	drafting map[run.ID]*drafting
	all      int  // readers that want the drafts of all runs
	listed   bool // the runs that had begun before the first of them
	readers  map[*reader]struct{}
	idle     *time.Timer // ends the topic after its last reader
	stopped  bool        // no more drafting begins
	work     sync.WaitGroup
}

// drafting follows the deltas of a run.
type drafting struct {
	readers int
	open    bool // the run is one of those that readers of the whole tree want
	stop    context.CancelFunc
}

func newTopic(scope events.Scope, c *client.Client, fail func(error)) *topic {
	return &topic{
		scope: scope, client: c, fail: fail, ready: make(chan struct{}), more: make(chan struct{}),
		drafting: map[run.ID]*drafting{}, readers: map[*reader]struct{}{},
	}
}

// run follows the lineage until ctx ends or with an error.
func (t *topic) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		t.mu.Lock()
		t.stopped = true
		for _, d := range t.drafting {
			d.stop()
		}
		t.mu.Unlock()
		t.work.Wait()
	}()
	end, err := t.client.Lineage.Page(ctx, string(t.scope.Root), client.TailEnd, 1)
	if err != nil {
		return err
	}
	c, err := lineage.ParseCursor(end.Next)
	if err != nil {
		return err
	}
	// The positions of end are behind commits whose records may not be stored yet. The
	// topic needs those records, and begins with the last message of LINEAGE.
	from := &lineage.Cursor{}
	from.Move(c.At())
	close(t.ready)
	for after := from.String(); ; {
		after, err = t.tail(ctx, after)
		if !passes(err) || ctx.Err() != nil {
			return err
		}
		conn.Pause(ctx, lookAgain)
	}
}

// tail adds the records after a cursor until ctx ends or with an error. It returns the
// cursor of the last record.
func (t *topic) tail(ctx context.Context, after string) (string, error) {
	for r, err := range t.client.Lineage.Tail(ctx, string(t.scope.Root), after) {
		if err == nil {
			err = t.record(ctx, &r)
		}
		if err != nil {
			return after, err
		}
		after = r.Cursor
	}
	return after, ctx.Err()
}

// passes reports whether the same request may succeed later: a tail does not begin while
// the connection is lost or no node answers.
func passes(err error) bool {
	return errors.Is(err, client.ErrUnreachable) || errors.Is(err, client.ErrNoAnswer) || errors.Is(err, session.ErrUnavailable)
}

// record adds a record.
func (t *topic) record(ctx context.Context, r *messages.LineageRecord) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.fold.Record(&r.Record)
	n := len(all) - len(events.Of(&r.Record))
	if n > 0 {
		it, err := draftItem(all[:n])
		if err != nil {
			return err
		}
		t.add(it)
	}
	it, err := recordItem(r, all[n:])
	if err != nil {
		return fmt.Errorf("stream: record %d of partition %d: %w", r.Record.Seq, r.Record.Partition, err)
	}
	t.add(it)
	if t.scope.Root == "" || r.Record.Home != "" {
		return nil
	}
	switch r.Record.Kind {
	case messages.KindClaimed:
		t.begin(ctx, r.Record.Run)
	case messages.KindEnded:
		if d := t.drafting[r.Record.Run]; d != nil {
			d.open = false
			t.release(r.Record.Run, d)
		}
	}
	return nil
}

// add adds an item, and drops the oldest beyond the bounds. The caller has the lock.
func (t *topic) add(it *item) {
	t.items = append(t.items, it)
	t.bytes += it.bytes
	for len(t.items) > maxItems || t.bytes > maxBytes && len(t.items) > 1 {
		t.bytes -= t.items[0].bytes
		t.items = t.items[1:]
		t.first++
	}
	close(t.more)
	t.more = make(chan struct{})
}

// addDrafts adds drafts, if there are any.
func (t *topic) addDrafts(all []events.Event) error {
	if len(all) == 0 {
		return nil
	}
	it, err := draftItem(all)
	if err == nil {
		t.add(it)
	}
	return err
}

// end returns the number of the next item.
func (t *topic) end() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first + uint64(len(t.items))
}

// after returns the number of the first item of a message of LINEAGE, of which a reader may
// lack others; false if the topic does not remember it.
func (t *topic) after(at lineage.StoredAt) (uint64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, it := range t.items {
		if at.Seq > 0 && it.at == at {
			return t.first + uint64(i), true //nolint:gosec // not negative
		}
	}
	return 0, false
}

// from returns the items from a number on, and a channel that is closed when there are
// others. It fails with errLagged if the topic has dropped some of them.
func (t *topic) from(n uint64) ([]*item, <-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n < t.first {
		return nil, nil, errLagged
	}
	items := t.items[n-t.first:]
	return items[:len(items):len(items)], t.more, nil
}

// opening returns the items from a number on, and the drafts of the steps in flight behind
// them.
func (t *topic) opening(n uint64) ([]*item, []events.Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n < t.first {
		return nil, nil, errLagged
	}
	items := t.items[n-t.first:]
	return items[:len(items):len(items)], t.fold.Open(), nil
}

// follow begins to follow the drafts of a run for a reader, or of all runs of the tree. It
// returns the run, or "" if the tree has too many.
func (t *topic) follow(ctx context.Context, id run.ID, all bool, running []run.ID) run.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id != "" {
		d := t.draft(ctx, id)
		if d == nil {
			id = ""
		} else {
			d.readers++
		}
	}
	if all {
		t.all++
		for _, id := range running {
			t.begin(ctx, id)
		}
	}
	return id
}

// unfollow ends follow, which returned the run.
func (t *topic) unfollow(id run.ID, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.drafting[id]; d != nil && id != "" {
		d.readers--
		t.release(id, d)
	}
	if !all {
		return
	}
	if t.all--; t.all == 0 {
		t.listed = false
		for id, d := range t.drafting {
			d.open = false
			t.release(id, d)
		}
	}
}

// list reports whether a reader has to list the runs of the tree: the first one does, for all.
func (t *topic) list() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.listed
	t.listed = true
	return first
}

// unlist has the next reader list the runs.
func (t *topic) unlist() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed = false
}

// begin follows the drafts of a run that has begun, if readers want those of all runs.
func (t *topic) begin(ctx context.Context, id run.ID) {
	if t.all == 0 {
		return
	}
	if d := t.draft(ctx, id); d != nil {
		d.open = true
	}
}

// release stops to follow the drafts of a run that no reader wants.
func (t *topic) release(id run.ID, d *drafting) {
	if d.readers == 0 && !d.open {
		d.stop()
		delete(t.drafting, id)
		t.fold.Forget(id)
	}
}

// draft follows the drafts of a run; it returns nil if the tree has too many.
func (t *topic) draft(ctx context.Context, id run.ID) *drafting {
	d := t.drafting[id]
	if d != nil || len(t.drafting) == maxDrafting || t.stopped {
		return d
	}
	ctx, stop := context.WithCancel(ctx)
	d = &drafting{stop: stop}
	t.drafting[id] = d
	t.work.Go(func() {
		err := t.followDeltas(ctx, id)
		for passes(err) && ctx.Err() == nil {
			conn.Pause(ctx, lookAgain)
			err = t.followDeltas(ctx, id)
		}
		if ctx.Err() == nil {
			t.fail(err)
		}
	})
	return d
}

// followDeltas adds the drafts of a run until ctx ends or with an error.
func (t *topic) followDeltas(ctx context.Context, id run.ID) error {
	for d, err := range t.client.Runs.Deltas(ctx, id) {
		if err != nil {
			return err
		}
		lost := d.Run == ""
		if !lost {
			if lost, err = t.delta(ctx, &d); err != nil {
				return err
			}
		}
		if lost {
			if err := t.look(ctx, id); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (t *topic) delta(ctx context.Context, d *messages.Delta) (lost bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() != nil {
		return false, ctx.Err() // released
	}
	all, lost := t.fold.Delta(d)
	return lost, t.addDrafts(all)
}

// look brings the drafts of a run to its live state. It asks again while no node answers: no
// later delta may show that some are missing.
func (t *topic) look(ctx context.Context, id run.ID) error {
	for {
		l, err := t.client.Runs.Live(ctx, id)
		switch {
		case err == nil:
			return t.live(ctx, &l)
		case errors.Is(err, run.ErrUnknownRun), errors.Is(err, client.ErrDenied):
			return nil // the drafts begin with their next piece
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *topic) live(ctx context.Context, l *messages.Live) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err() // released
	}
	return t.addDrafts(t.fold.Live(l))
}
