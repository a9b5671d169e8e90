package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// FuzzMessages changes a byte range of a message of a healthy system. The audit ends, with
// or without violations, and never panics, even for arbitrary messages.
func FuzzMessages(f *testing.F) {
	f.Add(uint16(3), uint16(10), []byte("x"))
	f.Add(uint16(0), uint16(0), []byte(`{"epoch":1,"events":[]}`))
	f.Add(uint16(40), uint16(300), []byte(`"seq":18446744073709551615`))
	f.Add(uint16(70), uint16(9), []byte(`{"commit":99999999999,"k":-1}`))
	base := story(newWorld(f, nil))
	var all []audit.Message
	for m, err := range base.messages() {
		must.Do(f, err)
		all = append(all, m)
	}
	f.Fuzz(func(t *testing.T, n, offset uint16, with []byte) {
		changed := slices.Clone(all)
		i := int(n) % len(changed)
		data := bytes.Clone(changed[i].Data)
		if int(offset) < len(data) {
			copy(data[offset:], with)
		} else {
			data = with
		}
		changed[i].Data = data
		for _, open := range []bool{false, true} {
			must.Get(audit.Run(t.Context(), streamed(changed), &audit.Options{Schemas: schemas, Open: open, Secrets: []string{"k"}}))(t)
		}
	})
}

func streamed(all []audit.Message) func(func(audit.Message, error) bool) {
	return func(yield func(audit.Message, error) bool) {
		for _, m := range all {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// FuzzEvent changes fields of an event so that the commit stays valid: values that the
// schema allows reach every check.
func FuzzEvent(f *testing.F) {
	f.Add("s1", uint8(3), uint8(0), "attempt", "7")
	f.Add("p1", uint8(2), uint8(0), "branches", `[{"name":"a","session":"p1"}]`)
	f.Add("t1", uint8(12), uint8(0), "for", `[]`)
	f.Add("p1", uint8(5), uint8(1), "value", `"[{}]"`)
	f.Add("s2", uint8(1), uint8(1), "parents", `[]`)
	f.Add("p2", uint8(1), uint8(2), "task", `{"branch":{"ancestors":[],"base":{"hash":"`+zeros+`","seq":0,"session":"x","tenant":"acme","token":0,"version":0},"name":"","path":"","root":"p1"},"run":"p2","workflow":"w"}`)
	f.Fuzz(func(t *testing.T, session string, seq, n uint8, field, value string) {
		var v any
		d := json.NewDecoder(strings.NewReader(value))
		d.UseNumber()
		if d.Decode(&v) != nil || strings.ContainsAny(value, ".eE") {
			return
		}
		w := newWorld(t, nil)
		w.hook = func(e *envelope) {
			if e.session == session && e.seq == uint64(seq) && len(e.facts) > 0 {
				// The world continues with the original fact.
				fact := &e.facts[int(n)%len(e.facts)]
				changed := object{}
				maps.Copy(changed, fact.data)
				changed[field] = v
				e.instead = map[int]object{int(n) % len(e.facts): changed}
			}
		}
		story(w).audited()
	})
}

// FuzzDump reads any bytes as a dump.
func FuzzDump(f *testing.F) {
	var b bytes.Buffer
	w := audit.NewWriter(&b)
	for m := range story(newWorld(f, nil)).messages() {
		must.Do(f, w.Write(m))
	}
	must.Do(f, w.Flush())
	f.Add(b.Bytes())
	f.Add([]byte(`{"rath_dump":1}` + "\n" + `{"stream":"EV_1_0","seq":1,"subject":"rath.ev.1.0.a.b","data":"e30="}`))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = audit.Run(t.Context(), audit.ReadDump(bytes.NewReader(data)), &audit.Options{Schemas: schemas})
	})
}

// TestDump writes and reads a dump and checks that the audit's report is the same.
func TestDump(t *testing.T) {
	var b bytes.Buffer
	w := audit.NewWriter(&b)
	for m := range story(newWorld(t, set("t1", 14, "run.received", "wake", 2))).messages() {
		must.Do(t, w.Write(m))
	}
	must.Do(t, w.Flush())
	want := story(newWorld(t, set("t1", 14, "run.received", "wake", 2))).audited()
	got, err := audit.Run(t.Context(), audit.ReadDump(&b), &audit.Options{Schemas: schemas})
	if err != nil || violations(got) != violations(want) || got.OK() {
		t.Errorf("error %v, found\n%swant\n%s", err, violations(got), violations(want))
	}
}

// TestNoDump checks that a file that is not a dump, or a damaged one, is an error.
func TestNoDump(t *testing.T) {
	for _, text := range []string{"", "\n", "{}\n", `{"rath_dump":2}` + "\n", `{"stream":"EV_1_0"}` + "\n"} {
		if _, err := audit.Run(t.Context(), audit.ReadDump(strings.NewReader(text)), &audit.Options{Schemas: schemas}); !errors.Is(err, audit.ErrInput) {
			t.Errorf("%q: error %v, want %v", text, err, audit.ErrInput)
		}
	}
}

// TestDamaged drops, duplicates, swaps and corrupts facts all over the story. The audit
// never panics, and nearly always finds a violation.
func TestDamaged(t *testing.T) {
	values := []any{nil, 0, 1, 2, 99, "", "s1", "p2", "r1", "q1", "x/y", headA, zeros, true, []any{}, []any{"p2"}, object{}, object{"session": "s1", "tenant": "acme"}, "waiting", "[]", "[{}]"}
	broken := 0
	const tries = 300
	for seed := range tries {
		r := rand.New(rand.NewPCG(uint64(seed), 7)) //nolint:gosec // a test's own numbers
		w := newWorld(t, nil)
		w.hook = func(e *envelope) {
			if r.IntN(12) != 0 {
				return
			}
			i := r.IntN(len(e.facts))
			switch r.IntN(6) {
			case 0:
				e.skip = map[int]bool{i: true}
			case 1:
				e.again = map[int]bool{i: true}
			case 2, 3:
				changed := maps.Clone(e.facts[i].data)
				fields := slices.Sorted(maps.Keys(changed))
				if len(fields) > 0 {
					changed[fields[r.IntN(len(fields))]] = values[r.IntN(len(values))]
				}
				e.instead = map[int]object{i: changed}
			case 4:
				e.twice = true
			case 5:
				e.epoch += uint64(r.IntN(3)) //nolint:gosec // small
			}
		}
		if !story(w).audited(func(o *audit.Options) { o.Open = seed%5 == 0 }).OK() {
			broken++
		}
	}
	if broken < tries*9/10 {
		t.Errorf("%d of %d damaged systems passed", tries-broken, tries)
	}
}
