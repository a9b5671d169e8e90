package dossier_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestImage checks that the evidence contains the images of a run, that the pages name them,
// and that Verify detects a changed byte.
func TestImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		data := value(base64.StdEncoding.DecodeString("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"))
		value(w.blobs.Put(t.Context(), bytes.NewReader(data)))
		img := value(session.NewImage(data))
		gone := session.Image{Digest: img.Digest, Size: 1, Type: "image/png"}
		gone.Digest[0]++
		state := w.execute(t.Context(), home, "r", func(ctx context.Context, s session.Session) (session.Session, error) {
			return say(ctx, s.With(session.UserText("see").WithImages(img, gone)), "what is it?"), nil
		}, nil)
		if state != run.Succeeded {
			t.Fatal(state)
		}
		w.check("r", home)
		e := value(dossier.Collect(t.Context(), &w.log, w.blobs, home, "r", nil))
		if !bytes.Equal(e.Blobs[img.Digest], data) || !strings.Contains(e.Left[gone.Digest], "no longer stored") {
			t.Errorf("the evidence has %q, and left out %q", e.Blobs[img.Digest], e.Left[gone.Digest])
		}
		for form, doc := range render(t, e) {
			if form != dossier.FormJSON && !strings.Contains(string(doc), img.String()) {
				t.Errorf("%s does not name %s", form, img)
			}
		}
		e.Blobs[img.Digest] = append(bytes.Clone(data), 0)
		if _, err := dossier.Verify(value(e.Encode()), nil); err == nil || !strings.Contains(err.Error(), img.Digest.Short()) {
			t.Errorf("a changed image: %v", err)
		}
	})
}
