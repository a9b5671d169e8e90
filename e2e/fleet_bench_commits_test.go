//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/load"
	"github.com/rathcluster/rath/natsbus"
	"github.com/rathcluster/rath/session"
)

// apart is a generation of event streams that no node works on.
const apart = natsbus.DefaultGeneration + 1

// benchCommits compares the commits of 64 sessions at work, and of 64 writers of
// the log alone, with bare publishes of the same bytes with the same
// compare-and-set to as many streams of the same servers, in turns.
func benchCommits(b *testing.B, t *table) {
	const sessions, steps, rounds = 64, 20, 3
	a := newArena(b, 3, 3, sessions, 0)
	conn := a.asNode()
	o := load.Options{Workflow: "steps", Tasks: sessions, InFlight: sessions, Task: number(steps)}
	a.run(o) // warm
	var fleet, own, bare time.Duration
	commits, bytes := 0, 0
	var uses []load.Use
	for range rounds {
		before := a.ends(natsbus.DefaultGeneration)
		o.Tasks, o.Processes = 2*sessions, a.processes()
		r := a.run(o)
		uses = r.CPU
		fleet += r.Elapsed
		logs := a.since(natsbus.DefaultGeneration, before)
		n, size := 0, 0
		for _, l := range logs {
			n += len(l)
			for _, raw := range l {
				size += len(raw)
			}
		}
		if want := o.Tasks * (steps + 2); n < want {
			b.Fatalf("%d commits, want at least %d", n, want)
		}
		a.rest()
		before = a.ends(apart)
		own += a.appends(conn, o.Tasks, n/o.Tasks, size/n, sessions)
		logs = a.since(apart, before)
		bare += a.bare(logs, sessions)
		commits += o.Tasks * (n / o.Tasks)
		bytes = size / n
	}
	per := func(d time.Duration) float64 { return float64(commits) / d.Seconds() }
	t.note("bare publishes, R3", fmt.Sprintf("%.0f/s, %d at once, %d bytes", per(bare), sessions, bytes))
	t.bar(b, per(own) >= 0.9*per(bare), "appends to the log", fmt.Sprintf("%.0f/s, %.2f x bare", per(own), per(own)/per(bare)), ">= 0.9x")
	t.note("64 sessions, 3 nodes", fmt.Sprintf("%.0f commits/s, %.2f x bare", per(fleet), per(fleet)/per(bare)))
	t.note("", cpu(uses)+", machine "+busyness())
	b.ReportMetric(per(own)/per(bare), "x-bare-log")
	b.ReportMetric(per(fleet)/per(bare), "x-bare-fleet")
}

// asNode connects with the rights of a node, to streams of its own.
func (a *arena) asNode() *natsbus.Conn {
	a.b.Helper()
	user, password := a.f.NodeLogin()
	c, err := natsbus.Connect(a.b.Context(), &natsbus.Options{
		URL: a.f.URLs(0), User: user, Password: password, Inbox: natsbus.NodeInbox, Replicas: len(a.f.Servers()), Name: "bench log",
		Generation: apart,
		Probe: func(context.Context) ([]natsbus.SyncState, error) {
			return []natsbus.SyncState{{Server: "all", Always: true}}, nil // the nodes have asked them
		},
	})
	a.must(err)
	a.b.Cleanup(func() { a.check(c.Close()) })
	a.must(c.Provision(a.b.Context()))
	return c
}

// rest waits until the nodes have told the lineage of everything.
func (a *arena) rest() {
	a.b.Helper()
	var last uint64
	a.until("the relays have nothing to do", time.Minute, func() bool {
		s, err := a.js.Stream(a.b.Context(), natsbus.StreamLineage)
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

// since reads what was committed after that, by session.
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

// together lets so many writers write n logs, each by one writer, and returns
// how long that took.
func together(n, writers int, write func(i int)) time.Duration {
	next := make(chan int)
	var wg sync.WaitGroup
	began := time.Now()
	for range writers {
		wg.Go(func() {
			for i := range next {
				write(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return time.Since(began)
}

// bare publishes logs to streams like those of the fleet.
func (a *arena) bare(logs map[string][][]byte, writers int) time.Duration {
	a.b.Helper()
	ctx := a.b.Context()
	for p, s := range a.eventStreams(apart) {
		cfg := s.CachedInfo().Config
		cfg.Name, cfg.Subjects, cfg.DenyDelete, cfg.Description = fmt.Sprint("BARE_", p), []string{fmt.Sprintf("bare.%d.>", p)}, false, ""
		_, err := a.js.CreateStream(ctx, cfg)
		a.must(err)
		defer func() { a.check(a.js.DeleteStream(context.WithoutCancel(ctx), cfg.Name)) }()
	}
	var all [][][]byte
	for _, l := range logs {
		all = append(all, l)
	}
	return together(len(all), writers, func(i int) {
		var last uint64
		for _, raw := range all[i] {
			m := &nats.Msg{Subject: fmt.Sprintf("bare.%d.s%d", i%natsbus.DefaultPartitions, i), Data: raw}
			ack, err := a.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(last))
			// Replicated streams refuse some publishes without a reason; nothing
			// was stored then.
			for tries := 0; err != nil && falseConflict(err) && tries < 100; tries++ {
				ack, err = a.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(last))
			}
			if err != nil {
				a.b.Error(err)
				return
			}
			last = ack.Sequence
		}
	})
}

// falseConflict reports whether a stream refuses a publish because another one
// to its subject is in flight, or was.
func falseConflict(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == 10164
}

// appends writes n logs of so many commits, of about so many bytes each, as a
// node does.
func (a *arena) appends(c *natsbus.Conn, n, commits, bytes, writers int) time.Duration {
	a.b.Helper()
	ctx, l := a.b.Context(), c.Log()
	const envelope = 330 // what a commit of one short chunk takes
	event := session.ChunkEvent(session.UserText(strings.Repeat("x", max(bytes-envelope, 1))))
	event.Time = time.Now()
	stamp := time.Now().UnixNano()
	return together(n, writers, func(i int) {
		k := session.Key{Tenant: session.DefaultTenant, ID: c.Minter().Mint(fmt.Sprintf("s%d-%d", stamp, i))}
		var at session.Position
		for range commits {
			next, err := l.Append(ctx, at, session.Commit{Key: k, Root: k.ID, Seq: at.Seq + 1, Epoch: 1, Prev: at.Hash, Events: []session.Event{event}})
			if err != nil {
				a.b.Error(err)
				return
			}
			at = next
		}
	})
}
