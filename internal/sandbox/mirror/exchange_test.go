package mirror

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestBeside: changes that a process makes there between commands are on both sides after
// each scan, and so are changes made here. If both sides changed a file, the version here
// wins.
func TestBeside(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			p := newPair(t, Limits{})
			p.Beside = true
			for range 30 {
				// The changes of each side start from a common state.
				here, there := read(t, p.here), read(t, p.there.dir)
				if diff := cmp.Diff(here, there); diff != "" {
					t.Fatalf("before the changes (-here +there)\n%s", diff)
				}
				both := r.IntN(3)
				if both != 1 {
					for range r.IntN(5) {
						change(t, r, p.here, here)
					}
				}
				if both != 0 {
					for range r.IntN(5) {
						change(t, r, p.there.dir, there)
					}
				}
				must.Do(t, p.Sync(t.Context()))
				got := read(t, p.there.dir)
				if diff := cmp.Diff(read(t, p.here), got); diff != "" {
					t.Fatalf("after a look (-here +there)\n%s", diff)
				}
				want := here
				switch both {
				case 1:
					want = there
				case 2:
					// Files and links of this side are unchanged.
					for q, n := range here {
						if g := got[q]; n.Kind != Dir && g != n && there[q] == n {
							t.Errorf("%s is %v, which both had as %v", q, g, n)
						}
					}
					continue
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("after a look of one side's changes (-want +got)\n%s", diff)
				}
			}
		})
	}
}

// TestBothChanged: the version here wins, with all the entries that it needs and no others.
func TestBothChanged(t *testing.T) {
	p := newPair(t, Limits{})
	p.Beside = true
	write := func(dir, name, text string) {
		t.Helper()
		name = filepath.Join(dir, filepath.FromSlash(name))
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, os.WriteFile(name, []byte(text), 0o644))
	}
	for _, name := range []string{"same", "gone here/f", "gone there/f", "a file there/f", "log"} {
		write(p.here, name, "old")
	}
	must.Do(t, p.Sync(t.Context()))
	there := p.there.dir
	write(p.here, "same", "here")
	write(there, "same", "there")
	must.Do(t, os.RemoveAll(filepath.Join(p.here, "gone here")))
	write(there, "gone here/f", "there")
	write(p.here, "gone there/f", "here")
	must.Do(t, os.RemoveAll(filepath.Join(there, "gone there")))
	write(p.here, "a file there/f", "here")
	must.Do(t, os.RemoveAll(filepath.Join(there, "a file there")))
	write(there, "a file there", "there")
	write(p.here, "new/here", "here")
	write(there, "new/there", "there")
	write(there, "log", "there")
	must.Do(t, p.Sync(t.Context()))
	file := func(text string) node { return node{Kind: File, Text: text} }
	want := model{
		"same": file("here"), "gone there": {Kind: Dir}, "gone there/f": file("here"), "a file there": {Kind: Dir}, "a file there/f": file("here"),
		"new": {Kind: Dir}, "new/here": file("here"), "new/there": file("there"), "log": file("there"),
	}
	for _, dir := range []string{p.here, there} {
		if diff := cmp.Diff(want, read(t, dir)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", dir, diff)
		}
	}
}

// TestBesideAtWork: a process that creates and removes files there continuously does not
// keep a command from running.
func TestBesideAtWork(t *testing.T) {
	p := newPair(t, Limits{})
	p.Beside = true
	var over atomic.Bool
	var work sync.WaitGroup
	work.Go(func() {
		for i := 0; !over.Load(); i++ {
			dir := filepath.Join(p.there.dir, "work", fmt.Sprint(i%3))
			_ = os.MkdirAll(dir, 0o755)
			_ = os.WriteFile(filepath.Join(dir, "f"), fmt.Append(nil, i), 0o644)
			_ = os.Rename(filepath.Join(dir, "f"), filepath.Join(dir, "g"))
			if i%2 == 0 {
				_ = os.RemoveAll(dir)
			}
		}
	})
	for i := range 100 {
		name := filepath.Join(p.here, "work", "mine")
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, os.WriteFile(name, fmt.Append(nil, i), 0o644))
		_, err := p.exec(func(dir string) {
			if got, err := os.ReadFile(filepath.Join(dir, "work", "mine")); err != nil || string(got) != fmt.Sprint(i) {
				t.Errorf("a command of round %d reads %q, %v", i, got, err)
			}
		})
		must.Do(t, err)
	}
	over.Store(true)
	work.Wait()
	must.Do(t, p.Sync(t.Context()))
	if diff := cmp.Diff(read(t, p.here), read(t, p.there.dir)); diff != "" {
		t.Errorf("in the end (-here +there)\n%s", diff)
	}
}

// BenchmarkUnchanged runs a command without changes, over 5,000 files.
func BenchmarkUnchanged(b *testing.B) {
	for _, beside := range []bool{false, true} {
		b.Run(fmt.Sprintf("beside=%t", beside), func(b *testing.B) {
			p := newPair(b, Limits{})
			p.Beside = beside
			for i := range 5000 {
				dir := filepath.Join(p.here, "src", fmt.Sprint(i/50))
				must.Do(b, os.MkdirAll(dir, 0o755))
				must.Do(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%d.go", i)), make([]byte, 10<<10), 0o644))
			}
			exec := func() {
				_, err := p.exec(func(string) {})
				must.Do(b, err)
			}
			exec()
			time.Sleep(noFractions + tick) // recent stamps are not settled
			exec()
			p.there.bytes.Store(0)
			for b.Loop() {
				exec()
			}
			b.ReportMetric(float64(p.there.bytes.Load())/float64(b.N), "wire-B/op")
		})
	}
}
