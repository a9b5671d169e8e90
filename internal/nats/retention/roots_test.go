package retention

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestCrashesBetweenRoots ends a prune of two trees that are archived together,
// because one is a copy of what is in the other, at each of its steps. A
// tombstone does not tell any more what its session was made of.
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

// all is what every session says, or why it does not.
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

// TestCutOffWhileItWaits ends a prune behind its fences. That they stand is told
// in its report and to the caller that uses a session, which is not sent to a file that
// was never written; a tenant that keeps everything has its sessions back.
func TestCutOffWhileItWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		root := w.done("tree", messages.Task{ID: "r1"})
		time.Sleep(keep)
		ctx, cancel := context.WithCancel(t.Context())
		o := w.options()
		o.after = func(at string) error {
			if at == "fence 2" {
				time.AfterFunc(time.Second, cancel)
			}
			return nil
		}
		out, err := Prune(ctx, w.op, o)
		if !errors.Is(err, context.Canceled) || len(out) != 1 || out[0].State != Fenced || out[0].Reason == "" || out[0].File != "" {
			t.Fatalf("%+v, %v", out, err)
		}
		w.begin("agent", messages.Task{ID: "r2", Session: string(root)})
		w.begin("agent", messages.Task{ID: "r3", ForkOf: string(root)})
		for _, id := range []run.ID{"r2", "r3"} {
			r := w.result(id)
			if r.Code != run.CodeArchived || !strings.Contains(r.Error, "rath cluster prune") || !strings.Contains(r.Error, "--keep default=forever") || strings.Contains(r.Error, "import") {
				t.Errorf("%s is told %q", id, r.Error)
			}
		}
		forever := w.options()
		forever.Keep = func(session.Tenant) (time.Duration, bool) { return 0, false }
		if got, want := states(w.prune(forever)), []string{"kept 3 tenant default keeps everything"}; !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
		w.done("agent", messages.Task{ID: "r4", Session: string(root)})
		w.audited()
	})
}

// TestBlobsOfPurgedSessions: an operator, with the rights of that role alone, sees that the
// blobs of a session are named as long as it is not purged; they are named again once it is
// brought back.
func TestBlobsOfPurgedSessions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sweep := func() *archive.Sweep {
			t.Helper()
			s, err := w.op.Archive.SweepBlobs(t.Context(), &archive.SweepOptions{})
			if err != nil || s.Removed > 0 || len(s.Missing) > 0 {
				t.Fatalf("%+v, %v", s, err)
			}
			return s
		}
		w.done("tree", messages.Task{ID: "r1"})
		before := sweep()
		if before.Named == 0 {
			t.Fatalf("%+v", before)
		}
		time.Sleep(keep)
		out := w.prune(w.options())
		purged := sweep()
		if purged.Named >= before.Named || purged.Named+purged.Young != before.Named+before.Young {
			t.Errorf("before %+v, purged %+v", before, purged)
		}
		doc := must.Get(os.ReadFile(out[0].File))(t)
		must.Get(bring(t.Context(), w.conn, doc, "op"))(t)
		if back := sweep(); back.Named < before.Named {
			t.Errorf("before %+v, brought back %+v", before, back)
		}
	})
}
