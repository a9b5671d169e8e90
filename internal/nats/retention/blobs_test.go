package retention

import (
	"os"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

// TestBlobsOfPurgedSessions: an operator, with the rights of that role alone, finds the
// blobs of a session named until it is purged, and named again once it is restored.
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
