package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Host is a node that executes the runs that relays dispatch to it.
type Host struct {
	// Incarnation shows whether the node is bound to a tenant, see messages.BoundTo.
	Incarnation string
	Pool        string
	// Free returns how many slots are free. Freed yields after some were returned.
	Free  func() int
	Freed <-chan struct{}
	// Take claims a run if a slot is free for it now, and returns when a log holds the
	// result: AnswerCommitted or AnswerQueued. AnswerNotMine means that the node does not
	// offer the workflow. AnswerCrowded and AnswerClearing apply to suspects. The error is
	// run.ErrBusy if no slot is free, and run.ErrShutdown if the node accepts no more runs.
	Take func(ctx context.Context, t journal.Task) (journal.Answer, error)
}

// Subjects between relays and nodes.
const (
	verbDispatch = "dispatch" // to a node: a run, with the other demand for its slots
	verbDemand   = "demand"   // to a node: the demand for its slots
	subjectSlots = messages.NodePrefix + "slots"
	subjectHello = messages.NodePrefix + "hello" // relays ask nodes for their state
)

func grantSubject(generation, partition uint32) string {
	return fmt.Sprintf("%sgrant.%d.%d", messages.NodePrefix, generation, partition)
}

// dispatched is a run in transit from the relay of a partition to a node.
type dispatched struct {
	work                  journal.Work
	generation, partition uint32
	grant                 uint64 // the slot that it takes, if the node granted one
	demand                *schedule.Demand
}

// wireDispatch is that as it travels.
type wireDispatch struct {
	Work       *translate.Work  `json:"work,omitempty"`
	Generation uint32           `json:"generation"`
	Partition  uint32           `json:"partition"`
	Grant      uint64           `json:"grant,omitempty"`
	Demand     *schedule.Demand `json:"demand,omitempty"`
}

// wireDispatched is a node's answer.
type wireDispatched struct {
	wire.Answer
	Free int `json:"free"`
}

// wireGrant reports that a node reserves a slot for a relay, under a number.
type wireGrant struct {
	schedule.NodeState
	Grant uint64        `json:"grant"`
	Head  schedule.Head `json:"head"`
}

const (
	// grantTimeout is how long a granted slot is reserved.
	grantTimeout = 250 * time.Millisecond
	// fullPause is how long no slot is granted after a run found none although one was
	// counted as free.
	fullPause = 10 * time.Millisecond
	// turnsKept bounds the tenants whose turns a node remembers.
	turnsKept = 4096
)

// gateway stands between the relays and the slots of this process. It accepts dispatched
// runs while slots are free, and grants the slots that become free to the relays in turn,
// for the tenant that was served longest ago.
type gateway struct {
	c *Dispatch
	h *Host

	mu       sync.Mutex
	demands  map[partitionKey]*noted
	kept     map[uint64]granted        // by their numbers
	served   map[session.Tenant]uint64 // when a tenant was last served
	turn     uint64
	poke     chan struct{} // a demand has arrived, or a slot is no longer reserved
	full     time.Time     // until when no slot is granted, because one was not there
	stopping bool
}

// granted is a slot reserved for the relay of a partition.
type granted struct {
	partitionKey
	until time.Time
}

type partitionKey struct{ generation, partition uint32 }

// noted is the demand of a partition.
type noted struct {
	heads []schedule.Head
	at    uint64 // of the schedule.Demand
	until time.Time
	turn  uint64 // when the partition was last granted a slot
}

// ServeRuns accepts the runs that relays dispatch to this node, until ctx ends.
func (c *Dispatch) ServeRuns(ctx context.Context, h *Host) error {
	if err := session.ValidID("incarnation", h.Incarnation); err != nil {
		return err
	}
	if err := validPool(h.Pool); err != nil {
		return err
	}
	g := &gateway{
		c: c, h: h, demands: map[partitionKey]*noted{}, kept: map[uint64]granted{}, served: map[session.Tenant]uint64{}, poke: make(chan struct{}, 1),
	}
	// Accepted runs are claimed even after ctx ends: a draining node waits for them.
	service, err := c.conn.Serve(context.WithoutCancel(ctx), messages.NodeSubject(h.Incarnation, verbDispatch), "", g.serve)
	if err != nil {
		return err
	}
	defer func() { _ = service.Stop() }() // a relay without an answer dispatches elsewhere
	demands, err := c.conn.NC.Subscribe(messages.NodeSubject(h.Incarnation, verbDemand), g.hear)
	if err != nil {
		return fmt.Errorf("nats/dispatch: hear demands: %w", err)
	}
	defer func() { _ = demands.Unsubscribe() }() // fails only when the connection has ended
	hello := make(chan struct{}, 1)
	hellos, err := c.conn.NC.Subscribe(helloSubject(h.Incarnation), func(*nats.Msg) { notify(hello) })
	if err != nil {
		return fmt.Errorf("nats/dispatch: hear relays: %w", err)
	}
	defer func() { _ = hellos.Unsubscribe() }()
	c.host.Store(g)
	defer c.host.CompareAndSwap(g, nil)
	defer g.stop()
	tick := time.NewTicker(schedule.NodeEvery)
	defer tick.Stop()
	kept := time.NewTimer(time.Hour)
	defer kept.Stop()
	for g.announce(); ; {
		kept.Reset(g.grant(time.Now()))
		select {
		case <-tick.C:
			g.announce()
		case <-hello:
			g.announce()
		case <-h.Freed:
		case <-g.poke:
		case <-kept.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// notify sends a token to a channel, unless the channel holds one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// stop notifies the relays that this node accepts no more runs.
func (g *gateway) stop() {
	g.mu.Lock()
	g.stopping = true
	g.mu.Unlock()
	g.announce()
}

func (g *gateway) state() schedule.NodeState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return schedule.NodeState{Incarnation: g.h.Incarnation, Pool: g.h.Pool, Free: g.free(), Stopping: g.stopping}
}

func (g *gateway) announce() {
	g.c.tellStanding(nodeStanding{wireGrant: wireGrant{NodeState: g.state()}})
}

// free returns how many slots are free and not reserved for a relay. The caller holds the
// lock.
func (g *gateway) free() int {
	return max(g.h.Free()-len(g.kept), 0)
}

// quiet reports whether a slot is free and no relay waits for one, by the demand stored
// here: then a new task may begin here at once.
func (g *gateway) quiet() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, d := range g.demands {
		if len(d.heads) > 0 && now.Before(d.until) {
			return false
		}
	}
	return !g.stopping && g.free() > 0
}

// serve answers a dispatch that arrived over the servers.
func (g *gateway) serve(ctx context.Context, m *nats.Msg) any {
	var in wireDispatch
	w, err := journal.Work{}, json.Unmarshal(m.Data, &in)
	if err == nil && in.Work == nil {
		err = errors.New("no work in it")
	}
	if err == nil {
		w, err = in.Work.Decoded()
	}
	if err != nil {
		return wireDispatched{Answer: wire.AnswerOf(fmt.Errorf("%w: dispatch: %w", run.ErrMalformed, err)), Free: -1}
	}
	a, free, err := g.take(ctx, dispatched{work: w, generation: in.Generation, partition: in.Partition, grant: in.Grant, demand: in.Demand})
	out := wireDispatched{Free: free}
	if out.Answer = wire.AnswerOf(err); err == nil {
		out.Note, out.Done = string(a), a != journal.AnswerNotMine
	}
	return out
}

// take claims a run, if a slot is free for it.
func (g *gateway) take(ctx context.Context, d dispatched) (a journal.Answer, free int, err error) {
	k := partitionKey{d.generation, d.partition}
	g.mu.Lock()
	if d.demand != nil {
		g.note(k, d.demand)
	}
	kept := g.unkeep(d.grant)
	switch {
	case g.stopping:
		err = run.ErrShutdown
	case !kept && g.free() <= 0:
		err = run.ErrBusy
	}
	g.mu.Unlock()
	if err == nil && d.work.Task == nil {
		err = fmt.Errorf("dispatch without a task: %w", run.ErrMalformed)
	}
	if err == nil {
		a, err = g.h.Take(ctx, *d.work.Task)
	}
	if errors.Is(err, run.ErrShutdown) {
		g.stop() // otherwise it would grant slots that it does not give
	} else if kept && (err != nil || a == journal.AnswerNotMine || a == journal.AnswerCrowded) {
		notify(g.poke) // its slot is free again
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if errors.Is(err, run.ErrBusy) {
		g.full = time.Now().Add(fullPause)
		return a, 0, err
	}
	return a, g.free(), err
}

// hear stores the demand of a relay.
func (g *gateway) hear(m *nats.Msg) {
	var in wireDispatch
	if json.Unmarshal(m.Data, &in) != nil || in.Demand == nil {
		return
	}
	g.mu.Lock()
	k := partitionKey{in.Generation, in.Partition}
	g.unkeep(in.Grant)
	g.note(k, in.Demand)
	g.mu.Unlock()
	notify(g.poke)
}

// note stores the demand of a relay, unless the stored demand is newer: otherwise a tenant
// that has just arrived would be forgotten until the relay's next report. The caller holds
// the lock.
func (g *gateway) note(k partitionKey, d *schedule.Demand) {
	n, now := g.demands[k], time.Now()
	switch {
	case n == nil && len(d.Heads) == 0:
		return
	case n == nil:
		n = &noted{}
		g.demands[k] = n
	case d.At < n.at && now.Before(n.until):
		return
	}
	n.heads, n.at, n.until = d.Heads, d.At, now.Add(schedule.DemandTTL)
}

// unkeep releases the slot of a grant, if it is still reserved: another relay may get it
// now. The caller holds the lock.
func (g *gateway) unkeep(grant uint64) bool {
	_, kept := g.kept[grant]
	delete(g.kept, grant)
	return kept
}

// grant grants free slots to relays, and returns the time until the next check.
func (g *gateway) grant(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := now.Add(time.Hour)
	for n, k := range g.kept {
		switch {
		case !now.Before(k.until):
			delete(g.kept, n)
			delete(g.demands, k.partitionKey) // a relay that does not answer has no demand
		case k.until.Before(next):
			next = k.until
		}
	}
	if now.Before(g.full) {
		if g.full.Before(next) {
			next = g.full
		}
		return max(time.Until(next), 0)
	}
	for !g.stopping && g.free() > 0 {
		k, head, ok := g.choose(now)
		if !ok {
			break
		}
		g.turn++
		if len(g.served) >= turnsKept {
			clear(g.served)
		}
		g.served[head.Tenant], g.demands[k].turn = g.turn, g.turn
		until := now.Add(grantTimeout)
		g.kept[g.turn] = granted{k, until}
		if until.Before(next) {
			next = until
		}
		g.c.tellStanding(nodeStanding{Generation: k.generation, Partition: k.partition, wireGrant: wireGrant{
			NodeState: schedule.NodeState{Incarnation: g.h.Incarnation, Pool: g.h.Pool, Free: g.free()}, Grant: g.turn, Head: head,
		}})
	}
	return max(time.Until(next), 0)
}

// choose returns the head that gets the next free slot. Interactive workflows precede batch
// ones; then comes the tenant that was served longest ago; of its runs those that follow
// from a begun one come first; of several partitions the one that was granted a slot
// longest ago wins. The caller holds the lock.
func (g *gateway) choose(now time.Time) (k partitionKey, head schedule.Head, ok bool) {
	for at, d := range g.demands {
		if !now.Before(d.until) {
			delete(g.demands, at)
			continue
		}
		for _, h := range d.heads {
			if !ok || g.before(h, d, head, g.demands[k]) {
				k, head, ok = at, h, true
			}
		}
	}
	return k, head, ok
}

func (g *gateway) before(a schedule.Head, of *noted, b schedule.Head, than *noted) bool {
	switch x, y := g.served[a.Tenant], g.served[b.Tenant]; {
	case a.Batch != b.Batch:
		return b.Batch
	case x != y:
		return x < y
	case a.Derived != b.Derived:
		return a.Derived
	}
	return of.turn < than.turn
}

// tell publishes a hint: a lost hint is sent again.
func (c *Dispatch) tell(subject string, v any) {
	data, err := json.Marshal(v)
	if err == nil {
		err = c.conn.NC.Publish(subject, data)
	}
	if err != nil {
		c.conn.Logger.Debug("a message between relays and nodes was not sent", "subject", subject, "err", err)
	}
}

// rollCall asks all nodes for their state.
func (c *Dispatch) rollCall(ctx context.Context) {
	err := c.conn.NC.Publish(subjectHello, nil)
	if err == nil {
		err = c.callBound(ctx)
	}
	if err != nil {
		c.conn.Logger.Debug("not all nodes were asked how they stand", "err", err)
	}
}

func (c *Dispatch) tellDemand(incarnation string, generation, partition uint32, grant uint64, d *schedule.Demand) {
	c.tell(messages.NodeSubject(incarnation, verbDemand), wireDispatch{Generation: generation, Partition: partition, Grant: grant, Demand: d})
}

// dispatch sends a run to a node, and returns the outcome.
func (c *Dispatch) dispatch(ctx context.Context, incarnation string, d dispatched) schedule.Outcome {
	var a journal.Answer
	var free int
	var err error
	if g := c.host.Load(); g != nil && g.h.Incarnation == incarnation {
		a, free, err = g.take(ctx, d)
	} else {
		a, free, err = c.sendDispatch(ctx, incarnation, d)
	}
	o := schedule.Outcome{Free: free}
	switch {
	case err == nil && a == journal.AnswerNotMine:
		o.Result = schedule.NotOffered
	case err == nil && a == journal.AnswerCrowded:
		o.Result = schedule.Crowded
	case err == nil && a == journal.AnswerClearing:
		o.Result = schedule.Clearing
	case err == nil:
		o.Result = schedule.Settled
	case errors.Is(err, run.ErrBusy):
		o.Result = schedule.Busy
	case errors.Is(err, run.ErrShutdown), errors.Is(err, nats.ErrNoResponders):
		o.Result = schedule.Gone
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, conn.ErrCut):
		o.Result = schedule.Silent
	default:
		o.Result = schedule.Failed
	}
	if err != nil && o.Result != schedule.Busy {
		c.conn.Logger.Debug("a dispatched run was not taken", "run", string(d.work.Task.ID), "node", incarnation, "err", err)
	}
	return o
}

func (c *Dispatch) sendDispatch(ctx context.Context, incarnation string, d dispatched) (a journal.Answer, free int, err error) {
	w := translate.WorkOf(d.work)
	data, err := json.Marshal(wireDispatch{Work: &w, Generation: d.generation, Partition: d.partition, Grant: d.grant, Demand: d.demand})
	if err != nil {
		return "", -1, err
	}
	reply, err := c.conn.Await(ctx, messages.NodeSubject(incarnation, verbDispatch), data)
	if err != nil {
		return "", -1, fmt.Errorf("nats/dispatch: dispatch to %s: %w", incarnation, err)
	}
	var out wireDispatched
	if err := json.Unmarshal(reply.Data, &out); err != nil {
		return "", -1, fmt.Errorf("nats/dispatch: dispatch to %s: %w", incarnation, err)
	}
	return journal.Answer(out.Note), out.Free, out.Err()
}

// nodeReport is a node's report of its state, or of a slot that it reserves for this relay.
type nodeReport struct {
	state schedule.NodeState
	grant uint64 // zero for none
	head  schedule.Head
}

// reportsAhead bounds the reports of nodes that the pump has not processed.
const reportsAhead = 1024
