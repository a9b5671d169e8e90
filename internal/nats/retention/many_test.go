package retention

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// manyTrees is more trees than a prune works at, and no multiple of that.
const manyTrees = 2*treesAtOnce + 5

// grow makes many due trees.
func (w *world) grow() {
	w.t.Helper()
	for i := range manyTrees {
		w.begin("agent", messages.Task{ID: run.ID(fmt.Sprint("r", i))})
	}
	for i := range manyTrees {
		w.result(run.ID(fmt.Sprint("r", i)))
	}
	time.Sleep(keep)
}

// TestSeveralTreesAtOnce: a prune works at as many trees concurrently as it may, reports
// its progress, and returns the trees in the order of a dry run.
func TestSeveralTreesAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.grow()
		o := w.options()
		o.DryRun = true
		var want []string
		for _, out := range w.prune(o) {
			want = append(want, fmt.Sprint(Archived, " ", out.Root))
		}
		var now, most atomic.Int32
		o = w.options()
		o.after = func(step string) error {
			if step == "fence 0" || step == "archive" {
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Second)
				now.Add(-1)
			}
			return nil
		}
		var told []string
		o.Progress = func(to State, done, all int) { told = append(told, fmt.Sprint(to, done, all)) }
		var got []string
		for _, out := range w.prune(o) {
			got = append(got, fmt.Sprint(out.State, " ", out.Root))
		}
		if len(got) != manyTrees || !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if most.Load() != treesAtOnce {
			t.Errorf("%d trees at once, want %d", most.Load(), treesAtOnce)
		}
		var steps []string
		for _, to := range []State{Fenced, Archived, Freed} {
			for i := range manyTrees {
				steps = append(steps, fmt.Sprint(to, i+1, manyTrees))
			}
		}
		if !slices.Equal(told, steps) {
			t.Errorf("progress: %q", told)
		}
		w.nothingLost(manyTrees)
		w.audited()
	})
}

// TestCrashAmongMany ends a prune while several trees are at different steps. No further
// tree is begun, no session is lost, and the next prune finishes the work.
func TestCrashAmongMany(t *testing.T) {
	for _, step := range []string{"fence 0", "write", "rename", "archive", "purge 0"} {
		t.Run(strings.ReplaceAll(step, " ", "-"), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.grow()
				o := w.options()
				var n atomic.Int32
				o.after = func(at string) error {
					if at == step && n.Add(1) > 3 {
						return errCrash
					}
					return nil
				}
				cut, err := Prune(t.Context(), w.op, o)
				if !errors.Is(err, errCrash) {
					t.Fatalf("%q: %v", states(cut), err)
				}
				if n := n.Load(); n > 3+treesAtOnce || step == "fence 0" && len(cut) != int(n) || step != "fence 0" && len(cut) != manyTrees {
					t.Errorf("%d trees came to the step, %d are told: %q", n, len(cut), states(cut))
				}
				for _, out := range cut {
					if out.State != Fenced && out.State != Archived {
						t.Errorf("it is told as %q", states(cut))
					}
				}
				w.nothingLost(manyTrees)
				out := w.prune(w.options())
				if slices.ContainsFunc(out, func(o Outcome) bool { return o.State != Archived }) {
					t.Errorf("the next prune: %q after %q", states(out), states(cut))
				}
				if out := w.prune(w.options()); len(out) > 0 {
					t.Errorf("the third prune: %q", states(out))
				}
				if n := len(w.archives()); n != manyTrees {
					t.Errorf("%d archives, want %d", n, manyTrees)
				}
				w.nothingLost(manyTrees)
				w.audited()
			})
		})
	}
}

// TestLargeAmongSmall archives a tree that is too large to be archived beside others.
func TestLargeAmongSmall(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 3 {
			w.done("agent", messages.Task{ID: run.ID(fmt.Sprint("small", i))})
		}
		text := strings.Repeat("<", 200<<10)
		home := w.done("agent", messages.Task{ID: "large"})
		forks := smallTree / len(text)
		for i := range forks {
			w.done("agent", messages.Task{ID: run.ID(fmt.Sprint("fork", i)), ForkOf: string(home), Input: fmt.Appendf(nil, `"%d%s"`, i, text)})
		}
		time.Sleep(keep)
		large := false
		for _, out := range w.prune(w.options()) {
			if out.State != Archived {
				t.Errorf("tree %s is %s: %s", out.Root, out.State, out.Reason)
			}
			large = large || len(out.Sessions) == 1+forks && out.Size > smallTree
		}
		if !large {
			t.Error("there is no large tree")
		}
		w.audited()
	})
}
