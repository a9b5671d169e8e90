package tool

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// pixel is a GIF of one pixel.
var pixel, _ = base64.StdEncoding.DecodeString("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")

// TestViewImage: the bytes of a file determine its type, not its name.
func TestViewImage(t *testing.T) {
	t.Parallel()
	f := &fake{files: map[string]string{
		"a.txt": string(pixel), "b.png": "no picture at all", "c.svg": "<svg/>", "large.gif": string(pixel) + strings.Repeat("\x00", session.MaxImage),
	}}
	blobs := blob.NewMemory()
	tb := table(t, Builtins()...)
	view := func(name string) Outcome {
		return tb.Call(t.Context(), ViewImage, `{"path":"`+name+`"}`, Call{Sandbox: f.open, Blobs: blobs})
	}
	out := view("a.txt")
	if out.IsError || len(out.Images) != 1 || string(out.Body) != `{"path":"a.txt","type":"image/gif","bytes":42}` {
		t.Fatalf("%s, %v", out.Body, out.Images)
	}
	r := must.Get(blobs.Get(t.Context(), out.Images[0].Digest))(t)
	if data, err := io.ReadAll(r); err != nil || !bytes.Equal(data, pixel) {
		t.Errorf("%q, %v", data, err)
	}
	for name, want := range map[string]struct {
		kind Kind
		says string
	}{
		"b.png": {NotImage, "no PNG, JPEG, GIF or WebP"}, "c.svg": {NotImage, "convert it"}, "large.gif": {NotImage, "at most 3932160"},
		"missing.png": {FileNotFound, ""}, "../x.png": {PathRefused, ""},
	} {
		out := view(name)
		if !out.IsError || out.Kind != want.kind || !strings.Contains(string(out.Body), want.says) || !strings.Contains(string(out.Body), name) || out.Images != nil {
			t.Errorf("%s: %s %s", name, out.Kind, out.Body)
		}
	}
	if out := tb.Call(t.Context(), ViewImage, `{"path":"a.txt"}`, Call{Sandbox: f.open}); out.Kind != Unsupported {
		t.Errorf("without a store: %s", out.Body)
	}
}

// TestFuncWithImages: a function may return a whole Result.
func TestFuncWithImages(t *testing.T) {
	t.Parallel()
	img := session.Image{Digest: blob.Digest{1}, Size: 1, Type: "image/png"}
	many := make([]session.Image, session.MaxImages+3)
	for i := range many {
		many[i] = img
	}
	fn := Func("shows", "Shows.", func(context.Context, struct{}) (Result, error) {
		return Result{Body: "x", IsError: true, Images: many}, nil
	}, nil)
	if out := table(t, fn).Call(t.Context(), "shows", "", Call{}); string(out.Body) != `"x"` || !out.IsError || len(out.Images) != session.MaxImages {
		t.Errorf("%s, %v, %d images", out.Body, out.IsError, len(out.Images))
	}
}
