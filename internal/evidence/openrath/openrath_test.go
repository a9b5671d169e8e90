package openrath_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/evidence/openrath"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

func golden(t testing.TB) string {
	t.Helper()
	raw := must.Get(os.ReadFile("testdata/v1.2.jsonl"))(t)
	return strings.ReplaceAll(string(raw), "\r\n", "\n")
}

func read(t testing.TB, text string) *openrath.File {
	t.Helper()
	f := must.Get(openrath.Read(strings.NewReader(text), "x.jsonl"))(t)
	return f
}

func write(t testing.TB, f *openrath.File) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, f.Write(&b))
	return b.String()
}

func TestGolden(t *testing.T) {
	text := golden(t)
	f := read(t, text)
	if diff := cmp.Diff(text, write(t, f)); diff != "" {
		t.Errorf("the file changed on its way (-read +written):\n%s", diff)
	}
	h := f.Header
	if h.ID != "5f6c1c52-3b0e-4a55-9f0e-0d9a1f2b3c4d" || len(h.Parents) != 2 || h.Operator != "run_session_loop" || h.Kind != "op_session_loop" ||
		*h.Backend != "local" || h.Handle != nil || len(h.Extras) != 3 || h.Extras[1].Key != "rounds" || string(h.Extras[1].Value) != "3" {
		t.Errorf("header %+v", h)
	}
	if want := openrath.Timestamp(time.Date(2025, 3, 4, 5, 6, 7, 123_456_000, time.UTC)); h.CreatedAt != want {
		t.Errorf("created at %s, want %s", h.CreatedAt, want)
	}
	if !f.Closed() || f.Trailer.Chunks != 6 || *f.Trailer.Usage != (openrath.Usage{Prompt: 120, Completion: 30, Total: 150}) || f.Torn || f.Reopened != 0 {
		t.Errorf("trailer %+v", f.Trailer)
	}
	s := f.Session()
	var kinds []session.Kind
	for _, c := range s.Chunks() {
		kinds = append(kinds, c.Kind())
	}
	if !slices.Equal(kinds, []session.Kind{session.System, session.User, session.Assistant, session.ToolResult, session.ToolResult, session.Assistant}) {
		t.Errorf("kinds %v", kinds)
	}
	at := func(i int) session.Chunk { c, _ := s.At(i); return c }
	if want := "Zähle – 数える 😀 \"quoted\" \\ back/slash\n\ttab \u0085 next \u2028 line \u2029 paragraph \x1f unit"; at(1).Text() != want {
		t.Errorf("text %q", at(1).Text())
	}
	var calls []session.ToolCall
	for _, c := range at(2).Calls() {
		calls = append(calls, c)
	}
	want := []session.ToolCall{{Args: `{"path": "a.txt"}`, ID: "call_1", Name: "read_workspace_file"}, {ID: "call_2", Name: "run_code"}}
	if diff := cmp.Diff(want, calls); diff != "" || at(2).Text() != "" {
		t.Errorf("calls:\n%s", diff)
	}
	if c := at(3); c.CallID() != "call_1" || c.Name() != "read_workspace_file" || c.Failed() || c.Text() != `{"data": "42"}` {
		t.Errorf("result %q %q %v %q", c.CallID(), c.Name(), c.Failed(), c.Text())
	}
	if !at(4).Failed() || s.Text() != "The answer is 42." {
		t.Errorf("failed %v, text %q", at(4).Failed(), s.Text())
	}
}

// TestChunksSurvive checks that a file made from the chunks of a file is the same file.
func TestChunksSurvive(t *testing.T) {
	text := golden(t)
	f := read(t, text)
	for i := range f.Rows {
		f.Rows[i] = openrath.Row{Chunk: f.Rows[i].Chunk}
	}
	if diff := cmp.Diff(text, write(t, f)); diff != "" {
		t.Errorf("chunks are written differently (-read +written):\n%s", diff)
	}
}

// TestThroughALog records, folds and exports an imported session: with its source as the
// original file, without one as a file of Rath.
func TestThroughALog(t *testing.T) {
	f := read(t, golden(t))
	source, left, err := f.Source()
	if err != nil || left > 0 {
		t.Fatal(left, err)
	}
	k := session.Key{Tenant: "t", ID: "s"}
	events := []session.Event{session.OpenedEvent(session.Opening{Kind: session.OpenImport, Source: source})}
	for e := range f.Session().Pending() {
		events = append(events, e)
	}
	var log commitlog.Memory
	must.Get(log.Append(t.Context(), commitlog.Position{}, commitlog.Commit{Key: k, Root: "s", Seq: 1, Events: events}))(t)
	e, err := log.Last(t.Context(), k)
	must.Do(t, err)
	s, err := commitlog.ApplyCommit(session.Open(k, "s"), e, nil)
	must.Do(t, err)
	same, err := openrath.Restore(s.Opening().Source, s)
	must.Do(t, err)
	if diff := cmp.Diff(golden(t), string(same)); diff != "" {
		t.Errorf("restored (-imported +restored):\n%s", diff)
	}
	more, err := openrath.Restore(source, s.With(session.UserText("go on")))
	must.Do(t, err)
	if went := read(t, string(more)); went.Closed() || len(went.Rows) != len(f.Rows)+1 || went.Header.Operator != f.Header.Operator || len(went.Other) != len(f.Other) {
		t.Errorf("a session that went on: %s", more)
	}
	out := openrath.Export(s, time.Unix(1, 0), time.Unix(2, 0))
	lines, back := strings.Split(golden(t), "\n"), strings.Split(write(t, out), "\n")
	if diff := cmp.Diff(lines[1:7], back[1:7]); diff != "" {
		t.Errorf("rows (-imported +exported):\n%s", diff)
	}
	again := read(t, write(t, out))
	if again.Header.Kind != "unknown" || again.Header.ID != openrath.UUID(k) || !again.Closed() {
		t.Errorf("header %+v", again.Header)
	}
}

func TestExport(t *testing.T) {
	s := session.New(session.UserText("go\u2028on"), session.AssistantText("", session.ToolCall{ID: "1", Name: "n", Args: "{}"})).To("local", "./dir")
	created := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("x", 3600))
	got := write(t, openrath.Export(s, created, created.Add(time.Second)))
	want := `{"record_type": "header", "schema_version": 1, "id": "` + openrath.UUID(session.Key{}) + `", "created_at": "2026-01-02T02:04:05.000006+00:00", "parent_session_ids": [], "lineage_operator": "Session.create", "lineage_kind": "leaf_user", "lineage_extras": [], "sandbox_backend": "local", "sandbox_spec": {"image": null, "entrypoint": null, "env": null, "timeout_seconds": null, "working_dir": "./dir"}, "sandbox_handle_id": null}
{"record_type": "chunk", "index": 0, "kind": "user", "payload": {"content": "go\u2028on"}}
{"record_type": "chunk", "index": 1, "kind": "assistant", "payload": {"content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "n", "arguments": "{}"}}]}}
{"record_type": "trailer", "closed_at": "2026-01-02T02:04:06.000006+00:00", "final_chunk_count": 2, "cumulative_usage": null}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exported (-want +got):\n%s", diff)
	}
	open := openrath.Export(s, created, time.Time{})
	if open.Closed() || strings.Contains(write(t, open), "trailer") {
		t.Error("a session that goes on is exported as closed")
	}
	a, b := openrath.UUID(session.Key{Tenant: "t", ID: "a"}), openrath.UUID(session.Key{Tenant: "t", ID: "b"})
	if a == b || len(a) != 36 || a[14] != '8' || !strings.ContainsRune("89ab", rune(a[19])) {
		t.Errorf("UUIDs %s and %s", a, b)
	}
}

func TestLenient(t *testing.T) {
	lines := strings.SplitAfter(golden(t), "\n")
	header, rows, trailer := lines[0], lines[1:7], lines[7]
	all := strings.Join(rows, "")
	for name, c := range map[string]struct {
		text string
		want func(*openrath.File) bool
	}{
		"not closed":              {header + all, func(f *openrath.File) bool { return len(f.Rows) == 6 && !f.Closed() && !f.Torn }},
		"a torn line":             {header + all + trailer[:40], func(f *openrath.File) bool { return len(f.Rows) == 6 && !f.Closed() && f.Torn }},
		"torn in a character":     {header + rows[0] + rows[1][:strings.Index(rows[1], "ä")+1], func(f *openrath.File) bool { return len(f.Rows) == 1 && f.Torn }},
		"torn before its end":     {header + strings.TrimSuffix(rows[0], "\n"), func(f *openrath.File) bool { return len(f.Rows) == 0 && f.Torn }},
		"blank lines":             {"\n" + header + "\n  \n" + all + "\r\n" + trailer, func(f *openrath.File) bool { return len(f.Rows) == 6 && f.Closed() }},
		"a second header":         {header + rows[0] + header + rows[1] + trailer, func(f *openrath.File) bool { return len(f.Rows) == 2 && f.Reopened == 1 && f.Closed() }},
		"taken up after its end":  {header + rows[0] + trailer + header + rows[1], func(f *openrath.File) bool { return len(f.Rows) == 2 && f.Reopened == 1 && !f.Closed() }},
		"raw line separators":     {header + strings.NewReplacer(`\u0085`, "\u0085", `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(all), func(f *openrath.File) bool { return len(f.Rows) == 6 }},
		"only a header":           {header, func(f *openrath.File) bool { return len(f.Rows) == 0 && !f.Closed() }},
		"an unknown lineage kind": {strings.Replace(header, "op_session_loop", "op_later", 1), func(f *openrath.File) bool { return f.Header.Kind == "op_later" }},
	} {
		if f, err := openrath.Read(strings.NewReader(c.text), name); err != nil || !c.want(f) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

// TestUnknown checks that unknown records, kinds and fields are kept in place.
func TestUnknown(t *testing.T) {
	text := `{"record_type": "header", "schema_version": 1, "id": "x", "created_at": "", "parent_session_ids": [], "lineage_operator": "o", "lineage_kind": "k", "lineage_extras": [], "sandbox_backend": null, "sandbox_spec": null, "sandbox_handle_id": null, "later": {"b": 1, "a": 2.0}}
{"record_type": "note", "z": [1, 2], "a": "\u2028"}
{"record_type": "chunk", "index": 0, "kind": "user", "payload": {"content": "hi", "author": "ann"}, "at": 17}
{"record_type": "chunk", "index": 1, "kind": "image", "payload": {"url": "u", "w": 1.0}}
{"record_type": "note", "z": null}
{"record_type": "trailer", "closed_at": "t", "final_chunk_count": 2, "cumulative_usage": null, "later": false}
`
	f := read(t, text)
	if diff := cmp.Diff(text, write(t, f)); diff != "" {
		t.Errorf("the file changed on its way:\n%s", diff)
	}
	if len(f.Other) != 2 || f.Other[0].Type != "note" || f.Other[0].Rows != 0 || f.Other[1].Rows != 2 {
		t.Errorf("other records %+v", f.Other)
	}
	c, _ := f.Session().At(1)
	if c.Kind() != "image" || c.Text() != "" || c.Opaque() != `{"url": "u", "w": 1.0}` {
		t.Errorf("a chunk of an unknown kind is %q %q %q", c.Kind(), c.Text(), c.Opaque())
	}
	f.Rows[1] = openrath.Row{Chunk: c}
	if diff := cmp.Diff(text, write(t, f)); diff != "" {
		t.Errorf("a chunk of an unknown kind is written differently:\n%s", diff)
	}
}

func TestRefuses(t *testing.T) {
	lines := strings.SplitAfter(golden(t), "\n")
	header, row := lines[0], lines[1]
	for name, c := range map[string]struct {
		text string
		want error
		at   string
	}{
		"nothing":               {"", openrath.ErrFormat, "x.jsonl:1"},
		"only a torn line":      {header[:50], openrath.ErrFormat, "x.jsonl:1"},
		"no header":             {row + header, openrath.ErrFormat, "x.jsonl:1"},
		"a corrupt line":        {header + row + row[:30] + "\n" + row, openrath.ErrFormat, "x.jsonl:3"},
		"a line that is a list": {header + "[]\n", openrath.ErrFormat, "x.jsonl:2"},
		"two objects in a line": {header + strings.TrimSuffix(row, "\n") + row, openrath.ErrFormat, "x.jsonl:2"},
		"invalid UTF-8":         {header + strings.Replace(row, "brief", "br\xffef", 1), openrath.ErrFormat, "x.jsonl:2"},
		"a later schema":        {strings.Replace(header, `"schema_version": 1`, `"schema_version": 2`, 1), openrath.ErrNewer, "x.jsonl:1"},
		"no schema":             {strings.Replace(header, `"schema_version": 1, `, ``, 1), openrath.ErrFormat, "x.jsonl:1"},
		"no id":                 {strings.Replace(header, `"id"`, `"no"`, 1), openrath.ErrFormat, "x.jsonl:1"},
		"another session":       {header + strings.Replace(header, "5f6c", "5f6d", 1), openrath.ErrFormat, "x.jsonl:2"},
		"no type":               {header + "{}\n", openrath.ErrFormat, "x.jsonl:2"},
		"a row without kind":    {header + strings.Replace(row, `"kind"`, `"kin"`, 1), openrath.ErrFormat, "x.jsonl:2"},
		"content of a number":   {header + strings.Replace(row, `"Be brief."`, `5`, 1), openrath.ErrFormat, "x.jsonl:2"},
		"extras of one":         {strings.Replace(header, `["rounds", 3]`, `["rounds"]`, 1), openrath.ErrFormat, "x.jsonl:1"},
	} {
		f, err := openrath.Read(strings.NewReader(c.text), "x.jsonl")
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.at) {
			t.Errorf("%s: %+v, %v; want %v at %s", name, f, err, c.want, c.at)
		}
	}
}

func TestScan(t *testing.T) {
	text := golden(t)
	made := func(id, created string) string {
		s := strings.ReplaceAll(text, "5f6c1c52-3b0e-4a55-9f0e-0d9a1f2b3c4d", id)
		return strings.Replace(s, "2025-03-04T05:06:07.123456+00:00", created, 1)
	}
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	fsys := fstest.MapFS{
		"sessions/b.jsonl":                      file(made("b", "2025-03-05T00:00:00.000000+00:00")),
		"sessions/a.jsonl":                      file(made("a", "2025-03-04T00:00:00.000000+00:00")),
		"sessions/a.jsonl" + openrath.Partial:   file("left over"),
		"sessions/c.jsonl" + openrath.Partial:   file(made("c", "2025-03-06T00:00:00.000000+00:00")[:900]),
		"sessions/bad.jsonl":                    file("hello\n"),
		"sessions/newer.jsonl":                  file(strings.Replace(text, `"schema_version": 1`, `"schema_version": 7`, 1)),
		"sessions/notes.txt":                    file("no"),
		"sessions/dir.jsonl/x":                  file("no"),
		"sessions/lone.jsonl.__partial__.other": file("no"),
	}
	got := must.Get(openrath.Scan(fsys, "sessions"))(t)
	var shown []string
	for _, l := range got {
		shown = append(shown, fmt.Sprintf("%s id=%s chunks=%d closed=%v torn=%v err=%v", l.Name, l.ID, l.Chunks, l.Closed, l.Torn, l.Err != nil))
	}
	want := []string{
		"a.jsonl id=a chunks=6 closed=true torn=false err=false",
		"b.jsonl id=b chunks=6 closed=true torn=false err=false",
		"c.jsonl.__partial__ id=c chunks=2 closed=false torn=true err=false",
		"bad.jsonl id= chunks=0 closed=false torn=false err=true",
		"newer.jsonl id= chunks=0 closed=false torn=false err=true",
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("Scan (-want +got):\n%s", diff)
	}
	for _, l := range got {
		if l.Err != nil && !strings.Contains(l.Err.Error(), "sessions/"+l.Name+":1") {
			t.Errorf("%v does not say where", l.Err)
		}
	}
	if _, err := openrath.Scan(fsys, "nowhere"); err == nil {
		t.Error("a directory that is not there was scanned")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(golden(f))
	f.Add(`{"record_type":"header","schema_version":1,"id":"x"}` + "\n" + `{"record_type":"chunk","kind":"k","payload":[1e5,"\ud800"]}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := openrath.Read(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		var once, twice bytes.Buffer
		must.Do(t, file.Write(&once))
		again, err := openrath.Read(bytes.NewReader(once.Bytes()), "f")
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, once.String())
		}
		if err := again.Write(&twice); err != nil || once.String() != twice.String() {
			t.Fatalf("%v\n%s\n%s", err, once.String(), twice.String())
		}
		source, left, err := file.Source()
		if err != nil {
			if once.Len() < openrath.MaxSource/2 {
				t.Fatal(err)
			}
			return
		}
		if same, err := openrath.Restore(source, file.Session()); err != nil || left == 0 && string(same) != once.String() {
			t.Fatalf("restored: %v\n%s\n%s", err, same, once.String())
		}
		if strings.ContainsAny(once.String(), "\u0085\u2028\u2029") {
			t.Fatal("a line separator is written raw")
		}
	})
}

func ExampleReadFile() {
	f, err := openrath.ReadFile(os.DirFS("testdata"), "v1.2.jsonl")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.Header.Kind, f.Closed())
	for i, c := range f.Session().Chunks() {
		fmt.Printf("%d %s calls=%d\n", i, c.Kind(), c.CallCount())
	}
	// Output:
	// op_session_loop true
	// 0 system calls=0
	// 1 user calls=0
	// 2 assistant calls=2
	// 3 tool_result calls=0
	// 4 tool_result calls=0
	// 5 assistant calls=0
}

// TestDeep checks that deeply nested values are rejected without deep recursion.
func TestDeep(t *testing.T) {
	for _, deep := range []string{strings.Repeat("[", 6<<20), strings.Repeat(`{"a":`, 6<<20), strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)} {
		_, err := openrath.Read(strings.NewReader(`{"record_type":"header","schema_version":1,"id":"x","more":`+deep+"}\n"), "f")
		if !errors.Is(err, openrath.ErrFormat) {
			t.Errorf("%.20s: %v, want %v", deep, err, openrath.ErrFormat)
		}
	}
}
