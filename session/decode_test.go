package session

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/testkit/must"
)

func fullChunk() Chunk {
	return AssistantText("a \"b\"\n\u2028 \u00e9", ToolCall{Args: `{"x":"\\"}`, ID: "1", Name: "n"}, ToolCall{}).Of(Origin{
		"agent", "workflow", "node", "run", "0.1", time.UnixMilli(5).UTC(),
		Placement{"local", 1 << 63, blob.Digest{1}, "sha256:1", "process", "memory=1g", "list:example.org", "[1]", "./x"},
		Usage{1, 2, 3, 4, 5, 6},
	}).WithBody(blob.Ref{Digest: blob.Digest{2}, Size: 9}).WithOpaque("o").WithImages(Image{blob.Digest{3}, 7, "image/png"}, Image{blob.Digest{4}, 8, "image/gif"})
}

// FuzzUnmarshalChunk: the fast decoder and encoding/json agree.
func FuzzUnmarshalChunk(f *testing.F) {
	f.Add(ChunkEvent(fullChunk()).Data)
	f.Add(ChunkEvent(Result("1", "n", `{}`, true)).Data)
	f.Add(ChunkEvent(Chunk{}).Data)
	f.Add(`{"Kind":"x","text":null,"usage":{"input":1.0}}`)
	f.Add(`{"calls":[],"kind":"user","text":"\ud800"}`)
	f.Fuzz(func(t *testing.T, data string) {
		var quick, slow chunkData
		quickErr, slowErr := unmarshalChunk(data, &quick), json.Unmarshal([]byte(data), &slow)
		if (quickErr == nil) != (slowErr == nil) {
			t.Fatalf("%q: %v and %v", data, quickErr, slowErr)
		}
		if diff := cmp.Diff(slow, quick); slowErr == nil && diff != "" {
			t.Fatalf("%q reads differently (-json +quick):\n%s", data, diff)
		}
	})
}

// TestUnmarshalChunkIsQuick: the output of this release is never left to encoding/json.
func TestUnmarshalChunkIsQuick(t *testing.T) {
	for _, c := range []Chunk{fullChunk(), {}, UserText("x"), UserText("x").WithImages(Image{Digest: blob.Digest{1}}), SystemText(""), Result("1", "n", "{}", true), Result("1", "n", "{}", false).WithArgs(`{"n":"\u2028 é"}`), AssistantText("y")} {
		var d chunkData
		r := reader{Reader: canonical.Reader{S: ChunkEvent(c).Data}}
		if !r.chunk(&d) || r.I != len(r.S) {
			t.Errorf("%s stops at %d", r.S, r.I)
		}
	}
}

func FuzzDecodeChunks(f *testing.F) {
	rows := []Chunk{fullChunk(), UserText("x"), Result("1", "n", "{}", true), fullChunk()}
	f.Add(encodeChunks(rows), len(rows))
	f.Add("", 0)
	f.Add("\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1)
	f.Fuzz(func(t *testing.T, data string, n int) {
		chunks, err := decodeChunks(data, n)
		if err != nil {
			return
		}
		again, err := decodeChunks(encodeChunks(chunks), n)
		if err != nil {
			t.Fatalf("what was decoded does not decode: %v", err)
		}
		for i := range chunks {
			if diff := cmp.Diff(*chunks[i].c, *again[i].c, cmp.AllowUnexported(row{}, origin{})); diff != "" {
				t.Fatalf("chunk %d differs:\n%s", i, diff)
			}
		}
	})
}

// TestPages: chunks are unchanged after a round trip through pages.
func TestPages(t *testing.T) {
	var chunks []Chunk
	for i := range 300 {
		r := *fullChunk().c
		r.ref = Ref{Key{"t", "s"}, Version(i)}
		if i%3 == 0 {
			r = row{kind: User, text: "plain", origin: origin{Time: time.UnixMilli(int64(i)).UTC()}}
		}
		chunks = append(chunks, Chunk{&r})
	}
	data := encodeChunks(chunks)
	back := must.Get(decodeChunks(data, len(chunks)))(t)
	for i := range chunks {
		if diff := cmp.Diff(*chunks[i].c, *back[i].c, cmp.AllowUnexported(row{}, origin{})); diff != "" {
			t.Fatalf("chunk %d differs:\n%s", i, diff)
		}
	}
	for n := 0; n < len(data); n += 1 + len(data)/200 {
		if _, err := decodeChunks(data[:n], len(chunks)); err == nil {
			t.Fatalf("a page cut at byte %d is read", n)
		}
	}
	if _, err := decodeChunks(data, len(chunks)-1); err == nil {
		t.Error("a page with more than it should hold is read")
	}
}

// TestLargePage: a page larger than one part is stored in parts.
func TestLargePage(t *testing.T) {
	stored := map[string][]byte{}
	save := func(digest string, part []byte) error {
		if len(part) > MaxPagePart {
			t.Errorf("a part of %d bytes", len(part))
		}
		stored[digest] = part
		return nil
	}
	load := func(digest string) ([]byte, error) { return stored[digest], nil }
	data := make([]byte, 2*MaxPagePart+5)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	p := NewPage(3, string(data))
	if len(p.Ref().Parts) != 3 {
		t.Fatalf("%d parts", len(p.Ref().Parts))
	}
	must.Do(t, p.Save(save))
	got, err := LoadPage(p.Ref(), load)
	if err != nil || got.Data() != string(data) {
		t.Fatalf("%d bytes, %v", len(got.Data()), err)
	}
	for _, n := range []int{0, 1, MaxPagePart, MaxPagePart + 1} {
		q := NewPage(1, string(data[:n]))
		must.Do(t, q.Save(save))
		if got, err := LoadPage(q.Ref(), load); err != nil || got.Data() != string(data[:n]) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
