package session

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// every has a field of each kind that events and records have.
type every struct {
	Bool   bool        `json:"bool,omitempty"`
	Count  int         `json:"count,omitempty"`
	Digest blob.Digest `json:"digest,omitzero"`
	Hash   Hash        `json:"hash,omitzero"`
	Inner  struct {
		Key  Key    `json:"key,omitzero"`
		Name string `json:"name"`
	} `json:"inner,omitzero"`
	Int    int64    `json:"int,omitempty"`
	Key    *Key     `json:"key,omitempty"`
	Link   *Link    `json:"link,omitempty"`
	Links  []Link   `json:"links"`
	Part   uint32   `json:"part,omitempty"`
	Plain  string   // its key is its name
	Texts  []string `json:"texts,omitempty"`
	Uint   uint64   `json:"uint,omitempty"`
	Usages []Usage  `json:"usages,omitempty"`
	Usage  Usage    `json:"usage,omitzero"`
}

func full() *every {
	l := Link{Ref{Key{"t", "s"}, 7}, 1 << 60, Hash{3}, 9}
	v := &every{
		Bool: true, Count: 4, Digest: blob.Digest{1}, Hash: Hash{2}, Int: math.MaxInt64, Key: &Key{"t", "a \"b\"\n\u2028 \u00e9"}, Link: &l,
		Links: []Link{l, {}}, Part: math.MaxUint32, Plain: "<&>", Texts: []string{"", "x"}, Uint: math.MaxUint64,
		Usages: []Usage{{}, {1, 2, 3, 4, 5, 6}}, Usage: Usage{Output: 1},
	}
	v.Inner.Name, v.Inner.Key.ID = "n", "i"
	return v
}

// scanned uses the fast decoder only.
func scanned(data string, into any) bool {
	r := reader{Reader: canonical.Reader{S: data}}
	v := reflect.ValueOf(into).Elem()
	s := scanOf(v.Type())
	return s != nil && s(&r, v) && r.I == len(data)
}

// TestUnmarshalIsQuick: the output of Marshal is not left to encoding/json, even if it
// is so long that texts are copied one by one.
func TestUnmarshalIsQuick(t *testing.T) {
	long := full()
	long.Plain = strings.Repeat("x", sharedText)
	for _, v := range []*every{{}, {Links: []Link{}}, full(), long} {
		data := must.Get(canonical.Marshal(v))(t)
		var quick, got every
		if !scanned(data, &quick) {
			t.Errorf("%s was left to encoding/json", data)
		}
		if err := Unmarshal(data, &got); err != nil {
			t.Errorf("%s: %v", data, err)
		}
		for _, got := range []*every{&quick, &got} {
			if diff := cmp.Diff(v, got, cmp.AllowUnexported(every{})); diff != "" {
				t.Errorf("%s reads differently (-want +got):\n%s", data, diff)
			}
		}
	}
	for _, v := range []any{&Opening{}, &Closing{}, &Join{}} {
		data, err := canonical.Marshal(v)
		if err != nil || !scanned(data, v) {
			t.Errorf("%T %s was left to encoding/json, %v", v, data, err)
		}
	}
}

// TestUnmarshalPartIsQuick: a reader of some fields passes over all others.
func TestUnmarshalPartIsQuick(t *testing.T) {
	data := canonical.MustMarshal(full())
	var got struct {
		Count int   `json:"count"`
		Usage Usage `json:"usage"`
	}
	if !scanned(data, &got) || got.Count != full().Count || got.Usage != full().Usage {
		t.Errorf("of %s it read %+v, or left it to encoding/json", data, got)
	}
}

// FuzzUnmarshal: Unmarshal and encoding/json read the same from any text.
func FuzzUnmarshal(f *testing.F) {
	data := must.Get(canonical.Marshal(full()))(f)
	f.Add(data)
	for _, s := range []string{
		"", "{}", "null", "[]", `{"bool":null}`, `{"bool":false,"bool":true}`, `{"Bool":true}`, `{"count":-1}`, `{"count":1.0}`, `{"digest":""}`,
		`{"digest":"x"}`, `{"inner":{"name":"a"},"int":1,"later":{}}`, `{"int":9223372036854775808}`, `{"key":null,"links":[]}`, `{"links":null}`,
		`{"links":[null]}`, `{"part":4294967296}`, `{"texts":["\ud800"]}`, `{"texts":[],"uint":1}`, ` {"uint" : 1}`, `{"uint":1}x`, `{"hidden":1}`,
		`{"link":{"hash":"00","seq":1}}`, `{"usage":{"output":1,"input":2}}`, `{"plain":"x"}`, `{"Plain":"\u0041"}`, `{"bool":true,}`,
		`{"a":{"b":[1,"x"]},"bool":true,"z":1}`, `{"count":1,"later":1}`, `{"later":1,"bool":true}`, `{"COUNT":2,"count":1}`, `{"a":1.5,"count":1}`, `{"\u017fame":1}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		var quick, slow every
		quickErr, slowErr := Unmarshal(data, &quick), json.Unmarshal([]byte(data), &slow)
		if (quickErr == nil) != (slowErr == nil) {
			t.Fatalf("%q: %v and %v", data, quickErr, slowErr)
		}
		if diff := cmp.Diff(slow, quick, cmp.AllowUnexported(every{})); slowErr == nil && diff != "" {
			t.Fatalf("%q reads differently (-json +quick):\n%s", data, diff)
		}
	})
}

func BenchmarkUnmarshal(b *testing.B) {
	data := must.Get(canonical.Marshal(full()))(b)
	b.Run("quick", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v every
			must.Do(b, Unmarshal(data, &v))
		}
	})
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v every
			must.Do(b, json.Unmarshal([]byte(data), &v))
		}
	})
}
