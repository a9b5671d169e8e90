package session_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// allocated returns the number of bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestGrowthIsLinear: the cost of a row does not depend on the number of rows, whether
// they are added together or one by one.
func TestGrowthIsLinear(t *testing.T) {
	const bar = 4 << 10 // bytes for a short row
	ways := map[string]func(rows []session.Chunk) session.Session{
		"New": func(rows []session.Chunk) session.Session { return session.New(rows...) },
		"With": func(rows []session.Chunk) (s session.Session) {
			for _, r := range rows {
				s = s.With(r)
			}
			return s
		},
		"Apply": func(rows []session.Chunk) session.Session {
			s := session.Open(session.Key{Tenant: "t", ID: "s"}, "s")
			for _, r := range rows {
				var err error
				if s, err = session.Apply(s, session.ChunkEvent(r), nil); err != nil {
					t.Fatal(err)
				}
			}
			return s
		},
	}
	for name, grow := range ways {
		t.Run(name, func(t *testing.T) {
			perRow := map[int]uint64{}
			for _, n := range []int{500, 20_000} {
				rows := make([]session.Chunk, n)
				for i := range rows {
					rows[i] = session.UserText(fmt.Sprint("row ", i))
				}
				var s session.Session
				perRow[n] = allocated(func() { s = grow(rows) }) / uint64(n)
				if s.Len() != n {
					t.Fatalf("%d rows of %d", s.Len(), n)
				}
			}
			t.Logf("%d B a row of 500, %d of 20,000", perRow[500], perRow[20_000])
			if few, many := perRow[500], perRow[20_000]; many > few*5/4 || many > bar {
				t.Errorf("a row takes %d B of 500 and %d B of 20,000: want at most a quarter more, and %d", few, many, bar)
			}
		})
	}
}

// TestEditsAreValues: values that grow from the same one do not see each other's edits,
// whatever their origin.
func TestEditsAreValues(t *testing.T) {
	texts := func(s session.Session) (all []string) {
		for e := range s.Pending() {
			c := must.Get(session.DecodeChunk(e))(t)
			all = append(all, c.Text())
		}
		for i, c := range s.Chunks() {
			if c.Text() != all[i] {
				t.Fatalf("chunk %d is %q, its edit %q", i, c.Text(), all[i])
			}
		}
		return all
	}
	say := session.UserText
	base := session.New(say("a"), say("b"))
	one, other := base.With(say("c")), base.With(say("d"), say("e"))
	again := session.Session{}.Edited(slices.Collect(other.Pending())...)
	for _, c := range []struct {
		s    session.Session
		want []string
	}{
		{base, []string{"a", "b"}},
		{one, []string{"a", "b", "c"}},
		{other, []string{"a", "b", "d", "e"}},
		{one.With(say("f")), []string{"a", "b", "c", "f"}},
		{again, []string{"a", "b", "d", "e"}},
	} {
		if got := texts(c.s); !slices.Equal(got, c.want) {
			t.Errorf("rows %q, want %q", got, c.want)
		}
	}
	if again.PendingDigest() != other.PendingDigest() || one.PendingDigest() == base.PendingDigest() {
		t.Error("digests of the same edits differ, or of others are the same")
	}
	unknown := session.Event{Kind: "session.unknown", Schema: 1, Data: "{}"}
	if got := base.Edited(unknown); got.PendingDigest() != base.PendingDigest() || got.Len() != 2 {
		t.Error("an event that is no edit became one")
	}
}
