package messages_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// section returns the text below a heading, up to the next one of its kind.
func section(t *testing.T, heading string) string {
	t.Helper()
	text := messages.Format()
	i := strings.Index(text, "\n"+heading+"\n")
	if i < 0 {
		t.Errorf("FORMAT.md has no heading %q", heading)
		return ""
	}
	rest := text[i+len(heading)+2:]
	level := heading[:strings.IndexByte(heading, ' ')+1]
	for _, next := range []string{"\n## ", "\n" + level} {
		if j := strings.Index(rest, next); j >= 0 {
			rest = rest[:j]
		}
	}
	return rest
}

func demand(t *testing.T, where, text string, names ...string) {
	t.Helper()
	for _, n := range names {
		if !strings.Contains(text, "`"+n+"`") {
			t.Errorf("%s of FORMAT.md does not name `%s`", where, n)
		}
	}
}

// TestFormatNamesEveryEvent: each kind has a heading, and below it each field.
func TestFormatNamesEveryEvent(t *testing.T) {
	s := schemaOf(t, "commit.v1")
	for name, def := range s.Defs {
		if !strings.Contains(name, ".") {
			continue
		}
		text := section(t, "### `"+name+"`")
		if name == journal.KindLate {
			continue // it is described as like step.done
		}
		for field := range def.Properties {
			demand(t, name, text, field)
		}
		if kind := def.Properties["kind"]; kind != nil {
			for _, value := range kind.Enum {
				demand(t, name, text, fmt.Sprint(value))
			}
		}
	}
	for _, kind := range []string{
		session.KindOpened, session.KindChunk, session.KindPlaced, session.KindJoined, session.KindRejected, session.KindClosed,
		journal.KindSubmitted, journal.KindClaimed, journal.KindReleased, journal.KindReview, journal.KindResolved, journal.KindCancel, journal.KindWarning, journal.KindEnded, journal.KindSettled,
		journal.KindRunWaiting, journal.KindSignalReceived, journal.KindFanOut, journal.KindBranchesReleased, journal.KindCacheWarmed, journal.KindBranchOutcomes, journal.KindQuarantined, journal.KindRebudgeted,
		journal.KindStepStarted, journal.KindStepCompleted, journal.KindLate, journal.KindWriter, journal.KindGranted, journal.KindLimitRequested, journal.KindLimitDecided, journal.KindLimitReleased, journal.KindLimitSet, journal.KindLimitBlocked,
		journal.KindEventPublished, journal.KindEventAwaited, journal.KindEventDelivered, journal.KindEventReleased, journal.KindKeyClosed,
	} {
		if s.Defs[kind] == nil {
			t.Errorf("the schema of the commit does not define %s", kind)
		}
	}
}

// TestFormatKnowsTheSources reads the constants out of the code, so that a
// kind, a code or a verb that is added there is missed here.
func TestFormatKnowsTheSources(t *testing.T) {
	all := messages.Format()
	for _, src := range []struct{ file, pattern string }{
		{"../session/event.go", `(?m)^\s*Kind[A-Z]\w*\s+= "([a-z_.]+)"`},
		{"../session/event.go", `(?m)^\s*(?:Open|Closed|Join)[A-Z]\w*\s+= "([a-z_.]+)"`},
		{"../internal/core/journal/event.go", `(?m)^\s*(?:const )?Kind[A-Z]\w*\s+= "([a-z_.]+)"`},
		{"../internal/core/journal/limit.go", `(?m)^\s*Kind[A-Z]\w*\s+= "([a-z_.]+)"`},
		{"../internal/core/journal/event.go", `(?m)^\s*Step[A-Z]\w*\s+= "([a-z_.]+)"`},
		{"../run/code.go", `(?m)^\s*Code[A-Z]\w*\s+Code = "([a-z_.]+)"`},
		{"../run/run.go", `(?m)^\s*\w+\s+State = "(succeeded|failed|cancelled|timed_out)"`},
		{"kind.go", `(?m)^\s*\w+\s+Kind = "([a-z_.]+)"`},
		{"control.go", `(?m)^\s*Verb[A-Z]\w*\s+= "([a-z_]+)"`},
		{"query.go", `(?m)^\s*Query[A-Z]\w*\s+= "([a-z_]+)"`},
	} {
		code := must.Get(os.ReadFile(src.file))(t)
		found := regexp.MustCompile(src.pattern).FindAllStringSubmatch(string(code), -1)
		if len(found) < 2 {
			t.Errorf("%s: %d constants match %s", src.file, len(found), src.pattern)
		}
		for _, m := range found {
			demand(t, src.file, all, m[1])
		}
	}
}

func TestFormatNamesEveryMessage(t *testing.T) {
	for _, k := range messages.Kinds() {
		demand(t, "lineage records", section(t, "## Lineage records"), string(k))
	}
	for _, f := range lineage.SelectorFields() {
		demand(t, "selectors", section(t, "## Selectors"), f.Name)
		if !strings.Contains(section(t, "## Selectors"), f.Doc) {
			t.Errorf("FORMAT.md does not say of the field %s that it is %q", f.Name, f.Doc)
		}
	}
	for _, name := range messages.Schemas() {
		if !strings.Contains(messages.Format(), "`"+name+"`") {
			t.Errorf("FORMAT.md does not name the schema %s", name)
		}
	}
	for _, m := range []struct {
		heading string
		v       any
	}{
		{"## Lineage records", messages.Record{}},
		{"## Tasks", messages.Task{}},
		{"## Tasks", messages.Budget{}},
		{"## Messages of a run", messages.Result{}},
		{"## Messages of a run", messages.Delta{}},
		{"## Control", messages.Control{}},
		{"## Queries", wire.Query{}},
		{"## Other messages", messages.DeadLetter{}},
	} {
		text := section(t, m.heading)
		if m.heading == "## Other messages" {
			text += "`schema`"
		}
		typ := reflect.TypeOf(m.v)
		for field := range typ.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			demand(t, m.heading, text, name)
		}
	}
}

// TestFormatExampleIsACommit reads the example as a log would.
func TestFormatExampleIsACommit(t *testing.T) {
	text := section(t, "## Commits")
	_, rest, ok := strings.Cut(text, "```json\n")
	raw, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatal("no example")
	}
	c, hash, err := commitlog.Successor(session.Key{Tenant: "acme", ID: "s1"}, commitlog.Position{}, []byte(raw))
	if err != nil || hash != commitlog.HashOf([]byte(raw)) || len(c.Events) != 1 {
		t.Errorf("%v", err)
	}
	must.Report(t, validate(resolved(t, "commit.v1"), []byte(raw)))
	if !strings.Contains(messages.Format(), "786,432") || commitlog.MaxCommit != 786_432 || commitlog.Format != 1 || session.Schema != 1 || journal.Schema != 1 {
		t.Error("the numbers of FORMAT.md are not those of the code")
	}
}

// TestFormatEscapes checks the rules of FORMAT.md about strings.
func TestFormatEscapes(t *testing.T) {
	var all []rune
	for r := range rune(0x100) {
		all = append(all, r)
	}
	got := must.Get(canonical.Marshal(string(all) + "\u2028\u2029\uffff😀"))(t)
	var want strings.Builder
	want.WriteByte('"')
	short := map[rune]string{'\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '"': `\"`, '\\': `\\`}
	for _, r := range all {
		switch {
		case short[r] != "":
			want.WriteString(short[r])
		case r < 0x20:
			want.WriteString(`\u00`)
			want.WriteByte("01"[r>>4])
			want.WriteByte("0123456789abcdef"[r&15])
		default:
			want.WriteRune(r)
		}
	}
	want.WriteString(`\u2028\u2029` + "\uffff😀\"")
	if got != want.String() {
		t.Errorf("got  %s\nwant %s", got, want.String())
	}
	for _, v := range []any{1.5, map[string]any{"x": json.Number("1e3")}} {
		if s, err := canonical.Marshal(v); err == nil {
			t.Errorf("%v became %s", v, s)
		}
	}
	if s, err := canonical.Marshal(map[string]int{"b": 1, "a": 2, "B": 3}); err != nil || s != `{"B":3,"a":2,"b":1}` {
		t.Errorf("%s %v", s, err)
	}
	if !slices.Contains(messages.Schemas(), "commit.v1") {
		t.Error("no schema of the commit")
	}
}

// TestFormatStatement: the example of a statement is the result's statement.
func TestFormatStatement(t *testing.T) {
	r := messages.Result{
		Run: "r7", State: run.Succeeded, Session: "r7", Version: 9, Output: "hello", EndedMS: 1795541400123,
		Chain: &messages.Chain{Session: "r7", Seq: 12, Hash: "5be1c0d2a7f3a1b09c8e4d2f6a5b3c1d0e9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b"},
	}
	if want := "```text\n" + r.Say("default") + "```\n"; !strings.Contains(messages.Format(), want) {
		t.Errorf("FORMAT.md does not show this statement:\n%s", want)
	}
	if refused := (messages.Result{Run: "r7", State: run.Failed}); refused.Say("default") != "" {
		t.Errorf("a refused task says %q, and no commit tells of it", refused.Say("default"))
	}
}
