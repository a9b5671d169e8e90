package project

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// generator makes the records of runs from commits of the real writer, which overlap: each
// commit is the next one of one of the open runs.
type generator struct {
	c    *Projections
	rand *rand.Rand
	now  time.Time
	open []*life
	runs int
	seq  uint64
}

// life is a run that has not ended.
type life struct {
	log     commitlog.Memory
	store   journal.Store
	home    session.Key
	task    journal.Task
	attempt uint64
	state   run.State
	read    commitlog.Position
}

// overlap is how many runs are open at a time.
const overlap = 64

func newGenerator(c *Projections) *generator {
	return &generator{c: c, rand: rand.New(rand.NewPCG(7, 4)), now: time.UnixMilli(1_780_000_000_000)} //nolint:gosec // of a test
}

// commit makes the next commit, and returns its records.
func (g *generator) commit(tb testing.TB) []messages.Record {
	g.now = g.now.Add(time.Duration(g.rand.IntN(2000)) * time.Millisecond)
	if len(g.open) < overlap || g.rand.IntN(3) == 0 {
		g.open = append(g.open, g.begin())
	}
	i := g.rand.IntN(len(g.open))
	l := g.open[i]
	g.advance(tb, l)
	var out []messages.Record
	for e, err := range l.log.Read(tb.Context(), l.home, l.read) {
		must.Do(tb, err)
		g.seq++
		l.read = e.At
		records := must.Get(lineage.Derive(e))(tb)
		for n := range records {
			records[n].Seq = g.seq
		}
		out = append(out, records...)
	}
	if l.state.Terminal() || l.state == run.Waiting && g.rand.IntN(8) == 0 { // it waits for long
		g.open = slices.Delete(g.open, i, i+1)
	}
	return out
}

func (g *generator) begin() *life {
	id := run.ID(fmt.Sprintf("run-%07d", g.runs))
	g.runs++
	t := session.Tenant("acme")
	if g.rand.IntN(20) == 0 {
		t = "small"
	}
	l := &life{home: session.Key{Tenant: t, ID: g.c.logs.HomeOf(t, id)}}
	l.store = journal.NewStore(&l.log, &journal.StoreOptions{Incarnation: "node", Now: func() time.Time { return g.now }, Values: journal.NewValues(&l.log)})
	l.task = journal.Task{ID: id, Workflow: fmt.Sprint("flow-", g.rand.IntN(10)), Session: l.home, By: fmt.Sprint("user-", g.rand.IntN(100))}
	l.task.Tags = run.Tags{"customer": fmt.Sprint("c", g.rand.IntN(500)), "order": string(id)}
	return l
}

// advance makes the next commit of a run.
func (g *generator) advance(tb testing.TB, l *life) {
	ctx := context.Background()
	write := func(kind string, path run.Path, payload any) {
		must.Get(l.store.Commit(ctx, journal.Batch{Session: l.home, Run: l.task.ID, Attempt: l.attempt, Path: path, Events: []session.Event{must.Get(journal.NewEvent(kind, payload))(tb)}}))(tb)
	}
	switch l.state {
	case "", run.Queued:
		claimed := must.Get(l.store.Claim(ctx, journal.Claim{
			Session: l.home, Home: l.home, Run: l.task.ID, Revision: "r1", Open: session.Opening{Kind: session.OpenLeaf}, Task: &l.task,
		}))(tb)
		l.attempt, l.state = claimed.Attempt, run.Running
	case run.Waiting:
		must.Do(tb, l.store.Apply(ctx, journal.Signal{To: l.home, Run: l.task.ID, Received: &journal.SignalReceived{
			Kind: journal.Approve, Path: "0", Run: l.task.ID, By: "ana", ID: fmt.Sprint("a", l.attempt),
		}}))
		l.state = run.Queued
	case run.Running:
		if l.attempt == 1 && g.rand.IntN(4) == 0 {
			write(journal.KindRunWaiting, "0", journal.RunWaiting{Attempt: l.attempt, Run: l.task.ID, Revision: "r1", For: []journal.Wait{{
				Kind: run.WaitApproval, Path: "0", Due: g.now.Add(time.Hour).UnixMilli(), Title: "ok?",
			}}})
			l.state = run.Waiting
			return
		}
		l.state = []run.State{run.Succeeded, run.Succeeded, run.Succeeded, run.Failed, run.Cancelled, run.TimedOut}[g.rand.IntN(6)]
		end := journal.Ended{Attempt: l.attempt, Run: l.task.ID, State: l.state, Workflow: l.task.Workflow}
		if l.state != run.Succeeded {
			end.Code, end.Error = []run.Code{run.CodeError, run.CodeBudget}[g.rand.IntN(2)], "it went wrong"
		}
		write(journal.KindEnded, "end", end)
	}
}

// publish stores the records of runs, and gives them to take.
func (g *generator) publish(tb testing.TB, p *LineageRelay, runs int, take func([]messages.Record)) {
	var all [][]messages.Record
	for g.runs < runs {
		all = append(all, g.commit(tb))
		take(all[len(all)-1])
		if len(all) == 1<<12 || g.runs == runs {
			must.Do(tb, p.publish(tb.Context(), all))
			all = all[:0]
		}
	}
}

// copies stores the records of runs as publish does, from the commits of a few: their ids,
// times and tags are others.
func (g *generator) copies(tb testing.TB, p *LineageRelay, runs int) {
	const of = 2000
	lives := map[session.ID][][]messages.Record{}
	for g.runs < of {
		records := g.commit(tb)
		lives[records[0].Session] = append(lives[records[0].Session], records)
	}
	all := slices.Collect(maps.Values(lives))
	type copied struct {
		home session.ID
		id   run.ID
		rest [][]messages.Record
	}
	var open []copied
	var out [][]messages.Record
	for made := 0; made < runs || len(open) > 0; {
		if made < runs && len(open) < overlap {
			id := run.ID(fmt.Sprintf("copy-%07d", made))
			rest := all[g.rand.IntN(len(all))]
			open = append(open, copied{g.c.logs.HomeOf(rest[0][0].Tenant, id), id, rest})
			made++
		}
		i := g.rand.IntN(len(open))
		l := &open[i]
		g.seq, g.now = g.seq+1, g.now.Add(time.Second)
		records := slices.Clone(l.rest[0])
		for n := range records {
			r := &records[n]
			r.Session, r.Root, r.Seq, r.Time = l.home, l.home, g.seq, g.now.UnixMilli()
			if r.Run != "" {
				r.Run = l.id
			}
			if submits(r) {
				r.Tags = run.Tags{"customer": fmt.Sprint("c", g.rand.IntN(500)), "order": string(l.id)}
			}
		}
		if l.rest = l.rest[1:]; len(l.rest) == 0 {
			open = slices.Delete(open, i, i+1)
		}
		if out = append(out, records); len(out) == 1<<12 || made == runs && len(open) == 0 {
			must.Do(tb, p.publish(tb.Context(), out))
			out = out[:0]
		}
	}
}

// selector returns a random selector; narrow ones match few runs.
func (g *generator) selector(narrow bool) string {
	one := func() string {
		return []string{
			"state=failed", "state in (cancelled, timed_out)", "not state=succeeded", "state!=queued", "status=wait*",
			fmt.Sprint("workflow=flow-", g.rand.IntN(12)), "workflow=flow*", "by=user-7", "by in (user-1, user-2)", "code=budget", "code!=error", `code=""`, `by in ("", user-1)`,
			fmt.Sprint("tag.customer=c", g.rand.IntN(500)), "tag.customer=c1*", "tag.order!=none", "branch=no", "branch=yes",
			fmt.Sprintf("older=%dm", g.rand.IntN(400)), fmt.Sprintf("not older=%dm", g.rand.IntN(400)), "tool=grep", "not tool=grep", "parent!=run-1",
		}[g.rand.IntN(21)]
	}
	text := one()
	for range g.rand.IntN(3) {
		text = fmt.Sprintf("(%s) %s %s", text, []string{"and", "or"}[g.rand.IntN(2)], one())
	}
	if narrow {
		text = fmt.Sprintf("(%s) and tag.customer=c%d", text, g.rand.IntN(500))
	}
	return text
}

// pages lists all runs of a choice page by page, over the index alone.
func (h *history) pages(tb testing.TB, limit int, o Choice) (ids []run.ID) {
	for before := uint64(0); ; {
		found, more, behind, err := h.c.index.search(tb.Context(), h, before, limit, &o)
		if err != nil || behind > 0 {
			tb.Fatalf("the index is %d behind, %v", behind, err)
		}
		rows, next := must.Pair(h.each(tb.Context(), limit, o, found, more))(tb)
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		if before = next; next == 0 {
			return ids
		}
	}
}

// wanted are the runs of a choice in a graph of all records.
func wanted(g *lineage.Graph, t session.Tenant, o Choice) (ids []run.ID) {
	for _, r := range g.Select(t, o.Where, o.Now) {
		if o.takes(&r) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

func current(tb testing.TB, c *Projections, t session.Tenant) *history {
	info := must.Get(c.messages.StreamInfo(tb.Context(), streams.StreamLineage))(tb)
	return &history{c, t, max(info.State.FirstSeq, 1), info.State.LastSeq, info.State.Msgs}
}

// TestFindRuns compares lists over the index with a graph of all records, for random
// selectors: while runs continue, after a restart with the file, a damaged file and none,
// after LINEAGE lost its end and its beginning, and after records came in another order.
func TestFindRuns(t *testing.T) {
	const runs = 2000
	layer.InBubble(t, func(t *testing.T, c *Projections, _ *natstest.Wire) {
		g := newGenerator(c)
		p := newRelay(t, c, c.logs.HomeOf("acme", "r"))
		all := lineage.NewGraph()
		c.RunsFile = filepath.Join(t.TempDir(), "runs.index")
		check := func(c *Projections, selectors int) {
			t.Helper()
			for range selectors {
				text := g.selector(true)
				o := Choice{Where: must.Get(lineage.ParseSelector(text))(t), Now: g.now}
				if g.rand.IntN(3) == 0 {
					o.States = []run.State{run.Failed, run.Waiting}
				}
				if g.rand.IntN(4) == 0 {
					o.Workflow = "flow-3"
				}
				for _, tenant := range []session.Tenant{"acme", "small", "nobody"} {
					got, want := current(t, c, tenant).pages(t, 1+g.rand.IntN(20), o), wanted(all, tenant, o)
					slices.Sort(got)
					slices.Sort(want)
					if !slices.Equal(got, want) {
						t.Fatalf("%q of %s, states %v, workflow %q:\ngot  %v\nwant %v", text, tenant, o.States, o.Workflow, got, want)
					}
				}
			}
		}
		add := func(records []messages.Record) { all.Add(records...) }
		g.publish(t, p, runs/2, add)
		check(c, 8)
		g.publish(t, p, runs, add)
		check(c, 15)

		again := func() *Projections {
			next := NewProjections(c.streams, c.logs)
			next.RunsFile = c.RunsFile
			return next
		}
		must.Do(t, c.index.save())
		kept := again()
		kept.index.load()
		if at := kept.index.at.At(); at != c.index.at.At() {
			t.Errorf("the file has the index as of %v, want %v", at, c.index.at.At())
		}
		g.publish(t, p, runs+100, add)
		check(kept, 8)
		data := must.Get(os.ReadFile(c.RunsFile))(t)
		for _, broken := range [][]byte{data[:len(data)/2], append(slices.Clone(data[:len(data)-40]), make([]byte, 40)...), []byte("{}\n"), nil} {
			must.Do(t, os.WriteFile(c.RunsFile, broken, 0o600))
			damaged := again()
			damaged.index.load()
			if at := damaged.index.at.At(); at.Seq != 0 {
				t.Errorf("a damaged file of %d bytes is read: the index is at %v", len(broken), at)
			}
		}
		must.Do(t, os.Remove(c.RunsFile))
		check(again(), 5)

		// Records in another order, as a repair stores them.
		late := newGenerator(c)
		late.runs, late.seq, late.now = g.runs, g.seq, g.now
		var commits [][]messages.Record
		for late.runs < g.runs+200 {
			commits = append(commits, late.commit(t))
			add(commits[len(commits)-1])
		}
		late.rand.Shuffle(len(commits), func(i, j int) { commits[i], commits[j] = commits[j], commits[i] })
		for _, records := range commits {
			p.at = lineagePoint{}
			must.Do(t, p.publish(t.Context(), [][]messages.Record{records}))
		}
		g.runs, g.seq, g.now = late.runs, late.seq, late.now
		check(kept, 8)
		check(again(), 8)
	})
}

// TestColumns compares the columns of records with a graph, for random selectors: they find
// all matching runs and, for the conditions that they test exactly, no others.
func TestColumns(t *testing.T) {
	const runs, selectors = 4000, 30
	c := layer.Open(t)
	g := newGenerator(c)
	all, columns, submitted := lineage.NewGraph(), &lineage.Columns{}, map[run.ID]uint64{}
	for at := uint64(1); g.runs < runs; at++ {
		for _, r := range g.commit(t) {
			if r.Tenant == "acme" {
				all.Add(r)
				columns.Add(at, &r, true)
				if submits(&r) {
					submitted[r.Run] = at
				}
			}
		}
	}
	found, matching := 0, 0
	for range selectors {
		text := g.selector(false)
		where := must.Get(lineage.ParseSelector(text))(t)
		got := map[uint64]bool{}
		for f := range columns.Search(&lineage.Sieve{Where: where, Now: g.now}, 1, 1<<62) {
			got[f.At] = true
		}
		want := all.Select("acme", where, g.now)
		for _, r := range want {
			if !got[submitted[r.ID]] {
				t.Fatalf("%q does not find %s", text, r.ID)
			}
		}
		inexact := strings.ContainsAny(text, "*!") || strings.Contains(text, "tool") || strings.Contains(text, "not ")
		if !inexact {
			found, matching = found+len(got), matching+len(want)
		}
		if n := len(got) - len(want); n > runs/50 && !inexact {
			t.Errorf("%q finds %d runs, of which %d match", text, len(got), len(want))
		}
	}
	t.Logf("%d runs are found, %d match", found, matching)
}

var findRuns = flag.Int("find", 1_000_000, "the runs of BenchmarkFindRuns")

const (
	findRatio = 2.0 // of the time of a page by id, of BenchmarkFindRuns
	findBytes = 64  // a run, of TestColumnsMemory
)

// TestColumnsMemory measures the columns of as many runs as just made their hash table
// grow.
func TestColumnsMemory(t *testing.T) {
	const runs = 1<<18/8*7 + 1
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, c := heap(), &lineage.Columns{}
	for i := range uint64(runs) {
		id := fmt.Sprint("run-", i)
		c.Add(2*i+1, &messages.Record{Kind: messages.KindSubmitted, Run: run.ID(id), Session: session.ID(id), Workflow: "w", By: "ana", Tags: run.Tags{"order": id}}, true)
		c.Add(2*i+2, &messages.Record{Kind: messages.KindEnded, Run: run.ID(id), Session: session.ID(id), State: string(run.Failed)}, true)
	}
	bytes := float64(heap()-before) / runs
	t.Logf("%d runs take %.1f bytes each", c.Len(), bytes)
	if bytes > findBytes {
		t.Errorf("a run takes %.1f bytes, want at most %d", bytes, findBytes)
	}
}

// BenchmarkFindRuns lists a page of failed runs with three conditions among a million, and
// reads the same runs one by one by their ids. It fails if the list takes more than twice
// the time.
func BenchmarkFindRuns(b *testing.B) {
	srv := natstest.Start(b, nil)
	c := layer.Dial(b, streamstest.NodeOptions(srv))
	must.Do(b, c.streams.Provision(b.Context()))
	js := must.Get(jetstream.New(layer.Operator(b, srv).conn.NC))(b)
	stream := must.Get(js.Stream(b.Context(), streams.StreamLineage))(b).CachedInfo().Config
	stream.MaxBytes = -1
	must.Get(js.UpdateStream(b.Context(), stream))(b)
	g := newGenerator(c)
	p := newRelay(b, c, c.logs.HomeOf("acme", "r"))
	made := time.Now()
	g.copies(b, p, *findRuns)
	b.Logf("made in %v", time.Since(made))
	c.RunsFile = filepath.Join(b.TempDir(), "runs.index")
	began := time.Now()
	h := current(b, c, "acme")
	parts := 1
	for behind := must.Get(c.index.advance(b.Context(), h))(b); behind > 0; parts++ {
		behind = must.Get(c.index.advance(b.Context(), h))(b)
	}
	caught, rows := time.Since(began), 0
	for _, columns := range c.index.tenants {
		rows += columns.Len()
	}
	began = time.Now()
	must.Do(b, c.index.save())
	saved, at := time.Since(began), c.index.at.At()
	c.index.reset()
	began = time.Now()
	c.index.load()
	loaded := time.Since(began)
	b.Logf("%d runs in %d messages: caught up in %v (%d lists), saved in %v, read in %v", rows, h.last, caught, parts, saved, loaded)
	if got := c.index.at.At(); at != got || rows < *findRuns {
		b.Errorf("the index has %d runs as of %v, and the file as of %v, want %d", rows, at, got, *findRuns)
	}
	o := Choice{Where: must.Get(lineage.ParseSelector("state=failed and workflow=flow-3 and tag.customer=c42"))(b), Now: g.now}
	var lists, reads []time.Duration
	n := 0
	for b.Loop() {
		began := time.Now()
		h := must.Get(c.History(b.Context(), "acme", 1))(b)
		page, _, behind, err := h.List(b.Context(), 0, 100, o)
		lists = append(lists, time.Since(began))
		if err != nil || behind > 0 || len(page) == 0 {
			b.Fatalf("the list has %d runs, and is %d behind, %v", len(page), behind, err)
		}
		n, began = len(page), time.Now()
		for _, r := range page {
			h := must.Get(c.History(b.Context(), "acme", 1))(b) // as the query of a run does
			must.Get(must.Get(h.Tree(b.Context(), r.Home.ID))(b).Run("acme", r.ID))(b)
		}
		reads = append(reads, time.Since(began))
	}
	slices.Sort(lists)
	slices.Sort(reads)
	list, read := lists[len(lists)/2], reads[len(reads)/2]
	ratio := float64(list) / float64(read)
	b.ReportMetric(ratio, "list/read")
	b.Logf("a list of %d runs takes %v, its runs by id %v", n, list, read)
	if ratio > findRatio {
		b.Errorf("a list takes %.2f of the time of its runs by id, want at most %v", ratio, findRatio)
	}
}
