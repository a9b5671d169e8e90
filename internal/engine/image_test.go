package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// dot is a small picture, a different one for each n.
func dot(n uint8) []byte {
	var b bytes.Buffer
	p := image.NewGray(image.Rect(0, 0, 1, 1))
	p.SetGray(0, 0, color.Gray{Y: n})
	if err := png.Encode(&b, p); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// stored returns a dot after storing it.
func stored(t *testing.T, blobs blob.Store, n uint8) session.Image {
	t.Helper()
	must(blobs.Put(t.Context(), bytes.NewReader(dot(n))))
	return must(session.NewImage(dot(n)))
}

// pictures returns the images that a request shows, as digests, and the lines for the
// omitted ones.
func pictures(r *llm.Request) (shown, hidden []string) {
	for _, m := range r.Messages {
		for _, i := range m.Images {
			shown = append(shown, blob.Sum(i.Data).Short())
		}
		for l := range strings.Lines(m.Text) {
			if strings.HasPrefix(l, "[Image not shown") {
				hidden = append(hidden, strings.TrimSpace(l))
			}
		}
	}
	return shown, hidden
}

// TestImages: a model that sees images gets the bytes of the images from the user and a
// tool, another model gets a line that names them. If an execution is cut off, the next
// one repeats the same request.
func TestImages(t *testing.T) {
	var w world
	blobs := blob.NewMemory()
	first, second := stored(t, blobs, 1), must(session.NewImage(dot(2)))
	look := tool.Func("look", "Looks.", func(ctx context.Context, _ struct{}) (tool.Result, error) {
		c, _ := tool.Current(ctx)
		img, err := tool.KeepImage(ctx, c, dot(2))
		return tool.Result{Body: "a dot", Images: []session.Image{img}}, err
	}, &tool.FuncOptions{Effect: tool.ReadOnly})
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		return (&flow.Agent{Name: "a", Tools: []tool.Tool{look}}).Forward(ctx, s.With(session.UserText("go").WithImages(first)))
	}
	var asked []llm.Request
	var cutOff func(error)
	model := client(func(ctx context.Context, r *llm.Request) (*llm.Response, error) {
		asked = append(asked, *r)
		switch {
		case len(r.Messages) == 1:
			return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "1", Name: "look"}, {ID: "2", Name: "look"}}}, nil
		case cutOff != nil:
			cutOff(run.ErrShutdown)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return &llm.Response{Text: "two dots", Finish: llm.FinishStop}, nil
	})
	process := func(c chain.Choice) *inprocess.Runtime {
		rt := w.runtime(model)
		rt.Runtime.Blobs, rt.Runtime.Choices = func(session.Tenant) blob.Store { return blobs }, offering(c)
		return rt
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cutOff = cancel
	if state, err := start(t, process(chain.Choice{Name: "m", Images: true}), f).Forward(ctx); state != run.Queued {
		t.Fatalf("state %s, error %v", state, err)
	}
	cutOff = nil
	ex := start(t, process(chain.Choice{Name: "m", Images: true}), f, resume)
	if state, err := ex.Forward(t.Context()); state != run.Succeeded {
		t.Fatalf("state %s, error %v", state, err)
	}
	if len(asked) != 3 {
		t.Fatalf("%d requests", len(asked))
	}
	want := []string{first.Digest.Short(), second.Digest.Short(), second.Digest.Short()}
	for i, r := range asked {
		if shown, hidden := pictures(&r); !slices.Equal(shown, want[:min(1+2*i, 3)]) || hidden != nil {
			t.Errorf("request %d shows %v, and not %v", i, shown, hidden)
		}
	}
	if a, b := fmt.Sprintf("%+v", asked[1].Messages), fmt.Sprintf("%+v", asked[2].Messages); a != b {
		t.Errorf("the request was\n%s\nand is\n%s", a, b)
	}
	if m := asked[2].Messages; m[2].Role != llm.Tool || len(m[2].Images) != 1 || m[2].Text != `"a dot"` {
		t.Errorf("the result is %+v", m[2])
	}
	if text := string(must(json.Marshal(asked[2]))); strings.Contains(text, "iVBOR") || !strings.Contains(text, second.Digest.String()) {
		t.Errorf("as JSON a request names its images: %s", text)
	}

	// A model that cannot see them continues the same session.
	asked = nil
	s := must(process(chain.Choice{Name: "blind"}).Run(t.Context(), flow.Func(f), ex.Result()))
	shown, hidden := pictures(&asked[0])
	if shown != nil || len(hidden) != 4 || hidden[1] != "[Image not shown, because model blind cannot see images: "+second.String()+"]" {
		t.Errorf("a model that is blind is shown %v, and told %q", shown, hidden)
	}
	if c, _ := s.At(0); len(c.Images()) != 1 {
		t.Errorf("the session lost its image: %v", c.Images())
	}
}

// TestImagesRefused: a server that rejects a request with images gets it once more with
// lines that name them, so that one bad image does not end its session. A second
// rejection has another reason.
func TestImagesRefused(t *testing.T) {
	blobs := blob.NewMemory()
	s := session.New(session.UserText("see").WithImages(stored(t, blobs, 1)))
	refused := &llm.Error{Code: llm.CodeInvalidRequest, Message: "could not process image"}
	for _, always := range []bool{false, true} {
		var asked []llm.Request
		rt := &inprocess.Runtime{Runtime: engine.Runtime{
			Blobs: func(session.Tenant) blob.Store { return blobs }, Choices: offering(chain.Choice{Name: "m", Images: true}),
			Models: client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
				asked = append(asked, *r)
				if shown, _ := pictures(r); always || shown != nil {
					return nil, refused
				}
				return &llm.Response{Text: "ok", Finish: llm.FinishStop}, nil
			}),
		}}
		_, err := rt.Run(t.Context(), &flow.Agent{Name: "a"}, s)
		if always != errors.Is(err, llm.CodeInvalidRequest) || len(asked) != 2 {
			t.Fatalf("refused always %v: %d requests, %v", always, len(asked), err)
		}
		if _, hidden := pictures(&asked[1]); len(hidden) != 1 || !strings.Contains(hidden[0], "the server refused the request with the images") {
			t.Errorf("the model reads %q", hidden)
		}
	}
}

// TestImagesAreBounded: a request shows the newest images within its limit, and omits
// four at a time. An image whose bytes are lost or invalid is named.
func TestImagesAreBounded(t *testing.T) {
	blobs := blob.NewMemory()
	none := []byte("<svg/>")
	must(blobs.Put(t.Context(), bytes.NewReader(none)))
	fake := session.Image{Digest: blob.Sum(none), Size: int64(len(none)), Type: "image/png"}
	lost := session.Image{Digest: blob.Digest{1}, Size: 9, Type: "image/png"}
	large := func(i session.Image) session.Image { i.Size = 5 << 20; return i }
	var dots []session.Image
	for i := range 30 {
		dots = append(dots, stored(t, blobs, uint8(i)))
	}
	for name, tt := range map[string]struct {
		rows []session.Image
		want []session.Image
		says string
	}{
		"as many as fit": {rows: dots[:16], want: dots[:16]},
		"one more":       {rows: dots[:17], want: dots[4:17], says: "room for the newest alone"},
		"four more":      {rows: dots[:20], want: dots[4:20], says: "room for the newest alone"},
		"many":           {rows: dots, want: dots[16:], says: "room for the newest alone"},
		"large ones":     {rows: []session.Image{large(dots[0]), large(dots[1]), large(dots[2]), large(dots[3]), large(dots[4]), dots[5]}, want: dots[4:6], says: "room"},
		"lost":           {rows: []session.Image{dots[0], lost}, want: dots[:1], says: "its bytes are not stored"},
		"none":           {rows: []session.Image{fake, dots[0]}, want: dots[:1], says: "it is none that models see"},
	} {
		var asked *llm.Request
		rt := &inprocess.Runtime{Runtime: engine.Runtime{
			Blobs: func(session.Tenant) blob.Store { return blobs }, Choices: offering(chain.Choice{Name: "m", Images: true}),
			Models: client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
				asked = r
				return &llm.Response{Text: "ok", Finish: llm.FinishStop}, nil
			}),
		}}
		var s session.Session
		for _, i := range tt.rows {
			s = s.With(session.UserText("see").WithImages(i))
		}
		must(rt.Run(t.Context(), &flow.Agent{Name: "a"}, s))
		var want []string
		for _, i := range tt.want {
			want = append(want, i.Digest.Short())
		}
		shown, hidden := pictures(asked)
		if !slices.Equal(shown, want) || len(shown)+len(hidden) != len(tt.rows) {
			t.Errorf("%s: shown are %v, %d are named; want %v", name, shown, len(hidden), want)
		}
		if tt.says != "" && (len(hidden) == 0 || !strings.Contains(hidden[0], tt.says)) {
			t.Errorf("%s: the first line is %q, want %q", name, hidden, tt.says)
		}
	}
}

// TestSummaryNamesImages: a summary names the images of the rows that it replaces.
func TestSummaryNamesImages(t *testing.T) {
	blobs := blob.NewMemory()
	img := stored(t, blobs, 1)
	rt := &inprocess.Runtime{Runtime: engine.Runtime{
		Blobs: func(session.Tenant) blob.Store { return blobs },
		Models: client(func(context.Context, *llm.Request) (*llm.Response, error) {
			return &llm.Response{Text: "We looked at a dot.", Finish: llm.FinishStop}, nil
		}),
	}}
	for _, keep := range []int64{0, 1} {
		s := must(rt.Run(t.Context(), &flow.Compressor{Name: "c", Keep: keep}, session.New(session.UserText("see").WithImages(img), session.UserText("and now?"))))
		i := slices.IndexFunc(texts(s), func(text string) bool { return strings.Contains(text, "[image: "+img.String()+"]") })
		if i < 0 {
			t.Errorf("keep %d: nothing names the image: %q", keep, texts(s))
		}
	}
}
