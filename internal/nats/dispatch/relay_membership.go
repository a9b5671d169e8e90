package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
)

// A relayMembership spreads the partitions over the processes that relay, so that one
// process at a time relays each partition.
//
// Each process that relays sends a heartbeat with its partitions twice a second, and so do
// some spares, which relay nothing yet. All of them compute the same plan from the
// heartbeats, see shares. Each process keeps its partitions up to its share, so that the
// death of one moves no partition between the others; unassigned partitions go to the
// processes with fewer. A process that gains a partition starts when the previous owner's
// heartbeats no longer name it. The plan is not stored, and correctness does not depend on
// it: two relays of one partition do the same work twice, which readers drop and streams
// reject. The plan only makes that rare and short.
//
// All other processes are quiet: they listen, and one of them becomes a spare when there
// are too few. So the number of messages depends on the number of partitions, not on the
// number of processes.
//
// A process that does not receive its own heartbeats, because it was frozen or lost its
// connection, stops before the others miss it, and waits for heartbeats of the others
// before it starts anything.
type relayMembership struct {
	c         *Dispatch
	o         RelayOptions
	id        string
	subj      string
	strangers []string // as Strangers was last called
	// known is called once the partitions relayed here are known.
	known func()
	// start announces the work for a partition, and returns the function that does it.
	start func(partition uint32) (relay func(ctx context.Context, poke <-chan struct{}) error)

	heard   chan heartbeat
	ended   chan relayEnd
	members map[string]*member           // the others
	running map[uint32]*relayedPartition // partitions relayed here, or still ending

	// sent holds the times of the last heartbeats, by number. The last heartbeat that came
	// back determines until when this process is a valid member.
	sent  [heartbeatsKept]time.Time
	n     uint64
	valid atomic.Int64 // Unix nanoseconds, from the monotonic clock by epoch
	epoch time.Time

	settle time.Time // nothing is started before
	gone   bool      // it was silent, and waits for heartbeats
	echoed bool      // it has received its own heartbeat

	quiet   atomic.Bool // it is no spare, and sends nothing
	speaks  time.Time   // it becomes one then; zero: it does not
	answer  *time.Timer
	greeted bool // answer runs
}

const (
	heartbeatEvery = 500 * time.Millisecond
	// leaseDuration is how long a process may continue after its own last heartbeat;
	// heartbeatTTL is when the others take over. The difference allows for clocks that run
	// at different speeds, and for messages in transit.
	leaseDuration = 1500 * time.Millisecond
	heartbeatTTL  = 2500 * time.Millisecond
	// heartbeatDead is when they do that if membership calls it dead, too: a heartbeat is
	// missing.
	heartbeatDead  = heartbeatEvery + heartbeatEvery/2
	heartbeatsKept = 8
	// echoPatience is the time after which a relay that never received its own heartbeat
	// logs it.
	echoPatience = 15 * time.Second
	// lookAround is how long a process listens to the others before it starts.
	lookAround = 250 * time.Millisecond
	// spares is how many processes without a partition send heartbeats, once each partition
	// is on a process of its own.
	spares = 2
	// speakWithin spreads the quiet processes that find too few spares: most of them
	// receive the heartbeats of the first ones before their turn.
	speakWithin = 250 * time.Millisecond
	// answerWithin is how long a greeting waits for an answer, which serves all greetings
	// that arrive meanwhile.
	answerWithin = 25 * time.Millisecond
)

// heartbeat is the sign of a relay process.
type heartbeat struct {
	Relay string   `json:"relay"`
	N     uint64   `json:"n"`
	Holds []uint32 `json:"holds,omitempty"`
	Hello bool     `json:"hello,omitempty"` // please answer
	Bye   bool     `json:"bye,omitempty"`
	Quiet bool     `json:"quiet,omitempty"` // it is alive, and sends nothing more
	// Gossip reports that the process belongs to a gossip.
	Gossip bool `json:"gossip,omitempty"`
}

type member struct {
	last     time.Time
	holds    []uint32
	gossip   bool
	stranger time.Time // since when this process's gossip has called it dead; zero if it does not
}

// relayedPartition is a partition relayed by this process.
type relayedPartition struct {
	cancel context.CancelFunc
	poke   chan struct{} // look through the open runs now
	ending bool
}

type relayEnd struct {
	partition uint32
	err       error
}

// newRelayMembership returns the membership of the processes that do the work of a name.
func (c *Dispatch) newRelayMembership(name string, o *RelayOptions) *relayMembership {
	r := &relayMembership{
		c: c, o: o.complete(c), heard: make(chan heartbeat, 256), ended: make(chan relayEnd),
		members: map[string]*member{}, running: map[uint32]*relayedPartition{}, epoch: time.Now(),
		subj: fmt.Sprintf("%s%s.%d", messages.NodePrefix, name, c.streams.Generation()), known: func() {},
	}
	if r.id = r.o.Incarnation; r.id == "" {
		r.id = rand.Text()[:12]
	}
	return r
}

// leaseValid reports whether this process is a valid relay.
func (r *relayMembership) leaseValid() bool {
	return time.Since(r.epoch)-time.Duration(r.valid.Load()) < leaseDuration
}

// run maintains the membership until ctx ends or a relay fails for good.
func (r *relayMembership) run(ctx context.Context) error {
	defer r.known()
	if err := r.c.streamThere(ctx, streams.EventStream(r.c.streams.Generation(), 0)); err != nil {
		return err
	}
	alone := r.alone(ctx)
	sub, err := r.c.conn.NC.Subscribe(r.subj, r.hear)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection has ended
	r.valid.Store(int64(time.Since(r.epoch)))
	if !alone {
		r.settle = time.Now().Add(lookAround)
	}
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = r.keep(ctx, &work)
	cancel()
	for len(r.running) > 0 {
		delete(r.running, (<-r.ended).partition)
	}
	r.say(heartbeat{Bye: true})
	return err
}

func (r *relayMembership) keep(ctx context.Context, work *sync.WaitGroup) error {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	settled := time.NewTimer(time.Until(r.settle))
	defer settled.Stop()
	r.answer = time.NewTimer(0)
	defer r.answer.Stop()
	<-r.answer.C
	r.say(heartbeat{Hello: true})
	for last := time.Now(); ; {
		r.plan(ctx, work)
		r.speak(settled)
		select {
		case b := <-r.heard:
			r.note(b, settled)
		case <-r.answer.C:
			r.greeted = false
			if !r.quiet.Load() {
				r.say(heartbeat{})
			}
		case <-tick.C:
			if time.Since(last) >= leaseDuration {
				clear(r.members) // it was frozen: their last heartbeats are old
			}
			last = time.Now()
			if r.quiet.Load() {
				continue
			}
			if !r.leaseValid() {
				r.silent(settled)
			}
			if !r.echoed && time.Since(r.epoch) > echoPatience && r.c.conn.NC.IsConnected() {
				return fmt.Errorf("no sign of this relay comes back on %s: these credentials need the permissions to publish and to subscribe to rath.node.>", r.subj)
			}
			r.say(heartbeat{Hello: r.gone})
		case <-settled.C:
			if !r.quiet.Load() { // the processes that have greeted meanwhile have received it
				r.say(heartbeat{})
			}
		case e := <-r.ended:
			delete(r.running, e.partition)
			if e.err != nil {
				return e.err
			}
			r.say(heartbeat{})
		case _, ok := <-r.o.Changed:
			if !ok {
				r.o.Changed = nil
				continue
			}
			r.poke()
		case <-ctx.Done():
			return nil
		}
	}
}

// alone reports whether certainly no other process relays.
func (r *relayMembership) alone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, lookAround)
	defer cancel()
	data, _ := json.Marshal(heartbeat{Relay: r.id, Hello: true})
	_, err := r.c.conn.NC.RequestWithContext(ctx, r.subj, data)
	return errors.Is(err, nats.ErrNoResponders)
}

// say publishes a heartbeat. Others follow a lost one.
func (r *relayMembership) say(b heartbeat) {
	r.n++
	b.Relay, b.N, b.Gossip = r.id, r.n, r.o.Known != nil
	for p := range r.running {
		b.Holds = append(b.Holds, p)
	}
	slices.Sort(b.Holds)
	r.sent[r.n%heartbeatsKept] = time.Now()
	data, err := json.Marshal(b)
	if err == nil {
		err = r.c.conn.NC.Publish(r.subj, data)
	}
	if err != nil {
		r.c.conn.Logger.Debug("a sign of this relay was not sent", "err", err)
	}
}

// hear receives a heartbeat from the connection.
func (r *relayMembership) hear(m *nats.Msg) {
	var b heartbeat
	if json.Unmarshal(m.Data, &b) != nil || b.Relay == "" {
		return
	}
	if m.Reply != "" && !r.quiet.Load() {
		_ = m.Respond(nil) // another process asks whether it is alone
	}
	select {
	case r.heard <- b:
	default: // others follow
	}
}

// note processes a member's heartbeat.
func (r *relayMembership) note(b heartbeat, settled *time.Timer) {
	now := time.Now()
	if b.Relay == r.id {
		if b.N+heartbeatsKept <= r.n || b.N > r.n {
			return
		}
		if !r.leaseValid() {
			r.silent(settled)
		}
		r.echoed = true
		sent := r.sent[b.N%heartbeatsKept]
		r.valid.Store(max(r.valid.Load(), int64(sent.Sub(r.epoch))))
		if r.gone && r.leaseValid() {
			r.gone, r.settle = false, now.Add(lookAround)
			settled.Reset(lookAround)
		}
		return
	}
	if b.Bye || b.Quiet {
		delete(r.members, b.Relay)
		if b.Bye {
			r.poke()
		}
		return
	}
	m := r.members[b.Relay]
	if m == nil {
		m = &member{}
		r.members[b.Relay] = m
	}
	m.last, m.holds, m.gossip = now, b.Holds, b.Gossip
	if b.Hello && !r.greeted && !now.Before(r.settle) && !r.quiet.Load() {
		r.greeted = true
		r.answer.Reset(answerWithin)
	}
}

// speak makes this process a spare, or quiet, by the heartbeats of the others.
func (r *relayMembership) speak(settled *time.Timer) {
	now := time.Now()
	known, before, holders := 0, 0, min(len(r.running), 1)
	for id, m := range r.members {
		switch {
		case len(m.holds) > 0:
			holders++
		case id < r.id:
			known, before = known+1, before+1
		default:
			known++
		}
	}
	wanted := max(int(r.c.streams.Partitions())-holders, 0) + spares
	switch {
	case !r.quiet.Load():
		if len(r.running) == 0 && before >= wanted && !r.gone && !now.Before(r.settle) {
			r.say(heartbeat{Quiet: true})
			r.quiet.Store(true)
			r.speaks = time.Time{}
		}
	case known >= wanted:
		r.speaks = time.Time{}
	case r.speaks.IsZero():
		d := mrand.N(speakWithin)
		r.speaks = now.Add(d)
		settled.Reset(d)
	case !now.Before(r.speaks):
		// Like a process that was silent, it first waits for heartbeats of the others.
		r.quiet.Store(false)
		r.gone = true
		r.say(heartbeat{Hello: true})
	}
}

// silent records that this process has not received its own heartbeat for too long: the
// others have taken over, or will.
func (r *relayMembership) silent(settled *time.Timer) {
	if r.gone {
		return
	}
	r.gone = true
	settled.Stop()
	clear(r.members) // their last heartbeats are old
	if len(r.running) > 0 {
		r.c.conn.Logger.Warn("this relay was silent for too long and gives up its partitions", "generation", r.c.streams.Generation())
	}
}

// plan ends and begins relays so that this process does its part.
func (r *relayMembership) plan(ctx context.Context, work *sync.WaitGroup) {
	now := time.Now()
	for id, m := range r.members {
		if silence := now.Sub(m.last); silence >= heartbeatTTL || silence >= heartbeatDead && r.dead(id) {
			delete(r.members, id)
			r.c.conn.Logger.Info("a relay is not heard any more", "relay", id)
			r.poke()
		}
	}
	r.meetStrangers(now)
	holds := map[string][]uint32{}
	if !r.quiet.Load() {
		holds[r.id] = slices.Collect(maps.Keys(r.running))
	}
	for id, m := range r.members {
		holds[id] = m.holds
	}
	owners := make([]string, r.c.streams.Partitions())
	if len(holds) > 0 { // otherwise it is quiet, and has heard of no other
		owners = shares(r.c.streams.Partitions(), holds)
	}
	for p := range r.c.streams.Partitions() {
		mine := !r.gone && r.leaseValid() && owners[p] == r.id
		d := r.running[p]
		switch {
		case d != nil && !mine && !d.ending:
			d.ending = true
			d.cancel()
		case d == nil && mine && !now.Before(r.settle) && !r.held(p):
			r.begin(ctx, work, p)
		}
	}
	if !now.Before(r.settle) {
		r.known()
	}
}

// shares returns the process that is to relay each partition, given the partitions that
// each relays now. The shares differ by one at most. Each relay keeps its partitions, the
// lower numbers first if they exceed its share; unassigned ones go to the processes with
// the fewest, in the order of their names. If two relays have the same partition, the first
// by name keeps it.
func shares(partitions uint32, holds map[string][]uint32) []string {
	owners := make([]string, partitions)
	names := slices.Sorted(maps.Keys(holds))
	have := map[string]int{}
	for _, id := range names {
		for _, p := range holds[id] {
			if p < partitions && owners[p] == "" {
				owners[p] = id
				have[id]++
			}
		}
	}
	// The processes with the most partitions get the larger shares.
	slices.SortStableFunc(names, func(a, b string) int { return have[b] - have[a] })
	room := map[string]int{}
	for i, id := range names {
		room[id] = int(partitions) / len(names)
		if i < int(partitions)%len(names) {
			room[id]++
		}
	}
	for p, id := range owners {
		if id != "" && room[id] == 0 {
			owners[p] = ""
		} else if id != "" {
			room[id]--
		}
	}
	slices.Sort(names)
	for p, id := range owners {
		if id == "" {
			owners[p] = slices.MaxFunc(names, func(a, b string) int { return room[a] - room[b] })
			room[owners[p]]--
		}
	}
	return owners
}

// dead reports whether membership considers another relay dead. A wrong verdict is
// corrected by that relay's next heartbeat.
func (r *relayMembership) dead(id string) bool {
	if r.o.Known == nil {
		return false
	}
	alive, known := r.o.Known(id)
	return known && !alive
}

// held reports whether another process still relays a partition.
func (r *relayMembership) held(p uint32) bool {
	for _, m := range r.members {
		if slices.Contains(m.holds, p) {
			return true
		}
	}
	return false
}

func (r *relayMembership) begin(ctx context.Context, work *sync.WaitGroup, p uint32) {
	ctx, cancel := context.WithCancel(ctx)
	d := &relayedPartition{cancel: cancel, poke: make(chan struct{}, 1)}
	r.running[p] = d
	r.say(heartbeat{})
	relay := r.start(p)
	work.Go(func() {
		defer cancel()
		r.ended <- relayEnd{p, relay(ctx, d.poke)}
	})
}

// poke rechecks the open runs of all partitions relayed here.
func (r *relayMembership) poke() {
	for _, d := range r.running {
		select {
		case d.poke <- struct{}{}:
		default: // it is about to
		}
	}
}
