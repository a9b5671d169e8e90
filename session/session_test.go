package session_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

func texts(s session.Session) (all []string) {
	for _, c := range s.Chunks() {
		all = append(all, c.Text())
	}
	return all
}

func TestZeroSession(t *testing.T) {
	var s session.Session
	if !s.Unborn() || s.Len() != 0 || s.Ref() != (session.Ref{}) || s.Text() != "" || s.PendingDigest() != "" || s.Usage() != (session.Usage{}) {
		t.Errorf("the zero session shows %+v", describe(s))
	}
	if _, ok := s.At(0); ok {
		t.Error("the zero session has a chunk")
	}
	if _, ok := s.Link(); ok {
		t.Error("the zero session has a link")
	}
	if _, ok := s.Last(session.User); ok {
		t.Error("the zero session has a last chunk")
	}
	if got := s.With(session.UserText("x")); got.Len() != 1 || s.Len() != 0 {
		t.Errorf("With made %d chunks and left %d", got.Len(), s.Len())
	}
	if s.Committed().Len() != 0 {
		t.Error("Committed invents chunks")
	}
}

// TestPending: edits are pending events over the newest committed version, and
// values that grow from one value do not see each other.
func TestPending(t *testing.T) {
	w := newWorld(t)
	base := w.open(key("s"), session.Opening{Kind: session.OpenLeaf}, session.ChunkEvent(session.UserText("base")))
	one := base.With(session.AssistantText("one")).To("local", "./dir")
	two := base.With(session.AssistantText("two"))
	if !slices.Equal(texts(one), []string{"base", "one"}) || !slices.Equal(texts(two), []string{"base", "two"}) || base.Len() != 1 {
		t.Errorf("values: %q %q %q", texts(base), texts(one), texts(two))
	}
	if one.Ref() != base.Ref() || one.Placement().Backend != "local" || two.Placement().Backend != "" {
		t.Errorf("pending edits moved %s to %s, placed at %q", base.Ref(), one.Ref(), two.Placement().Backend)
	}
	if _, ok := one.Link(); ok {
		t.Error("a value with pending edits has a link")
	}
	if diff := cmp.Diff(describe(base), describe(one.Committed())); diff != "" {
		t.Errorf("Committed differs:\n%s", diff)
	}
	if one.PendingDigest() == two.PendingDigest() || one.PendingDigest() != base.With(session.AssistantText("one")).To("local", "./dir").PendingDigest() {
		t.Error("the digest does not identify the edits")
	}
	if c, _ := one.At(1); c.Ref() != (session.Ref{}) {
		t.Errorf("a pending chunk says it was committed in %s", c.Ref())
	}
	committed := w.commit(key("s"), slices.Collect(one.Pending())...)
	if committed.Ref().Version != base.Ref().Version+2 || !slices.Equal(texts(committed), texts(one)) {
		t.Errorf("committing the edits gives %s, %q", committed.Ref(), texts(committed))
	}
	if c, _ := committed.At(1); c.Ref() != (session.Ref{Key: key("s"), Version: 2}) {
		t.Errorf("the chunk was committed in %s", c.Ref())
	}
	// Two values do not share chunks that only one of them has.
	if n, at, ok := session.CommonLen(two, committed); n != 1 || at != base.Ref() || !ok {
		t.Errorf("CommonLen = %d, %s, %v; want the base", n, at, ok)
	}
}

func TestViews(t *testing.T) {
	var chunks []session.Chunk
	for i := range 100 {
		c := session.UserText(fmt.Sprint("u", i))
		if i%3 == 1 {
			c = session.AssistantText(fmt.Sprint("a", i)).Of(session.Origin{Agent: fmt.Sprint("agent", i%2)})
		}
		chunks = append(chunks, c)
	}
	w := newWorld(t)
	var events []session.Event
	for _, c := range chunks[:70] {
		events = append(events, session.ChunkEvent(c))
	}
	parent := w.open(key("s"), session.Opening{Kind: session.OpenLeaf}, events...)
	s := w.fork(key("f"), session.OpenFork, parent).With(chunks[70:]...)
	view := func(name string, seq func(func(int, session.Chunk) bool), want func(i int) bool) {
		t.Helper()
		var got, expect []int
		for i, c := range seq {
			if !c.Equal(chunks[i]) {
				t.Errorf("%s: chunk %d is %q", name, i, c.Text())
			}
			got = append(got, i)
		}
		for i := range chunks {
			if want(i) {
				expect = append(expect, i)
			}
		}
		if !slices.Equal(got, expect) {
			t.Errorf("%s yields %v, want %v", name, got, expect)
		}
	}
	view("Chunks", s.Chunks(), func(int) bool { return true })
	view("LastN(5)", s.LastN(5), func(i int) bool { return i >= 95 })
	view("LastN(500)", s.LastN(500), func(int) bool { return true })
	view("SinceFork", s.SinceFork(), func(i int) bool { return i >= 70 })
	view("Range(-5, 3)", s.Range(-5, 3), func(i int) bool { return i < 3 })
	view("Range(60, 200)", s.Range(60, 200), func(i int) bool { return i >= 60 })
	view("Range(9, 3)", s.Range(9, 3), func(int) bool { return false })
	n := 0
	for range s.Chunks() {
		if n++; n == 40 {
			break
		}
	}
	if n != 40 {
		t.Errorf("a loop that leaves early saw %d", n)
	}
	if c, ok := s.Last(session.Assistant); !ok || c.Text() != "a97" || s.Text() != "a97" {
		t.Errorf("the last assistant chunk is %q", c.Text())
	}
	if got := slices.Collect(s.Line()); !slices.Equal(got, []session.Ref{parent.Ref()}) || s.Root() != "s" {
		t.Errorf("line %v, root %s", got, s.Root())
	}
}

func TestChunks(t *testing.T) {
	calls := []session.ToolCall{{ID: "1", Name: "n", Args: "a\xffb"}}
	c := session.AssistantText("x\xfey", calls...).WithBody(blob.Ref{Size: 3, Digest: blob.Digest{1}}).WithOpaque("o\xff")
	calls[0].Name = "changed"
	if c.Text() != "x\ufffdy" || c.Opaque() != "o\ufffd" || c.CallCount() != 1 {
		t.Errorf("chunk %q %q", c.Text(), c.Opaque())
	}
	for i, call := range c.Calls() {
		if i != 0 || call != (session.ToolCall{ID: "1", Name: "n", Args: "a\ufffdb"}) {
			t.Errorf("call %d is %+v", i, call)
		}
	}
	if b, ok := c.Body(); !ok || b.Size != 3 {
		t.Errorf("body %v, %v", b, ok)
	}
	if c.Equal(session.AssistantText("x\ufffdy")) || !c.Equal(c.Of(session.Origin{Agent: "someone", Time: at(1)})) {
		t.Error("Equal looks at who said it, or not at what was said")
	}
	r := session.Result("1", "n", `{"ok":false}`, true)
	if r.Kind() != session.ToolResult || r.CallID() != "1" || r.Name() != "n" || !r.Failed() || r.Equal(session.Result("1", "n", `{"ok":false}`, false)) {
		t.Errorf("result %+v", r)
	}
	var zero session.Chunk
	if zero.Kind() != "" || zero.CallCount() != 0 || !zero.Equal(session.Chunk{}) || zero.Origin() != (session.Origin{}) {
		t.Error("the zero chunk is not empty")
	}
	all := sample().Events
	for _, e := range all {
		if e.Kind != session.KindChunk || e.Data == "" {
			continue
		}
		back := must.Get(session.DecodeChunk(e.Of(nil)))(t)
		if again := session.ChunkEvent(back); again.Data != e.Data {
			t.Errorf("a chunk changed on its way:\n%s\n%s", e.Data, again.Data)
		}
	}
}

// TestFold: a rejected event leaves the value unchanged.
func TestFold(t *testing.T) {
	w := newWorld(t)
	base := w.open(key("s"), session.Opening{Kind: session.OpenLeaf}, session.ChunkEvent(session.UserText("x")))
	l, _ := base.Link()
	other := session.Link{Ref: session.Ref{Key: session.Key{Tenant: "other", ID: "s"}}, Seq: 1}
	foreign := session.Open(session.Key{Tenant: "other", ID: "s"}, "s")
	for name, c := range map[string]struct {
		s    session.Session
		e    session.Event
		r    func(session.Link) (session.Session, error)
		want error
	}{
		"an unknown kind":           {base, session.Event{Kind: "session.unheard_of", Schema: 1, Data: "{}"}, nil, session.ErrTooOld},
		"a later schema":            {base, session.Event{Kind: session.KindChunk, Schema: 2, Data: "{}"}, nil, session.ErrTooOld},
		"an unknown opening":        {session.Open(key("n"), "n"), session.OpenedEvent(session.Opening{Kind: "born"}), nil, session.ErrTooOld},
		"a second opening":          {base, session.OpenedEvent(session.Opening{Kind: session.OpenLeaf}), nil, nil},
		"an opening after a chunk":  {session.New(session.UserText("x")), session.OpenedEvent(session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}}), w.resolve, nil},
		"a fork of two":             {session.Open(key("n"), "n"), session.OpenedEvent(session.Opening{Kind: session.OpenFork, Parents: []session.Link{l, l}}), w.resolve, nil},
		"a fork of nothing known":   {session.Open(key("n"), "n"), session.OpenedEvent(session.Opening{Kind: session.OpenFork, Parents: []session.Link{{}}}), w.resolve, session.ErrNotFound},
		"a fork without a resolver": {session.Open(key("n"), "n"), session.OpenedEvent(session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}}), nil, session.ErrNotFound},
		"a fork across tenants":     {session.Open(key("n"), "n"), session.OpenedEvent(session.Opening{Kind: session.OpenFork, Parents: []session.Link{other}}), anything(foreign), session.ErrTenant},
		"a join across tenants":     {base, session.JoinedEvent(session.Join{Policy: session.JoinAdopt, Parents: []session.Part{{Link: other}}}), anything(foreign), session.ErrTenant},
		"a join beyond the end":     {base, session.JoinedEvent(session.Join{Policy: session.JoinAdopt, Parents: []session.Part{{Link: l, From: 0, To: 2}}}), w.resolve, nil},
		"a join backwards":          {base, session.JoinedEvent(session.Join{Policy: session.JoinAdopt, Parents: []session.Part{{Link: l, From: 1, To: 0}}}), w.resolve, nil},
	} {
		before := describe(c.s)
		got, err := session.Apply(c.s, c.e, c.r)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if diff := cmp.Diff(before, describe(got)); diff != "" {
			t.Errorf("%s changed the value:\n%s", name, diff)
		}
		entry := commitlog.Entry{Commit: commitlog.Commit{Events: []session.Event{session.ChunkEvent(session.UserText("y")), c.e}}}
		if got, err := commitlog.ApplyCommit(c.s, entry, c.r); err == nil || got.Len() != c.s.Len() {
			t.Errorf("%s: a commit with it is applied in part: %d chunks, %v", name, got.Len(), err)
		}
	}
	if got, err := session.Apply(base, session.Event{Kind: "step.unheard_of", Schema: 99, Data: "x"}, nil); err != nil || got.Ref() != base.Ref() {
		t.Errorf("an event of another namespace: %v", err)
	}
}

func TestJoinOfRefuses(t *testing.T) {
	w := newWorld(t)
	a := w.open(key("a"), session.Opening{Kind: session.OpenLeaf}, session.ChunkEvent(session.UserText("a")))
	b := w.open(key("b"), session.Opening{Kind: session.OpenLeaf}, session.ChunkEvent(session.UserText("b")))
	k := session.Key{Tenant: "other", ID: "c"}
	c := w.open(k, session.Opening{Kind: session.OpenLeaf}, session.ChunkEvent(session.UserText("c")))
	f := w.fork(key("f"), session.OpenFork, a)
	for name, one := range map[string]struct {
		trunk    session.Session
		policy   string
		branches []session.Session
	}{
		"pending edits":    {a, session.JoinAdopt, []session.Session{f.With(session.UserText("x"))}},
		"an unborn branch": {a, session.JoinConcatenate, []session.Session{session.New()}},
		"itself":           {a, session.JoinConcatenate, []session.Session{a}},
		"one twice":        {a, session.JoinConcatenate, []session.Session{b, b}},
		"unrelated":        {a, session.JoinSinceAncestor, []session.Session{b}},
		"another tenant":   {a, session.JoinConcatenate, []session.Session{c}},
	} {
		if j, err := session.JoinOf(one.trunk, one.policy, "", 0, one.branches...); err == nil {
			t.Errorf("%s: %+v", name, j)
		}
	}
}

func TestIDs(t *testing.T) {
	long := make([]byte, session.MaxID+1)
	for i := range long {
		long[i] = 'a'
	}
	for _, good := range []string{"a", "A-z_09", string(long[:session.MaxID]), "-", "_"} {
		if err := session.ValidID("session", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", string(long), "a.b", "a b", "a/b", "a:b", "é", "a*", ">", "a\n", "\x00"} {
		if err := session.ValidID("session", bad); err == nil {
			t.Errorf("%q is taken as an id", bad)
		}
		if err := (session.Key{Tenant: "t", ID: session.ID(bad)}).Valid(); err == nil {
			t.Errorf("%q is taken in a key", bad)
		}
		if err := (session.Key{Tenant: session.Tenant(bad), ID: "s"}).Valid(); err == nil {
			t.Errorf("%q is taken as a tenant", bad)
		}
	}
	r, err := session.ParseRef("t", "s:12")
	if want := (session.Ref{Key: session.Key{Tenant: "t", ID: "s"}, Version: 12}); err != nil || r != want || r.String() != "s:12" {
		t.Errorf("ParseRef = %v, %v", r, err)
	}
	if r, err := session.ParseRef("t", "s"); err != nil || r.Version != 0 {
		t.Errorf("ParseRef = %v, %v", r, err)
	}
	for _, bad := range []string{"", ":1", "s:", "s:x", "s:-1", "s:1:2", "a b:1"} {
		if r, err := session.ParseRef("t", bad); err == nil {
			t.Errorf("ParseRef(%q) = %v", bad, r)
		}
	}
}

func TestMint(t *testing.T) {
	m := commitlog.IDGenerator{Generation: 37, Partitions: 6}
	seen := map[uint32]int{}
	ids := map[session.ID]bool{}
	for i := range 600 {
		id := m.Child("t", "run", fmt.Sprint(i))
		if id != m.Child("t", "run", fmt.Sprint(i)) || session.ValidID("session", string(id)) != nil || ids[id] {
			t.Fatalf("id %q", id)
		}
		ids[id] = true
		g, p, ok := id.Locate()
		if !ok || g != 37 || p >= 6 {
			t.Fatalf("%s is in partition %d of generation %d, %v", id, p, g, ok)
		}
		seen[p]++
	}
	for p, n := range seen {
		if n < 50 || len(seen) != 6 {
			t.Errorf("partition %d has %d of 600 ids, %d partitions are used", p, n, len(seen))
		}
	}
	if ids[m.Child("t2", "run", "0")] || ids[m.Child("t", "ru", "n\x000")] {
		t.Error("ids of other runs are the same")
	}
	if _, p, ok := (commitlog.IDGenerator{Generation: 1, Partitions: 1}).ID("x").Locate(); !ok || p != 0 {
		t.Errorf("one partition: %d, %v", p, ok)
	}
	for _, bad := range []session.ID{"", "x", "x-1", "-1-1", "x-!-1", "x-1-zzzzzzzz"} {
		if g, p, ok := bad.Locate(); ok {
			t.Errorf("%q is in partition %d of generation %d", bad, p, g)
		}
	}
}

// TestForkCost: a fork costs the same for 10 and for 100,000 chunks.
func TestForkCost(t *testing.T) {
	cost := func(n int) (allocs float64, bytes uint64) {
		t.Helper()
		w := newWorld(t)
		var parent session.Session
		k := key("parent")
		parent = w.open(k, session.Opening{Kind: session.OpenLeaf})
		for parent.Len() < n {
			var events []session.Event
			for range min(n-parent.Len(), 1000) {
				events = append(events, session.ChunkEvent(session.UserText("x")))
			}
			parent = w.commit(k, events...)
		}
		l, _ := parent.Link()
		e := session.OpenedEvent(session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}})
		child := session.Open(key("child"), "parent")
		fork := func() {
			s, err := session.Apply(child, e, w.resolve)
			if err != nil || s.Len() != n {
				t.Fatalf("fork of %d chunks: %d, %v", n, s.Len(), err)
			}
		}
		allocs = testing.AllocsPerRun(100, fork)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 {
			fork()
		}
		runtime.ReadMemStats(&after)
		return allocs, (after.TotalAlloc - before.TotalAlloc) / 100
	}
	short, shortBytes := cost(10)
	long, longBytes := cost(100_000)
	if short != long || longBytes > shortBytes+shortBytes/10 {
		t.Errorf("a fork takes %.0f allocations (%d bytes) for 10 chunks, %.0f (%d bytes) for 100,000", short, shortBytes, long, longBytes)
	}
}

func BenchmarkWith(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var chunks []session.Chunk
			for range n {
				chunks = append(chunks, session.UserText("x"))
			}
			s := session.Open(key("s"), "s")
			for _, c := range chunks {
				var err error
				if s, err = session.Apply(s, session.ChunkEvent(c), nil); err != nil {
					b.Fatal(err)
				}
			}
			c := session.AssistantText("the quick brown fox")
			b.ReportAllocs()
			for b.Loop() {
				s.With(c)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	raw := must.Get(commitlog.Encode(sample()))(b)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		must.Get(commitlog.Decode(raw))(b)
	}
}

// TestUsage: usage adds up field by field, and subtracting it again leaves zero.
func TestUsage(t *testing.T) {
	u := session.Usage{CacheRead: 3, CacheWrite: 4, Calls: 6, Input: 1, MicroUSD: 5, Output: 2}
	twice := session.Usage{CacheRead: 6, CacheWrite: 8, Calls: 12, Input: 2, MicroUSD: 10, Output: 4}
	if got := u.Add(u); got != twice || got.Tokens() != 6 || got.Sub(twice) != (session.Usage{}) {
		t.Errorf("%+v has %d tokens, want %+v with 6", got, got.Tokens(), twice)
	}
}
