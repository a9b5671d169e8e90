package retention

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// keptPrompt is the prompt of an agent.
const keptPrompt = "Answer with care."

// TestPromptsOfPurgedSessions: the trees whose steps had an agent's prompt name it by a
// list. The last of them includes both in its file, which restores them.
func TestPromptsOfPurgedSessions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		named := func() int {
			t.Helper()
			s, err := w.op.Archive.SweepBlobs(t.Context(), &archive.SweepOptions{DryRun: true})
			if err != nil || len(s.Missing) > 0 {
				t.Fatalf("%+v, %v", s, err)
			}
			return s.Named
		}
		prompt := func() (string, error) {
			rc, err := w.conn.Logs.Blobs(session.DefaultTenant).Get(t.Context(), blob.Sum([]byte(keptPrompt)))
			if err != nil {
				return "", err
			}
			defer rc.Close()
			data, err := io.ReadAll(rc)
			return string(data), err
		}
		w.done("prompted", messages.Task{ID: "r1"})
		if got, err := prompt(); got != keptPrompt || named() != 2 {
			t.Fatalf("prompt %q, %v; %d blobs are named", got, err, named())
		}
		time.Sleep(keep)
		w.done("prompted", messages.Task{ID: "r2"})
		if out := w.prune(w.options()); len(out) != 2 || out[0].State != Archived || out[1].State != Kept || named() != 2 {
			t.Fatalf("%+v; %d blobs are named while another tree has the prompt", out, named())
		}
		time.Sleep(keep)
		out := w.prune(w.options())
		if len(out) != 1 || out[0].State != Archived || named() != 0 {
			t.Fatalf("%+v; %d blobs are named after the last tree", out, named())
		}
		m, err := w.op.Messages.Last(t.Context(), streams.StreamBlob, streams.PrefixBlob+string(session.DefaultTenant)+"."+blob.Sum([]byte(keptPrompt)).String())
		must.Do(t, err)
		if gone, err := w.op.Messages.RemoveMessage(t.Context(), streams.StreamBlob, m.Seq); err != nil || !gone {
			t.Fatalf("%v, %v", gone, err)
		}
		if _, err := prompt(); !errors.Is(err, blob.ErrNotFound) {
			t.Fatalf("the prompt is still there: %v", err)
		}
		doc, err := os.ReadFile(out[0].File)
		if err != nil || !bytes.Contains(doc, []byte(keptPrompt)) {
			t.Fatalf("the file has no prompt: %v", err)
		}
		must.Get(bring(t.Context(), w.conn, doc, "op"))(t)
		if got, err := prompt(); got != keptPrompt || named() != 2 {
			t.Errorf("prompt %q, %v; %d blobs are named", got, err, named())
		}
	})
}
