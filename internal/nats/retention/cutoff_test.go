package retention

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestCutOffWhileItWaits ends a prune behind its fences. Its report names the standing
// fences, and so does the error of a caller that uses a session, without a file that was
// never written; a tenant that keeps everything has its sessions back.
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
