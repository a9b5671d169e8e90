//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/load"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// apart is a generation of event streams that no node works on.
const apart = streams.DefaultGeneration + 1

const (
	// benchSessions are as many as are written at once, and logs of a round.
	benchSessions = 64
	// benchSteps are a run's, and the commits of a log of a round.
	benchSteps = 20
	// benchGroups of rounds are measured, each after a load of the fleet.
	benchGroups, benchRounds = 3, 7
)

// benchCommits compares the commits of 64 writers of the log, and of 64 sessions at work,
// with bare publishes by 64 writers: the same bytes with the same compare-and-set to the
// same streams, see pair. A single round is unreliable on a machine with other work, so
// there are many short ones of both in turns. The figure is the median of their ratios,
// except for the first round, which warms up.
func benchCommits(b *testing.B, t *table) {
	a := newArena(b, 3, 3, benchSessions, 0)
	o := load.Options{Workflow: "steps", Tasks: benchSessions, InFlight: benchSessions, Task: number(benchSteps)}
	a.run(o) // warm
	before := a.ends(streams.DefaultGeneration)
	a.run(o)
	size := sizeOf(a.since(streams.DefaultGeneration, before))
	p := a.pair(size)
	p.round(b)
	apartBefore := a.ends(apart)
	var rounds []round
	var fleet, fleetX []float64
	var uses []load.Use
	for range benchGroups {
		before := a.ends(streams.DefaultGeneration)
		o.Tasks, o.Processes = 2*benchSessions, a.processes()
		r := a.run(o)
		uses = r.CPU
		n := 0
		for i, end := range a.ends(streams.DefaultGeneration) {
			n += int(end - before[i])
		}
		if want := o.Tasks * (benchSteps + 2); n < want {
			b.Fatalf("%d commits, want at least %d", n, want)
		}
		a.rest()
		var group []round
		for range benchRounds {
			group = append(group, p.round(b))
		}
		rounds = append(rounds, group...)
		fleet = append(fleet, float64(n)/r.Elapsed.Seconds())
		fleetX = append(fleetX, fleet[len(fleet)-1]/middle(group, round.bareRate))
	}
	p.check(a.since(apart, apartBefore), len(rounds))
	x := each(rounds, round.ratio)
	at := func(part int) float64 { return x[(len(x)-1)*part/4] }
	t.note("bare publishes, R3", fmt.Sprintf("%.0f/s, %d at once, %d bytes", middle(rounds, round.bareRate), benchSessions, size))
	t.bar(b, at(2) >= 0.9, "appends to the log", fmt.Sprintf("%.0f/s, %.2f x bare", middle(rounds, round.ownRate), at(2)), ">= 0.9x")
	t.note("", fmt.Sprintf("%d rounds %.2f to %.2f, half %.2f to %.2f", len(x), at(0), at(4), at(1), at(3)))
	t.note("", fmt.Sprintf("cpu of the writers: %.0f us, bare %.0f us", middle(rounds, round.ownCPU), middle(rounds, round.bareCPU)))
	slices.Sort(fleet)
	slices.Sort(fleetX)
	t.bar(b, fleetX[benchGroups/2] >= 0.7, "64 sessions, 3 nodes", fmt.Sprintf("%.0f commits/s, %.2f x bare", fleet[benchGroups/2], fleetX[benchGroups/2]), ">= 0.7x")
	t.note("", cpu(uses)+", machine "+busyness())
	b.ReportMetric(at(2), "x-bare-log")
	b.ReportMetric(fleetX[benchGroups/2], "x-bare-fleet")
}

// sizeOf is the mean size of the messages of logs.
func sizeOf(logs map[string][][]byte) int {
	n, size := 0, 0
	for _, l := range logs {
		for _, raw := range l {
			n, size = n+1, size+len(raw)
		}
	}
	return size / max(n, 1)
}

// effort is the time of the logs of one side of a round.
type effort struct{ span, cpu time.Duration }

// round is one round of the log's writers and of the bare program's.
type round struct{ own, bare effort }

const commitsOfRound = benchSessions * benchSteps

func (r round) ratio() float64    { return r.bare.span.Seconds() / r.own.span.Seconds() }
func (r round) ownRate() float64  { return commitsOfRound / r.own.span.Seconds() }
func (r round) bareRate() float64 { return commitsOfRound / r.bare.span.Seconds() }
func (r round) ownCPU() float64   { return r.own.cpu.Seconds() * 1e6 / commitsOfRound }
func (r round) bareCPU() float64  { return r.bare.cpu.Seconds() * 1e6 / commitsOfRound }

// each returns a figure of all rounds, the lowest first.
func each(rounds []round, figure func(round) float64) []float64 {
	var out []float64
	for _, r := range rounds {
		out = append(out, figure(r))
	}
	slices.Sort(out)
	return out
}

func middle(rounds []round, figure func(round) float64) float64 {
	return each(rounds, figure)[len(rounds)/2]
}

// pair holds the two writers, which alternate and go first in every other round: the log
// of a node, and a bare program that publishes with the NATS client's JetStream. Both
// have a connection with a node's permissions to the same server. They write the same
// events to the same streams, equally many logs to each, under subjects of the same form
// and length. The bare program's bytes are encoded in advance, since encoding and hashing
// are part of the cost of a commit.
type pair struct {
	a     *arena
	own   *api.Conn
	log   commitlog.Log
	bare  jetstream.JetStream
	event session.Event
	made  int // ids
	turn  int
}

// pair connects both sides of a comparison. Their commits have about the given number of
// bytes.
func (a *arena) pair(bytes int) *pair {
	a.b.Helper()
	url, _, _ := strings.Cut(a.f.URLs(0), ",")
	user, password := a.f.NodeLogin()
	p := &pair{a: a}
	var err error
	p.own, err = api.Connect(a.b.Context(), &streams.Options{
		Options: conn.Options{URL: url, User: user, Password: password, Inbox: conn.NodeInbox, Name: "bench log"}, Replicas: len(a.f.Servers()),
		Generation: apart,
		Probe: func(context.Context) ([]streams.SyncState, error) {
			return []streams.SyncState{{Server: "all", Always: true}}, nil // the nodes have asked them
		},
	})
	a.must(err)
	a.b.Cleanup(func() { a.check(p.own.Conn.Close()) })
	a.must(p.own.Streams.Provision(a.b.Context()))
	p.log = p.own.Logs.Log()
	ctx, stop := context.WithCancel(a.b.Context())
	var watching sync.WaitGroup
	watching.Go(func() { a.check(p.own.Streams.Capacity.WatchRoom(ctx)) }) // as nodes do
	a.b.Cleanup(func() { stop(); watching.Wait() })
	nc, err := nats.Connect(url, nats.UserInfo(user, password), nats.CustomInboxPrefix(conn.NodeInbox), nats.Name("bench bare"))
	a.must(err)
	a.b.Cleanup(nc.Close)
	p.bare, err = jetstream.New(nc)
	a.must(err)
	const envelope = 330 // the size of a commit of one short chunk
	p.event = session.ChunkEvent(session.UserText(strings.Repeat("x", max(bytes-envelope, 1))))
	p.event.Time = time.Now()
	return p
}

// keys makes the sessions of one side of a round, as many in each partition.
func (p *pair) keys(side string) []session.Key {
	var out []session.Key
	for i := range benchSessions {
		for {
			p.made++
			id := p.own.Logs.Minter().ID(fmt.Sprintf("%s%08d", side, p.made))
			if _, at, _ := id.Locate(); at == uint32(i%streams.DefaultPartitions) {
				out = append(out, session.Key{Tenant: session.DefaultTenant, ID: id})
				break
			}
		}
	}
	return out
}

// next is the commit of a log after a position.
func (p *pair) next(k session.Key, at commitlog.Position) commitlog.Commit {
	return commitlog.Commit{Key: k, Root: k.ID, Seq: at.Seq + 1, Epoch: 1, Prev: at.Hash, Events: []session.Event{p.event}}
}

// round lets both write.
func (p *pair) round(b *testing.B) round {
	b.Helper()
	own, bare := p.keys(sideOwn), p.keys(sideBare)
	var bytes [benchSessions][][]byte
	for i, k := range bare {
		var at commitlog.Position
		for range benchSteps {
			raw, err := commitlog.Encode(p.next(k, at))
			p.a.must(err)
			bytes[i] = append(bytes[i], raw)
			at = commitlog.Position{Seq: at.Seq + 1, Hash: commitlog.HashOf(raw)}
		}
	}
	var r round
	sides := []func(){
		func() { r.own = p.writers(func(i int) error { return p.commit(own[i]) }) },
		func() { r.bare = p.writers(func(i int) error { return p.publish(bare[i], bytes[i]) }) },
	}
	if p.turn++; p.turn%2 == 0 {
		slices.Reverse(sides)
	}
	for _, write := range sides {
		write()
	}
	return r
}

// Each id begins with the side that made it.
const sideOwn, sideBare = "o", "b"

// writers lets all logs of one side be written at once.
func (p *pair) writers(write func(i int) error) effort {
	p.a.b.Helper()
	before := cpuTime(p.a.b)
	e := effort{span: together(benchSessions, benchSessions, func(i int) { p.a.check(write(i)) })}
	e.cpu = cpuTime(p.a.b) - before
	return e
}

// cpuTime returns the CPU time used so far by this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// commit writes a log as a node does.
func (p *pair) commit(k session.Key) error {
	var at commitlog.Position
	for range benchSteps {
		var err error
		if at, err = p.log.Append(p.a.b.Context(), at, p.next(k, at)); err != nil {
			return err
		}
	}
	return nil
}

// publish writes one as a bare program does.
func (p *pair) publish(k session.Key, log [][]byte) error {
	_, subject, err := eventlog.EventSubject(k)
	if err != nil {
		return err
	}
	ctx := p.a.b.Context()
	var last uint64
	for _, raw := range log {
		m := &nats.Msg{Subject: subject, Data: raw}
		ack, err := p.bare.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(last))
		// Replicated streams reject some publishes without a reason and without storing them.
		for tries := 0; err != nil && falseConflict(err) && tries < 100; tries++ {
			ack, err = p.bare.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(last))
		}
		if err != nil {
			return err
		}
		last = ack.Sequence
	}
	return nil
}

// check demands that both wrote the same: as many commits of as many bytes.
func (p *pair) check(logs map[string][][]byte, rounds int) {
	p.a.b.Helper()
	count, bytes := map[string]int{}, map[string]int{}
	for subject, l := range logs {
		id := subject[strings.LastIndexByte(subject, '.')+1:]
		side := id[:1]
		for _, raw := range l {
			count[side]++
			bytes[side] += len(raw)
		}
	}
	if want := rounds * commitsOfRound; len(count) != 2 || count[sideOwn] != want || count[sideBare] != want || bytes[sideOwn] != bytes[sideBare] {
		p.a.b.Errorf("the two did not write the same: messages %v of %d each, bytes %v", count, want, bytes)
	}
}

// falseConflict reports whether a stream rejected a publish because another one to its
// subject is, or was, in flight.
func falseConflict(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == 10164
}

// rest waits until the nodes have published all lineage.
func (a *arena) rest() {
	a.b.Helper()
	var last uint64
	a.until("the relays have nothing to do", time.Minute, func() bool {
		s, err := a.js.Stream(a.b.Context(), streams.StreamLineage)
		a.must(err)
		at := s.CachedInfo().State.LastSeq
		if at == last {
			return true
		}
		last = at
		time.Sleep(300 * time.Millisecond) // a relay that has work publishes within
		return false
	})
}

// ends are the last sequences of the event streams.
func (a *arena) ends(generation uint32) []uint64 {
	a.b.Helper()
	var out []uint64
	for _, s := range a.eventStreams(generation) {
		out = append(out, s.CachedInfo().State.LastSeq)
	}
	return out
}

// since reads the later commits, by session.
func (a *arena) since(generation uint32, after []uint64) map[string][][]byte {
	a.b.Helper()
	out := map[string][][]byte{}
	for i, s := range a.eventStreams(generation) {
		c, err := s.OrderedConsumer(a.b.Context(), jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after[i] + 1,
		})
		a.must(err)
		at, last := after[i], s.CachedInfo().State.LastSeq
		if at == last {
			continue
		}
		all, err := c.Messages()
		a.must(err)
		for at < last {
			m, err := all.Next(jetstream.NextMaxWait(30 * time.Second))
			a.must(err)
			meta, err := m.Metadata()
			a.must(err)
			at = meta.Sequence.Stream
			out[m.Subject()] = append(out[m.Subject()], m.Data())
		}
		all.Stop()
	}
	return out
}
