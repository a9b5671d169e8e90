package exchange

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// The Joiner restores a text from any fragments, in JSON strings of any form.
func TestJoinerAtEveryCut(t *testing.T) {
	text := "a\"\\/\b\f\n\r\tß€🙂\u2028z"
	var escaped strings.Builder
	for _, r := range text {
		if r >= 0x10000 {
			r -= 0x10000
			escaped.WriteString(`\u` + hex4(0xD800+r>>10) + `\u` + hex4(0xDC00+r&0x3FF))
			continue
		}
		escaped.WriteString(`\u` + hex4(r))
	}
	// Cuts between bytes.
	for i := range len(text) + 1 {
		var j Joiner
		got := j.Add(rawString(text[:i])) + j.Add(rawString(text[i:])) + j.Flush()
		if got != text {
			t.Errorf("cut at byte %d: %q", i, got)
		}
	}
	// Cuts between escapes, also between the halves of a pair.
	for i := 0; i <= escaped.Len(); i += 6 {
		var j Joiner
		first := j.Add(json.RawMessage(`"` + escaped.String()[:i] + `"`))
		if !utf8.ValidString(first) {
			t.Errorf("cut at escape %d: %q", i/6, first)
		}
		got := first + j.Add(json.RawMessage(`""`)) + j.Add(json.RawMessage(`"`+escaped.String()[i:]+`"`)) + j.Flush()
		if got != text {
			t.Errorf("cut at escape %d: %q", i/6, got)
		}
	}
}

func hex4(r rune) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15]})
}

// rawString makes a JSON string of bytes that need not be UTF-8.
func rawString(s string) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ':
			b.WriteString(`\u` + hex4(rune(c)))
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.Bytes()
}

func FuzzJoiner(f *testing.F) {
	f.Add([]byte(`"a🙂"`), []byte(`"\ud83d"`), []byte(`"\ude42"`))
	f.Add([]byte("\"\xf0\x9f\""), []byte("\"\x99\x82\""), []byte(`"\n"`))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var j Joiner
		var got strings.Builder
		var want []byte
		plain := true
		for _, raw := range [][]byte{a, b, c} {
			if !json.Valid(raw) || bytes.TrimSpace(raw)[0] != '"' {
				return
			}
			piece := j.Add(raw)
			if !utf8.ValidString(piece) {
				t.Fatalf("%q is not UTF-8", piece)
			}
			got.WriteString(piece)
			var s string
			must.Do(t, json.Unmarshal(raw, &s))
			want = append(want, s...)
			plain = plain && utf8.Valid(raw) && !bytes.Contains(raw, []byte(`\u`))
		}
		got.WriteString(j.Flush())
		if !utf8.ValidString(got.String()) {
			t.Fatalf("%q is not UTF-8", got.String())
		}
		if plain && got.String() != string(want) {
			t.Fatalf("got %q, want %q", got.String(), want)
		}
	})
}

// read returns the events of a stream.
func read(r io.Reader, limit int) (all []string, err error) {
	for s := newEvents(r, limit); ; {
		raw, err := s.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, string(raw))
	}
}

func TestEventsDoNotDependOnHowTheyArrive(t *testing.T) {
	for _, s := range []string{
		"data: {\"a\":1}\n\ndata: [DONE]\n\n",
		"data:{\"a\":\ndata:1}\r\n\r\n: c\r\rid: 7\r\ndata: {}\rdata: {}\r\r",
		"event: error\ndata: oh\n\nevent: error\ndata: {\"m\":1}\n\n{\"error\":1}\n\n",
		"data: {\"a\":1}", "data: {\"a\":", "", "\n\n\n", "data\n\ndata:\n\n", "hello\n\n",
	} {
		want, wantErr := read(strings.NewReader(s), 1000)
		for name, r := range map[string]io.Reader{
			"bytes": iotest.OneByteReader(strings.NewReader(s)), "halves": iotest.HalfReader(strings.NewReader(s)), "data with the error": iotest.DataErrReader(strings.NewReader(s)),
		} {
			got, err := read(r, 1000)
			if !slices.Equal(got, want) || !errors.Is(err, wantErr) {
				t.Errorf("%q in %s: %q, %v; want %q, %v", s, name, got, err, want, wantErr)
			}
		}
	}
	if _, err := read(strings.NewReader("data: "+strings.Repeat("x", 100)+"\n\n"), 99); !errors.Is(err, errFrameSize) {
		t.Error(err)
	}
	if _, err := read(strings.NewReader(strings.Repeat("data: xxxxxxxxxx\n", 10)), 99); !errors.Is(err, errFrameSize) {
		t.Error(err)
	}
}
