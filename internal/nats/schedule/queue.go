package schedule

import (
	"container/list"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
)

// The classes of workflows, as the registry names them: within a pool interactive runs
// precede batch ones.
const (
	classes   = 2
	batchRank = 1
)

type groupKey struct {
	tenant             session.Tenant
	workflow, revision string
	batch              bool // by their tasks
}

type queueKey struct {
	pool string
	rank int
}

// flight is a dispatch in progress.
type flight struct {
	item *item // nil once its answer no longer matters
	node *node
	late alarm
	// clearing is set once the node answered Clearing: the only further effect is the run's
	// claim, which the log shows.
	clearing bool
}

// item is a run to be dispatched.
type item struct {
	task    journal.Task
	group   *group
	derived bool // follows from a run that has begun: precedes fresh ones
	// priority is the task's, and batch its class.
	priority int64
	batch    bool
	prefer   string    // the incarnation where the run was, "" for none
	since    time.Time // when it began to wait

	session *openSession // whose run it is; nil for the beginning of a branch
	branch  *followUp    // nil for a run of this partition

	queue  *queue // the queue it waits in, or nil
	place  *list.Element
	flight *flight // of the last unanswered dispatch
	tries  backoff
	rest   *alarm // until it is queued again
	not    map[string]bool
}

func (it *item) tenant() session.Tenant { return it.task.Session.Tenant }

// avoid excludes a node until the item has rested.
func (it *item) avoid(n *node) {
	if it.not == nil {
		it.not = map[string]bool{}
	}
	it.not[n.Incarnation] = true
}

// group holds the offers and places that items share: a tenant's runs of a workflow that
// need a revision, "" for any.
type group struct {
	groupKey

	placed bool // whether pool and rank are known, and a node may offer it
	pool   string
	rank   int
	items  map[*item]struct{} // to be dispatched
	asked  bool               // a Place is under way
	again  *alarm             // to ask again
	tries  backoff            // while no node offers it
}

// queue holds the runnable runs of a pool and class. Its tenants take turns, and of one
// tenant the runs that follow from a begun run precede the others.
type queue struct {
	turns *list.List // of *line, the next tenant first
	lines map[session.Tenant]*line
	len   int
}

// line holds a tenant's runs in a queue.
type line struct {
	tenant         session.Tenant
	derived, fresh *list.List // of *item
	turn           *list.Element
}

func newQueue() *queue { return &queue{turns: list.New(), lines: map[session.Tenant]*line{}} }

// add puts an item into its tenant's line: after the items of its priority, or before them
// with first, for an item that was dispatched and comes back.
func (q *queue) add(it *item, first bool) {
	t := it.tenant()
	l := q.lines[t]
	if l == nil {
		l = &line{tenant: t, derived: list.New(), fresh: list.New()}
		q.lines[t] = l
		l.turn = q.turns.PushBack(l)
	}
	of := l.fresh
	if it.derived {
		of = l.derived
	}
	// After all of a higher priority, and of the same one unless it comes back.
	e := of.Back()
	for ; e != nil; e = e.Prev() {
		if p := e.Value.(*item).priority; p > it.priority || p == it.priority && !first {
			break
		}
	}
	if e == nil {
		it.place = of.PushFront(it)
	} else {
		it.place = of.InsertAfter(it, e)
	}
	it.queue = q
	q.len++
}

// remove removes an item. A tenant without further items loses its turn.
func (q *queue) remove(it *item) {
	l := q.lines[it.task.Session.Tenant]
	of := l.fresh
	if it.derived {
		of = l.derived
	}
	of.Remove(it.place)
	it.queue, it.place = nil, nil
	if q.len--; l.derived.Len()+l.fresh.Len() == 0 {
		q.turns.Remove(l.turn)
		delete(q.lines, l.tenant)
	}
}

// lookPast bounds the items of one tenant that are skipped for an item that a node may
// execute.
const lookPast = 16

// first returns the first item in turn for which may is true, of a tenant if one is named,
// nil if there is none. It does not remove the item.
func (q *queue) first(tenant session.Tenant, may func(*item) bool) *item {
	of := func(l *line) *item {
		for _, items := range []*list.List{l.derived, l.fresh} {
			n := 0
			for e := items.Front(); e != nil && n < lookPast; e, n = e.Next(), n+1 {
				if it := e.Value.(*item); may(it) {
					return it
				}
			}
		}
		return nil
	}
	if tenant != "" {
		if l := q.lines[tenant]; l != nil {
			return of(l)
		}
		return nil
	}
	for e := q.turns.Front(); e != nil; e = e.Next() {
		if it := of(e.Value.(*line)); it != nil {
			return it
		}
	}
	return nil
}

// take removes an item and ends its tenant's turn.
func (q *queue) take(it *item) {
	l := q.lines[it.task.Session.Tenant]
	q.turns.MoveToBack(l.turn)
	q.remove(it)
}

// heads yields the tenants in turn, with whether the first item of each is
// derived.
func (q *queue) heads(yield func(t session.Tenant, derived bool) bool) {
	for e := q.turns.Front(); e != nil; e = e.Next() {
		l := e.Value.(*line)
		if !yield(l.tenant, l.derived.Len() > 0) {
			return
		}
	}
}

// ahead returns how many items precede one, if no further items arrive: those before it in
// its tenant's line, and of each other tenant one for each turn until then.
func (q *queue) ahead(it *item) int {
	own := q.lines[it.task.Session.Tenant]
	n := 0
	for _, items := range []*list.List{own.derived, own.fresh} {
		for e := items.Front(); e != nil && e != it.place; e = e.Next() {
			n++
		}
		if it.derived {
			break
		}
	}
	sum, turns := n, n+1 // of those whose turn comes before the tenant's
	for e := q.turns.Front(); e != nil; e = e.Next() {
		l := e.Value.(*line)
		if l == own {
			turns--
			continue
		}
		sum += min(l.derived.Len()+l.fresh.Len(), turns)
	}
	return sum
}

// front returns the first item of a line, nil for an empty one.
func front(items *list.List) *item {
	if e := items.Front(); e != nil {
		return e.Value.(*item)
	}
	return nil
}
