package api_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// publish stores records as relays do.
func publish(t *testing.T, js jetstream.JetStream, records ...messages.Record) {
	t.Helper()
	for i := range records {
		one := records[i : i+1]
		data, err := lineage.EncodeStored(one)
		if err == nil {
			_, err = js.Publish(t.Context(), lineage.StoredSubject(one), data)
		}
		must.Do(t, err)
	}
}

// TestHistoryFollowsItsStream limits LINEAGE and publishes more than it holds: no answer
// includes the records it has dropped.
func TestHistoryFollowsItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		js := n.operator()
		s := must.Get(js.Stream(t.Context(), streams.StreamLineage))(t)
		cfg := s.CachedInfo().Config
		cfg.MaxBytes = 256 << 10
		must.Get(js.UpdateStream(t.Context(), cfg))(t)
		const all = 2000
		for i := range all {
			id := n.conn.Logs.HomeOf("default", run.ID(fmt.Sprint("r", i)))
			publish(t, js, messages.Record{
				Schema: lineage.Schema, Tenant: "default", Session: id, Root: id, Commit: 1, K: 1, Epoch: 1, Hash: "h", Kind: messages.KindOpened,
				Seq: uint64(i + 1), Time: int64(i), Via: session.OpenLeaf, Summary: "session opens",
			})
		}
		s = must.Get(js.Stream(t.Context(), streams.StreamLineage))(t)
		held := int(s.CachedInfo().State.Msgs)
		if held == 0 || held >= all {
			t.Fatalf("LINEAGE holds %d of %d records: the test shows nothing", held, all)
		}
		roots := must.Get(c.Sessions.Roots(t.Context(), 0))(t)
		if len(roots) != held {
			t.Errorf("%d sessions are told, LINEAGE holds %d", len(roots), held)
		}
		n.stop()
	})
}

// past makes up the lineage of a tenant: sessions with one run or several after each other,
// some quarantined, some runs that last the whole time, some that have not ended.
type past struct {
	rnd     *rand.Rand
	mint    commitlog.IDGenerator
	tenant  session.Tenant
	now     int64
	records []messages.Record
}

func (p *past) session(n int) {
	id := p.mint.Child(p.tenant, fmt.Sprint("r", n), "home")
	at := p.now
	commit := uint64(0)
	add := func(r messages.Record) {
		commit++
		r.Schema, r.Tenant, r.Session, r.Root, r.Commit, r.K, r.Epoch, r.Hash, r.Time = lineage.Schema, p.tenant, id, id, commit, 1, 1, "h", at
		p.records = append(p.records, r)
		at += 1 + int64(p.rnd.IntN(50))
		if p.rnd.IntN(200) == 0 {
			at += 15_000 // a run that outlives most
		}
	}
	add(messages.Record{Kind: messages.KindOpened, Via: session.OpenLeaf, Summary: "session opens"})
	for i := range 1 + max(p.rnd.IntN(12)-9, 0) {
		r := messages.Record{Run: run.ID(fmt.Sprintf("r%d-%d", n, i)), Workflow: []string{"agent", "review"}[p.rnd.IntN(2)], Summary: "run"}
		with := func(k messages.Kind, change func(*messages.Record)) {
			r := r
			r.Kind = k
			change(&r)
			add(r)
		}
		with(messages.KindSubmitted, func(*messages.Record) {})
		with(messages.KindClaimed, func(r *messages.Record) { r.Attempt, r.Node = 1, "n1" })
		for step := range p.rnd.IntN(4) {
			with(messages.KindTool, func(r *messages.Record) {
				r.Attempt, r.Step, r.Tool = 1, run.Path("").Index(step), []string{"grep", "edit"}[p.rnd.IntN(2)]
			})
		}
		if p.rnd.IntN(30) == 0 {
			with(messages.KindQuarantined, func(r *messages.Record) { r.Run, r.Reason = "", "odd" })
		}
		if p.rnd.IntN(10) == 0 {
			return // it has not ended
		}
		with(messages.KindEnded, func(r *messages.Record) { r.State, r.Attempt = string(run.Succeeded), 1 })
	}
}

// TestRunsPageByPage compares the lists of runs with those of a graph that holds all
// records at once.
func TestRunsPageByPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		seed := rand.Uint64()
		if *pastSeed != 0 {
			seed = *pastSeed
		}
		t.Logf("-past.seed %d", seed)
		mine := past{rnd: rand.New(rand.NewPCG(seed, 1)), mint: n.conn.Logs.Minter(), tenant: "default", now: 1000}
		others := past{rnd: rand.New(rand.NewPCG(seed, 2)), mint: n.conn.Logs.Minter(), tenant: "other", now: 1000}
		for i := range 1400 {
			mine.session(i)
			mine.now += 20
			if i%5 == 0 {
				others.session(i)
				others.now += 60
			}
		}
		all := append(mine.records, others.records...)
		slices.SortStableFunc(all, func(a, b messages.Record) int { return cmp.Compare(a.Time, b.Time) })
		for i := range all {
			all[i].Seq = uint64(i + 1)
		}
		publish(t, n.operator(), all...)
		model := lineage.NewGraph()
		model.Add(all...)
		for _, o := range []client.RunsOptions{
			{},
			{Limit: 20},
			// Which runs alone have not ended is asked of the relays, which have no logs of these.
			{States: []run.State{run.Running, run.Cancelled}},
			{Workflow: "review", States: []run.State{run.Succeeded}},
			{Where: "tool=grep and not tool=edit"},
			{Where: "quarantined=yes"},
			{Where: "tool=nothing"},
		} {
			var where *lineage.Selector
			if o.Where != "" {
				var err error
				if where, err = lineage.ParseSelector(o.Where); err != nil {
					t.Fatal(err)
				}
			}
			var want []messages.RunInfo
			for _, r := range model.Select("default", where, time.Now()) {
				if (o.Workflow == "" || r.Workflow == o.Workflow) && (len(o.States) == 0 || slices.Contains(o.States, r.State)) {
					want = append(want, translate.RunInfo(r))
				}
			}
			if o.Limit > 0 {
				want = want[:o.Limit]
			}
			got := must.Get(c.Runs.List(t.Context(), &o))(t)
			// Of two that were submitted in the same millisecond either may come first.
			for _, l := range [][]messages.RunInfo{got, want} {
				if !slices.IsSortedFunc(l, func(a, b messages.RunInfo) int { return cmp.Compare(b.Submitted, a.Submitted) }) {
					t.Errorf("%+v: not the newest first", o)
				}
				slices.SortFunc(l, func(a, b messages.RunInfo) int { return cmp.Compare(a.Run, b.Run) })
			}
			if d := gocmp.Diff(want, got); d != "" {
				t.Errorf("%+v: %d runs, want %d: %.2000s", o, len(got), len(want), d)
			}
		}
		n.stop()
	})
}

var pastSeed = flag.Uint64("past.seed", 0, "seed of TestRunsPageByPage; 0 draws one")
