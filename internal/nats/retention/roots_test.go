package retention

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

// TestCrashesBetweenRoots ends a prune of two trees that are archived together, because one
// holds a copy from the other, at each of its steps. A tombstone no longer names its
// session's parents.
func TestCrashesBetweenRoots(t *testing.T) {
	for _, step := range []string{"fence 1", "archive", "purge 2", "purge 1", "purge 0"} {
		t.Run(strings.ReplaceAll(step, " ", "-"), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				base := w.done("agent", messages.Task{ID: "base"})
				w.done("aside", messages.Task{ID: "copy", ForkOf: string(base)})
				before := w.all()
				time.Sleep(keep)
				w.cutOff(step)
				w.nothingLost(3)
				if out := w.prune(w.options()); step != "purge 0" && (len(out) != 1 || out[0].State != Archived || len(out[0].Sessions) != 3) {
					t.Errorf("the next prune: %q", states(out))
				}
				w.nothingLost(3)
				if n := len(w.archives()); n != 1 {
					t.Errorf("%d archives", n)
				}
				for _, doc := range w.archives() {
					must.Get(bring(t.Context(), w.conn, doc, "ana"))(t)
				}
				if now := w.all(); now != before {
					t.Errorf("brought back: %s, want %s", now, before)
				}
				w.audited()
			})
		})
	}
}

// all returns the text of every session, or the error of its read.
func (w *world) all() string {
	w.t.Helper()
	trees := must.Get(w.op.Archive.Trees(w.t.Context(), ""))(w.t)
	var lines []string
	for _, t := range trees {
		for _, s := range t.Sessions {
			text, err := w.texts(s.ID)
			lines = append(lines, fmt.Sprintf("%s %s %v", s.ID, text, err))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
