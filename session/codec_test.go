package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

func sample() commitlog.Commit {
	link := session.Link{Ref: session.Ref{Key: key("parent"), Version: 7}, Seq: 4, Hash: session.Hash{1, 2, 3}, Token: 99}
	all := session.AssistantText("line one\nline \"two\" <b> \u2028 \x7f \u00e9 \U0001F600 \xff end",
		session.ToolCall{ID: "call-1", Name: "read", Args: `{"path":"a\tb","n":1.5}`}).
		Of(session.Origin{
			Agent: "writer", Workflow: "report", Node: "n1", Run: "r1", Step: "2.fast.0", Time: at(5),
			Placement: session.Placement{Backend: "local", Epoch: 3, Head: blob.Digest{9}, Isolation: "process", Spec: "./dir"},
			Usage:     session.Usage{Calls: 1, Input: 10, Output: 3, CacheRead: 4, CacheWrite: 5, MicroUSD: 77},
		}).WithBody(blob.Ref{Digest: blob.Digest{8}, Size: 123}).WithOpaque("sig").WithImages(session.Image{Digest: blob.Digest{6}, Size: 5, Type: "image/png"})
	events := []session.Event{
		session.OpenedEvent(session.Opening{Kind: session.OpenFork, Name: "fast", Parents: []session.Link{link}, Run: "r1", Step: "2"}),
		session.ChunkEvent(all),
		session.ChunkEvent(session.Result("call-1", "read", `{"ok":false}`, true)),
		session.PlacedEvent(session.Placement{Backend: "docker", Spec: "alpine"}),
		session.JoinedEvent(session.Join{
			Parents: []session.Part{{From: 2, Link: link, To: 7}}, Policy: session.JoinAdopt, Reason: "better",
			Usage: session.Usage{Calls: 2, Input: 20}, Placement: session.Placement{Backend: "local"},
		}),
		commitlog.RejectedEvent(commitlog.Rejection{Branch: link, Reason: "slow", State: session.ClosedRejected}),
		session.ClosedEvent(session.Closing{By: key("parent"), Reason: "adopted \xc3", State: session.ClosedAdopted}),
		{Kind: "step.done", Schema: 1, Data: `{"a":[1,-2,{"b":null}],"c":true}`},
		{Kind: "session.chunk", Schema: 1, Blob: blob.Ref{Digest: blob.Digest{7}, Size: 40 << 10}},
	}
	for i := range events {
		events[i].Time = at(i)
		events[i].Batch = "r1/2"
	}
	return commitlog.Commit{Key: key("s1"), Root: "root", Seq: 5, Epoch: 2, Prev: session.Hash{0xab}, Events: events}
}

func TestEncodeDecode(t *testing.T) {
	c := sample()
	raw, err := commitlog.Encode(c)
	must.Do(t, err)
	if !json.Valid(raw) {
		t.Fatalf("not JSON: %s", raw)
	}
	back, err := commitlog.Decode(raw)
	must.Do(t, err)
	if diff := cmp.Diff(c, back); diff != "" {
		t.Errorf("decoded commit differs (-want +got):\n%s", diff)
	}
	again, err := commitlog.Encode(back)
	if err != nil || !bytes.Equal(raw, again) {
		t.Errorf("Encode(Decode(x)) differs: %v\n%s\n%s", err, raw, again)
	}
	// Every object has its keys in order, as any reader can check.
	var tree any
	must.Do(t, json.Unmarshal(raw, &tree))
	text, err := canonical.Marshal(tree)
	if err != nil || text != string(raw) {
		t.Errorf("sorting the keys of a commit changes it: %v\n%s\n%s", err, raw, text)
	}
}

func TestDecodeRefuses(t *testing.T) {
	raw := must.Get(commitlog.Encode(sample()))(t)
	change := func(old, new string) []byte {
		if !bytes.Contains(raw, []byte(old)) {
			t.Fatalf("sample has no %q", old)
		}
		return bytes.Replace(raw, []byte(old), []byte(new), 1)
	}
	for name, c := range map[string]struct {
		raw  []byte
		want error
	}{
		"nothing":               {nil, session.ErrForeign},
		"not JSON":              {[]byte("hello"), session.ErrForeign},
		"white space":           {append([]byte(" "), raw...), session.ErrForeign},
		"something after it":    {append(bytes.Clone(raw), '\n'), session.ErrForeign},
		"white space in data":   {change(`{"a":[1`, `{"a": [1`), session.ErrForeign},
		"a float":               {change(`[1,`, `[1.0,`), session.ErrForeign},
		"an exponent":           {change(`[1,`, `[1e2,`), session.ErrForeign},
		"a leading zero":        {change(`"epoch":2`, `"epoch":02`), session.ErrForeign},
		"minus zero":            {change(`-2`, `-0`), session.ErrForeign},
		"an unknown field":      {change(`"prev"`, `"pref":1,"prev"`), session.ErrForeign},
		"keys out of order":     {change(`"c":true}`, `"c":true,"b":1}`), session.ErrForeign},
		"a key twice":           {change(`"c":true}`, `"c":true,"c":true}`), session.ErrForeign},
		"a needless escape":     {change(`"root":"root"`, `"root":"\u0072oot"`), session.ErrForeign},
		"an escaped slash":      {change(`"root":"root"`, `"root":"ro\/ot"`), session.ErrForeign},
		"upper-case digest":     {change(`"prev":"ab`, `"prev":"AB`), session.ErrForeign},
		"an empty batch":        {change(`"batch":"r1/2"`, `"batch":""`), session.ErrForeign},
		"invalid UTF-8":         {change(`"root":"root"`, "\"root\":\"r\xff\""), session.ErrForeign},
		"a raw line separator":  {change(`\u2028`, "\u2028"), session.ErrForeign},
		"a later envelope":      {change(`"format":1`, `"format":2`), session.ErrTooOld},
		"a later other shape":   {[]byte(`{"format":9,"body":"x"}`), session.ErrTooOld},
		"an absurd epoch":       {change(`"epoch":2`, `"epoch":18446744073709551616`), session.ErrForeign},
		"a time before the era": {change(`"time":1700000000000`, `"time":-1`), session.ErrForeign},
	} {
		if _, err := commitlog.Decode(c.raw); !errors.Is(err, c.want) {
			t.Errorf("%s: Decode = %v, want %v", name, err, c.want)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	one := func(e session.Event) commitlog.Commit {
		return commitlog.Commit{Key: key("s"), Root: "s", Seq: 1, Events: []session.Event{e}}
	}
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for name, e := range map[string]session.Event{
		"no data":         {Kind: "a.b", Schema: 1},
		"not JSON":        {Kind: "a.b", Schema: 1, Data: `{`},
		"injected fields": {Kind: "a.b", Schema: 1, Data: `1,"kind":"c.d"`},
		"white space":     {Kind: "a.b", Schema: 1, Data: `{ }`},
		"a float":         {Kind: "a.b", Schema: 1, Data: `1.5`},
		"unsorted keys":   {Kind: "a.b", Schema: 1, Data: `{"b":1,"a":1}`},
		"too deep":        {Kind: "a.b", Schema: 1, Data: deep},
		"bad schema":      {Kind: "a.b", Schema: -1, Data: `{}`},
	} {
		if raw, err := commitlog.Encode(one(e)); err == nil {
			t.Errorf("%s: encoded as %s", name, raw)
		}
	}
	big := session.ChunkEvent(session.UserText(strings.Repeat("x", commitlog.MaxCommit)))
	if _, err := commitlog.Encode(one(big)); !errors.Is(err, session.ErrTooLarge) {
		t.Errorf("Encode of %d bytes = %v, want ErrTooLarge", len(big.Data), err)
	}
}

// TestTimes: a time outside of a commit's range is brought into range, so that encoding
// and decoding agree.
func TestTimes(t *testing.T) {
	for _, when := range []time.Time{{}, time.Unix(-5, 0), time.UnixMilli(math.MaxInt64), at(1)} {
		raw := must.Get(commitlog.Encode(commitlog.Commit{Key: key("s"), Root: "s", Seq: 1, Events: []session.Event{
			{Kind: "a.b", Schema: 1, Data: `{}`, Time: when},
		}}))(t)
		if _, err := commitlog.Decode(raw); err != nil {
			t.Errorf("%v: %v", when, err)
		}
	}
}

func TestMarshalSorts(t *testing.T) {
	type odd struct {
		Z int               `json:"z"`
		A string            `json:"a"`
		M map[string]uint64 `json:"m"`
	}
	got, err := canonical.Marshal(odd{1, "<\u2029>", map[string]uint64{"y": math.MaxUint64, "x": 0}})
	if want := `{"a":"<\u2029>","m":{"x":0,"y":18446744073709551615},"z":1}`; err != nil || got != want {
		t.Errorf("Marshal = %s, %v; want %s", got, err, want)
	}
	for _, v := range []any{1.5, map[string]any{"x": 1e21}, func() {}} {
		if s, err := canonical.Marshal(v); err == nil {
			t.Errorf("Marshal(%v) = %s, want an error", v, s)
		}
	}
}

func FuzzDecode(f *testing.F) {
	raw := must.Get(commitlog.Encode(sample()))(f)
	f.Add(raw)
	f.Add([]byte(`{"epoch":0,"events":[],"format":1,"prev":"` + strings.Repeat("0", 64) + `","root":"","seq":0,"session":"","tenant":""}`))
	f.Add([]byte(`{"epoch":1,"events":[{"data":{"a":"\u001f\b"},"kind":"x","schema":1,"time":0}],"format":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := commitlog.Decode(raw)
		if err != nil {
			if !errors.Is(err, session.ErrForeign) && !errors.Is(err, session.ErrTooOld) {
				t.Fatalf("unmarked error: %v", err)
			}
			return
		}
		again, err := commitlog.Encode(c)
		if err != nil || !bytes.Equal(raw, again) {
			t.Fatalf("accepted %q, encoded as %q, %v", raw, again, err)
		}
		if !json.Valid(raw) {
			t.Fatalf("accepted invalid JSON: %q", raw)
		}
		// The values are independent of the batching into commits and never panic.
		s := session.Open(c.Key, c.Root)
		for _, e := range c.Events {
			if next, err := session.Apply(s, e, nil); err == nil {
				s = next
			}
		}
		for range s.Chunks() {
		}
	})
}

// FuzzApply folds events of this package's kinds with arbitrary data.
func FuzzApply(f *testing.F) {
	for _, e := range sample().Events {
		f.Add(e.Kind, e.Data, e.Schema)
	}
	f.Fuzz(func(t *testing.T, kind, data string, schema int) {
		w := newWorld(t)
		base := w.open(key("base"), session.Opening{Kind: session.OpenLeaf}, session.ChunkEvent(session.UserText("x")))
		before := describe(base)
		for _, s := range []session.Session{{}, session.Open(key("s"), "s"), base} {
			next, err := session.Apply(s, session.Event{Kind: kind, Schema: schema, Data: data, Time: at(0)}, anything(base))
			if err == nil {
				describe(next)
				continue
			}
			if next.Ref() != s.Ref() || next.Len() != s.Len() {
				t.Fatalf("failed with %v and changed %s to %s", err, s.Ref(), next.Ref())
			}
		}
		if diff := cmp.Diff(before, describe(base)); diff != "" {
			t.Fatalf("changed an old value:\n%s", diff)
		}
	})
}

// anything resolves every link to one value.
func anything(s session.Session) func(session.Link) (session.Session, error) {
	return func(session.Link) (session.Session, error) { return s, nil }
}
