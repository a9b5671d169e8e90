package blob_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/blob/blobtest"
	"github.com/rathcluster/rath/internal/testkit/must"
)

func TestMemory(t *testing.T) {
	blobtest.TestStore(t, func() blob.Store { return blob.NewMemory() })
}

func TestMemoryCountsBlobsOnce(t *testing.T) {
	m := blob.NewMemory()
	for _, s := range []string{"a", "b", "a"} {
		must.Get(m.Put(t.Context(), strings.NewReader(s)))(t)
	}
	if n := m.(interface{ Len() int }).Len(); n != 2 {
		t.Errorf("Len = %d, want 2", n)
	}
}

func TestDigestText(t *testing.T) {
	d := blob.Sum([]byte("x"))
	for _, tt := range []struct {
		in   string
		want blob.Digest
		bad  bool
	}{
		{in: d.String(), want: d},
		{in: "", bad: true},
		{in: d.String()[1:], bad: true},
		{in: d.String() + "0", bad: true},
		{in: strings.Repeat("g", 64), bad: true},
	} {
		got, err := blob.ParseDigest(tt.in)
		if (err != nil) != tt.bad || got != tt.want {
			t.Errorf("ParseDigest(%q) = %v, %v", tt.in, got, err)
		}
	}
	type doc struct{ D blob.Digest }
	for _, want := range []doc{{d}, {}} {
		data := must.Get(json.Marshal(want))(t)
		var got doc
		if err := json.Unmarshal(data, &got); err != nil || got != want {
			t.Errorf("%s decodes to %v, %v", data, got, err)
		}
	}
	if len(d.Short()) != 12 || !strings.HasPrefix(d.String(), d.Short()) {
		t.Errorf("Short = %q", d.Short())
	}
}

func TestVerify(t *testing.T) {
	data := []byte("some bytes that are long enough to be read in parts")
	whole := func(d blob.Digest, r io.Reader) ([]byte, error) {
		return io.ReadAll(blob.Verify(io.NopCloser(r), d))
	}
	got, err := whole(blob.Sum(data), iotest.OneByteReader(bytes.NewReader(data)))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("right bytes: %q, %v", got, err)
	}
	got, err = whole(blob.Sum(data), iotest.DataErrReader(bytes.NewReader(data)))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("bytes that come with EOF: %q, %v", got, err)
	}
	if _, err = whole(blob.Sum(data), bytes.NewReader(data[1:])); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("wrong bytes: %v", err)
	}
	broken := errors.New("broken")
	if _, err = whole(blob.Sum(data), iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("broken reader: %v", err)
	}

	r := blob.Verify(io.NopCloser(strings.NewReader("no")), blob.Sum(data))
	_, first := io.ReadAll(r)
	if _, second := r.Read(make([]byte, 1)); !errors.Is(second, blob.ErrCorrupt) || !errors.Is(first, blob.ErrCorrupt) {
		t.Errorf("errors are not sticky: %v, then %v", first, second)
	}
}
