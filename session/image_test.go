package session_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// TestNewImage: the type of an image follows from its bytes alone.
func TestNewImage(t *testing.T) {
	pixels := image.NewPaletted(image.Rect(0, 0, 3, 2), color.Palette{color.Black, color.White})
	encoded := func(write func(b *bytes.Buffer) error) []byte {
		var b bytes.Buffer
		must.Do(t, write(&b))
		return b.Bytes()
	}
	webp := func(chunk, rest string) []byte {
		data := append([]byte("RIFF\x00\x00\x00\x00WEBP"+chunk+"\x00\x00\x00\x00"+rest), make([]byte, 20)...)
		data[4] = byte(len(data) - 8)
		return data
	}
	small := encoded(func(b *bytes.Buffer) error { return png.Encode(b, pixels) })
	photo := encoded(func(b *bytes.Buffer) error { return jpeg.Encode(b, pixels, nil) })
	moving := encoded(func(b *bytes.Buffer) error { return gif.Encode(b, pixels, nil) })
	wide := encoded(func(b *bytes.Buffer) error {
		return gif.Encode(b, image.NewPaletted(image.Rect(0, 0, 8001, 1), pixels.Palette), nil)
	})
	for name, tt := range map[string]struct {
		data       []byte
		want, says string
	}{
		"png":            {data: small, want: "image/png"},
		"jpeg":           {data: photo, want: "image/jpeg"},
		"gif":            {data: moving, want: "image/gif"},
		"webp lossy":     {data: webp("VP8 ", "\x00\x00\x00\x9d\x01\x2a\x03\x00\x02\x00"), want: "image/webp"},
		"webp lossless":  {data: webp("VP8L", "\x2f\x02\x40\x00\x00"), want: "image/webp"},
		"webp extended":  {data: webp("VP8X", "\x00\x00\x00\x00\x02\x00\x00\x01\x00\x00"), want: "image/webp"},
		"webp of what":   {data: webp("VP9 ", ""), says: "no PNG"},
		"nothing":        {says: "no PNG"},
		"a page":         {data: []byte("<svg xmlns='http://www.w3.org/2000/svg'/>"), says: "no PNG"},
		"a head alone":   {data: small[:10], says: "damaged"},
		"a png's header": {data: small[:33], says: "damaged"},
		"a png's error":  {data: append(append(bytes.Clone(small[:45]), small[45]^1), small[46:]...), says: "damaged"},
		"half a jpeg":    {data: photo[:len(photo)-2], says: "jpeg is damaged or truncated"},
		"half a gif":     {data: moving[:len(moving)-1], says: "gif is damaged or truncated"},
		"half a webp":    {data: webp("VP8L", "\x2f\x02\x40\x00\x00")[:40], says: "webp is damaged or truncated"},
		"too wide":       {data: wide, says: "8001 x 1 pixels, at most 8000"},
		"too large":      {data: append(bytes.Clone(small), make([]byte, session.MaxImage)...), says: "at most 3932160"},
		"just so large":  {data: append(bytes.Clone(small), make([]byte, session.MaxImage-len(small))...), want: "image/png"},
	} {
		img, err := session.NewImage(tt.data)
		switch {
		case tt.want == "" && (!errors.Is(err, session.ErrImage) || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("%s: %v, %v; want %q", name, img, err, tt.says)
		case tt.want != "" && (err != nil || img != session.Image{Digest: blob.Sum(tt.data), Size: int64(len(tt.data)), Type: tt.want}):
			t.Errorf("%s: %v, %v; want %s", name, img, err, tt.want)
		}
	}
}

// TestImageFitsRequests: servers bound an image as it is sent, in base64.
func TestImageFitsRequests(t *testing.T) {
	if n := base64.StdEncoding.EncodedLen(session.MaxImage); n > 5<<20 {
		t.Errorf("an image may have %d bytes in base64", n)
	}
}

// TestChunkImages: a chunk keeps the images that it was made with, and no more than it may
// have.
func TestChunkImages(t *testing.T) {
	all := make([]session.Image, session.MaxImages+1)
	for i := range all {
		all[i] = session.Image{Digest: blob.Digest{byte(i + 1)}, Size: int64(i), Type: "image/png"}
	}
	c := session.UserText("look").WithImages(all...)
	all[0].Size = 99
	if got := c.Images(); len(got) != session.MaxImages || got[0].Size != 0 {
		t.Errorf("%d images, the first is %v", len(got), got[0])
	}
	if c.Equal(session.UserText("look")) || !c.Equal(c.Of(session.Origin{Agent: "a"})) {
		t.Error("Equal does not look at images")
	}
	back, err := session.DecodeChunk(session.ChunkEvent(c).Of(nil))
	if err != nil || !back.Equal(c) {
		t.Errorf("%v reads back as %v: %v", c.Images(), back.Images(), err)
	}
}
