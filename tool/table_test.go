package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/schema"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// raw is a tool by hand.
type raw struct {
	spec Spec
	call func(context.Context, Call) (Result, error)
}

func (r raw) Spec() Spec                                       { return r.spec }
func (r raw) Call(ctx context.Context, c Call) (Result, error) { return r.call(ctx, c) }

// echo returns its arguments.
func echo(name, schema string) Tool {
	return raw{Spec{Name: name, Schema: json.RawMessage(schema)}, func(_ context.Context, c Call) (Result, error) {
		return Result{Body: c.Args}, nil
	}}
}

type pair struct {
	B int     `json:"b,omitempty"`
	A string  `json:"a"`
	C *string `json:"c,omitempty"`
}

func TestNewTable(t *testing.T) {
	t.Parallel()
	fn := func(context.Context, pair) (pair, error) { return pair{}, nil }
	tests := []struct {
		name  string
		tools []Tool
		want  error
		texts []string
	}{
		{"none", nil, nil, nil},
		{"builtins and one", append(Builtins(), Func("mine", "", fn, nil)), nil, nil},
		{
			"built-in name", append(Builtins(), Func(RunCode, "", fn, nil)), ErrNameConflict,
			[]string{`"run_code"`, "built in", "table_test.go:"},
		},
		{"two by hand", []Tool{echo("x", ""), echo("y", ""), echo("x", "")}, ErrNameConflict, []string{`"x"`, "tool.raw"}},
		{"no name", []Tool{echo("", "")}, ErrSpec, []string{"0 characters"}},
		{"long name", []Tool{echo(strings.Repeat("x", 65), "")}, ErrSpec, []string{"65 characters"}},
		{"bad name", []Tool{echo("a b", "")}, ErrSpec, []string{`"a b"`, "' '"}},
		{"nil", []Tool{nil}, ErrSpec, []string{"tool 0"}},
		{"no JSON", []Tool{echo("x", "{")}, ErrSpec, []string{`"x"`}},
		{"no object", []Tool{echo("x", `{"type":"string"}`)}, ErrSpec, []string{`"x"`, "object"}},
		{"fetches", []Tool{echo("x", `{"$ref":"http://localhost:1/schema.json"}`)}, ErrSpec, []string{`"x"`}},
		{"bad pattern", []Tool{echo("x", `{"properties":{"a":{"pattern":"("}}}`)}, ErrSpec, []string{`"x"`}},
	}
	for _, tt := range tests {
		_, err := NewTable(tt.tools...)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
		// Spec.Check returns the same error, without the Go type of the tool.
		if errors.Is(err, ErrSpec) && tt.tools[0] != nil {
			if alone := tt.tools[0].Spec().Check(); alone == nil || !strings.HasSuffix(err.Error(), ": "+alone.Error()) || strings.Contains(alone.Error(), "tool.raw") {
				t.Errorf("%s: the spec says %v, the table %v", tt.name, alone, err)
			}
		}
		for _, text := range tt.texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: error %q does not say %q", tt.name, err, text)
			}
		}
	}
	tb := table(t, append([]Tool{echo("zz", ""), echo("Aa", "")}, Builtins()...)...)
	if !slices.IsSortedFunc(tb.Specs(), func(a, b Spec) int { return strings.Compare(a.Name, b.Name) }) || len(tb.Specs()) != len(Builtins())+2 {
		t.Errorf("specs are %v", tb.Specs())
	}
	if tl, ok := tb.Lookup("zz"); !ok || tl.Spec().Name != "zz" {
		t.Errorf("lookup gives %v, %t", tl, ok)
	}
	if _, ok := tb.Lookup("z"); ok {
		t.Error("lookup finds what is not there")
	}
}

// TestArguments compares the tool's arguments, or the body that the model reads instead.
func TestArguments(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","required":["a"],"additionalProperties":false,"properties":{
		"a":{"type":"string"},"n":{"type":"integer"},"l":{"$ref":"#/$defs/list"},"z":{"type":["string","null"]}},
		"$defs":{"list":{"type":"array","items":{"type":"integer"},"maxItems":2}}}`
	tb := table(t, echo("strict", schema), echo("open", ""), echo("any", `{}`))
	tests := []struct{ tool, args, want string }{
		{"open", "", `{}`},
		{"open", " \n", `{}`},
		{"open", "{}", `{}`},
		{"open", ` { "b" : 1 , "a" : "<é>" } `, `{"b":1,"a":"<é>"}`},
		{"open", `{"n":12345678901234567890,"f":1.50}`, `{"n":12345678901234567890,"f":1.50}`},
		{"open", `{"n":null}`, `{"n":null}`},
		{"open", "{\"a\":\"\xff\"}", `{"a":"` + "\ufffd" + `"}`},
		{"any", `{"a":[{}]}`, `{"a":[{}]}`},
		{"open", "[1]", "not a JSON object"},
		{"open", "null", "not a JSON object"},
		{"open", `"{}"`, "not a JSON object"},
		{"open", "{", "not JSON"},
		{"open", "{} {}", "not JSON"},
		{"open", `{"n":1e999}`, "not JSON"},
		{"open", strings.Repeat(`{"a":`, 20_000), "not JSON"},
		{"strict", `{"a":"x","n":2,"l":[1,2],"z":null}`, `{"a":"x","n":2,"l":[1,2],"z":null}`},
		{"strict", `{"n":null,"a":"x","l":null,"z":null}`, `{"a":"x"}`},
		{"strict", `{"n":2.0,"a":"x"}`, `{"n":2.0,"a":"x"}`},
		{"strict", "", `"a" is missing`},
		{"strict", `{"a":null}`, `"a": type: `},
		{"strict", `{"a":"x","n":2.5}`, `"n": type: 2.5 has type "number", want "integer"`},
		{"strict", `{"a":"x","l":[1,2,3]}`, `"l": maxItems`},
		{"strict", `{"A":"x"}`, `"a" is missing; "A" is not an argument (there are: a, l, n, z)`},
		{"strict", `{"y":1,"x":1,"n":"no"}`, `"a" is missing; "n": type: no has type "string", want "integer"; "x" is not an argument (there are: a, l, n, z); "y" is not`},
		{"nothing", `{}`, "there are: any, open, strict"},
	}
	for _, tt := range tests {
		for range 3 { // the same text every time
			out := tb.Call(t.Context(), tt.tool, tt.args, Call{})
			if strings.HasPrefix(tt.want, "{") {
				if diff := cmp.Diff(tt.want, string(out.Body)); diff != "" || out.IsError {
					t.Errorf("%s %.60q (-want +got):\n%s", tt.tool, tt.args, diff)
				}
				continue
			}
			var f struct {
				OK      *bool
				Kind    Kind `json:"error_kind"`
				Message string
				Detail  string
			}
			must.Do(t, json.Unmarshal(out.Body, &f))
			kind := InvalidArguments
			if tt.tool == "nothing" {
				kind = UnknownTool
			}
			if f.Kind != kind || out.Kind != kind || !out.IsError || f.OK == nil || *f.OK || !strings.Contains(f.Message, tt.want) {
				t.Errorf("%s %.60q: %.300s, want %q", tt.tool, tt.args, out.Body, tt.want)
			}
			if len(f.Detail) > maxDetail || kind == InvalidArguments && tt.args != "" && !strings.HasPrefix(f.Detail, tt.args[:1]) {
				t.Errorf("%s %.60q: detail %.100q", tt.tool, tt.args, f.Detail)
			}
		}
	}
	typed := table(t, Func("typed", "", func(_ context.Context, in struct {
		N int64   `json:"n"`
		L []uint8 `json:"l"`
	},
	) (any, error) {
		return in, nil
	}, nil))
	for args, want := range map[string]string{
		`{"n":2.0,"l":[1e1]}`:              `{"n":2,"l":"Cg=="}`,
		`{"n":9007199254740993,"l":[3.0]}`: `{"n":9007199254740993,"l":"Aw=="}`,
		`{"n":1e30,"l":[]}`:                `cannot unmarshal`,
		`{"n":1,"l":[256]}`:                `maximum`,
		`{"n":1,"l":"Cg=="}`:               `want one of`,
	} {
		if out := typed.Call(t.Context(), "typed", args, Call{}); !strings.Contains(string(out.Body), want) {
			t.Errorf("typed %s: %s, want %s", args, out.Body, want)
		}
	}
	long := `{"a":"` + strings.Repeat("x", MaxArguments) + `"}`
	if out := tb.Call(t.Context(), "open", long, Call{}); out.Kind != InvalidArguments || len(out.Body) > 3000 {
		t.Errorf("long arguments: %.200s", out.Body)
	}
}

// hollow is an error with a type of its own.
type hollow struct{ text string }

func (h *hollow) Error() string { return h.text }

// explosive panics when it is encoded.
type explosive struct{}

func (explosive) MarshalJSON() ([]byte, error) { panic("no body") }

func TestBodies(t *testing.T) {
	t.Parallel()
	cause := &hollow{"boom"}
	tests := []struct {
		name   string
		result Result
		err    error
		panics any
		want   string
		failed bool
		is     error
	}{
		{name: "struct", result: Result{Body: pair{B: 1, A: "<a> & \u2028"}}, want: `{"b":1,"a":"<a> & \u2028"}`},
		{name: "map", result: Result{Body: map[string]any{"z": 1, "a": 1.5}}, want: `{"a":1.5,"z":1}`},
		{name: "nothing", want: `null`},
		{name: "text", result: Result{Body: "a\xffb"}, want: `"a\ufffdb"`},
		{name: "raw", result: Result{Body: json.RawMessage("{ \"a\" : \"\xff\" }")}, want: `{"a":"` + "\ufffd" + `"}`},
		{name: "own error body", result: Result{Body: "sorry", IsError: true}, want: `"sorry"`, failed: true},
		{
			name: "error", err: errors.New("no luck"), failed: true,
			want: `{"ok":false,"error_kind":"tool_execution_exception","message":"error: no luck","detail":"error"}`,
		},
		{
			name: "typed error", err: fmt.Errorf("look up: %w", cause), failed: true, is: cause,
			want: `{"ok":false,"error_kind":"tool_execution_exception","message":"tool.hollow: look up: boom","detail":"tool.hollow"}`,
		},
		{
			name: "deadline", err: fmt.Errorf("look up: %w", context.DeadlineExceeded), failed: true, is: context.DeadlineExceeded,
			want: `{"ok":false,"error_kind":"timeout","message":"look up: context deadline exceeded","detail":"context.deadlineExceededError"}`,
		},
		{
			name: "library error", err: &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, failed: true, is: fs.ErrNotExist,
			want: `{"ok":false,"error_kind":"tool_execution_exception","message":"fs.PathError: open x: file does not exist","detail":"fs.PathError"}`,
		},
		{
			name: "failure", err: fmt.Errorf("wrapped: %w", &Failure{Kind: "quota", Message: "come back later", Err: io.EOF}), failed: true, is: io.EOF,
			want: `{"ok":false,"error_kind":"quota","message":"come back later"}`,
		},
		{
			name: "panic", panics: "index 5", failed: true,
			want: `{"ok":false,"error_kind":"tool_execution_exception","message":"panic: index 5","detail":"panic"}`,
		},
		{
			name: "panic with an error", panics: cause, failed: true, is: cause,
			want: `{"ok":false,"error_kind":"tool_execution_exception","message":"panic: boom","detail":"panic"}`,
		},
		{
			name: "panic while encoding", result: Result{Body: explosive{}}, failed: true,
			want: `{"ok":false,"error_kind":"tool_execution_exception","message":"panic: no body","detail":"panic"}`,
		},
		{
			name: "not JSON", result: Result{Body: math.NaN()}, failed: true,
			want: `{"ok":false,"error_kind":"tool_execution_exception","message":"json.UnsupportedValueError: ` +
				`the result does not encode to JSON: json: unsupported value: NaN","detail":"json.UnsupportedValueError"}`,
		},
	}
	for _, tt := range tests {
		tb := table(t, raw{Spec{Name: "x"}, func(context.Context, Call) (Result, error) {
			if tt.panics != nil {
				panic(tt.panics)
			}
			return tt.result, tt.err
		}})
		out := tb.Call(t.Context(), "x", "", Call{})
		if diff := cmp.Diff(tt.want, string(out.Body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if out.IsError != tt.failed || !json.Valid(out.Body) {
			t.Errorf("%s: failed %t, body %q", tt.name, out.IsError, out.Body)
		}
		if tt.is != nil && !errors.Is(out.Err, tt.is) {
			t.Errorf("%s: the runtime gets %v, want %v", tt.name, out.Err, tt.is)
		}
		if p, ok := errors.AsType[*panicError](out.Err); ok && !strings.Contains(p.Stack, "table_test.go") {
			t.Errorf("%s: the stack does not reach the panic:\n%s", tt.name, p.Stack)
		}
	}
	out := ErrorOutcome(&Failure{Kind: Exception, Message: strings.Repeat("é", 5000), Detail: strings.Repeat("é", 5000)})
	if len(out.Body) > maxMessage+maxDetail+200 || !utf8.Valid(out.Body) || !json.Valid(out.Body) {
		t.Errorf("a long failure has a body of %d bytes", len(out.Body))
	}
}

// TestLongBody folds a result that is too long for a transcript.
func TestLongBody(t *testing.T) {
	t.Parallel()
	text := strings.Repeat(`"深\`, 30_000)
	tb := table(t, raw{Spec{Name: "x"}, func(context.Context, Call) (Result, error) { return Result{Body: text}, nil }})
	whole := must.Get(schema.Marshal(text))(t)
	var store blobs
	for _, c := range []Call{{Blobs: &store}, {}, {Blobs: &blobs{err: errors.New("disk full")}}} {
		out := tb.Call(t.Context(), "x", "", c)
		var f folded
		if err := json.Unmarshal(out.Body, &f); err != nil {
			t.Fatalf("%v: %.200s", err, out.Body)
		}
		if len(out.Body) > MaxBody || out.IsError || f.Truncated.Bytes != len(whole) ||
			!strings.HasPrefix(string(whole), f.Head) || !strings.HasSuffix(string(whole), f.Tail) || len(f.Head) < 10_000 || len(f.Tail) < 10_000 {
			t.Errorf("a body of %d bytes with %d and %d of %d", len(out.Body), len(f.Head), len(f.Tail), len(whole))
		}
		if kept := c.Blobs == &store; kept != (f.Truncated.Blob != "") || kept && store.data[f.Truncated.Blob] != string(whole) {
			t.Errorf("kept %t as %q", kept, f.Truncated.Blob)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	tb = table(t, raw{Spec{Name: "x"}, func(context.Context, Call) (Result, error) { cancel(); return Result{Body: text}, nil }})
	if out := tb.Call(ctx, "x", "", Call{Blobs: &blobs{err: context.Canceled}}); out.Kind != Cancelled {
		t.Errorf("a run that ends while a body is stored: %.200s", out.Body)
	}
}

func TestCall(t *testing.T) {
	t.Parallel()
	var seen []Call
	tb := table(t, Func("x", "", func(ctx context.Context, in pair) (pair, error) {
		c, ok := Current(ctx)
		if !ok {
			t.Error("no current call")
		}
		seen = append(seen, c)
		return in, nil
	}, nil))
	_, args := must.Pair(tb.Bind("x", ` {"a":"y"}`))(t)
	for attempt := range 2 {
		tb.Run(t.Context(), "x", Call{ID: "id", Attempt: uint64(attempt + 1), Args: args})
	}
	if len(seen) != 2 || seen[0].ID != "id" || seen[1].ID != "id" || seen[1].Attempt != 2 || string(seen[1].Args) != `{"a":"y"}` {
		t.Errorf("calls are %+v", seen)
	}
	if _, ok := Current(t.Context()); ok {
		t.Error("a current call outside of one")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if out := tb.Run(ctx, "x", Call{Args: args}); out.Kind != Cancelled || !errors.Is(out.Err, context.Canceled) || len(seen) != 2 {
		t.Errorf("after the end of the run: %s, %d calls", out.Body, len(seen))
	}
}

func TestLanes(t *testing.T) {
	t.Parallel()
	fn := func(context.Context, pair) (pair, error) { return pair{}, nil }
	byA := func(args json.RawMessage) string {
		var p pair
		if err := json.Unmarshal(args, &p); err != nil {
			panic(err)
		}
		return "a:" + p.A
	}
	tb := table(t, append(Builtins(),
		Func("plain", "", fn, nil),
		Func("idem", "", fn, &FuncOptions{Effect: Idempotent}),
		Func("reads", "", fn, &FuncOptions{Effect: ReadOnly}),
		Func("keyed", "", fn, &FuncOptions{Effect: ReadOnly, Lane: byA}),
		Func("broken", "", fn, &FuncOptions{Effect: ReadOnly, Lane: func(json.RawMessage) string { panic("no") }}),
	)...)
	for name, want := range map[string]string{
		"plain": LaneGlobal, "idem": "idem", "reads": "", "keyed": "a:x", "broken": LaneGlobal,
	} {
		if s, args, err := tb.Bind(name, `{"a":"x"}`); err != nil || s.LaneOf(args) != want {
			t.Errorf("%s has lane %q, %v, want %q", name, s.LaneOf(args), err, want)
		}
	}
	for name, args := range map[string]string{RunCode: `{"code":""}`, WriteWorkspaceFile: `{"path":"a","content":""}`} {
		if s, args, err := tb.Bind(name, args); err != nil || s.LaneOf(args) != LaneWorkspace || s.Effect != Sandboxed {
			t.Errorf("%s has lane %q and effect %v, %v", name, s.LaneOf(args), s.Effect, err)
		}
	}
}

func TestEffect(t *testing.T) {
	t.Parallel()
	var zero Effect
	if zero != NonIdempotent {
		t.Error("the zero effect is not the careful one")
	}
	for _, e := range []Effect{NonIdempotent, Idempotent, ReadOnly, Sandboxed} {
		text, err := e.MarshalText()
		var back Effect
		if err != nil || back.UnmarshalText(text) != nil || back != e || e.String() != string(text) {
			t.Errorf("%v is written as %q and read as %v", e, text, back)
		}
	}
	if _, err := Effect(9).MarshalText(); err == nil || Effect(9).String() != "effect(9)" {
		t.Error("an effect that is none is written")
	}
	if err := zero.UnmarshalText([]byte("harmless")); err == nil {
		t.Error("an unknown effect is read")
	}
	kernel := sandbox.IsolationKernel
	confined := sandbox.Info{Isolation: kernel, Network: sandbox.NetworkNone}
	networked := sandbox.Info{Isolation: kernel, Network: sandbox.NetworkOpen}
	for _, tt := range []struct {
		effect Effect
		in     sandbox.Info
		want   Effect
	}{
		{Sandboxed, confined, Sandboxed},
		{Sandboxed, networked, NonIdempotent},
		{Sandboxed, sandbox.Info{Isolation: kernel}, Sandboxed}, // of logs without this property
		{Sandboxed, sandbox.Info{Isolation: kernel, Network: "read_only:example.org"}, Sandboxed},
		{Sandboxed, sandbox.Info{Isolation: kernel, Services: true}, Sandboxed},
		{Sandboxed, sandbox.Info{Isolation: kernel, Services: true, Outside: true}, NonIdempotent},
		{ReadOnly, sandbox.Info{Isolation: kernel, Services: true, Outside: true}, ReadOnly},
		{Sandboxed, sandbox.Info{Isolation: kernel, Network: "list:example.org"}, NonIdempotent},
		{Sandboxed, sandbox.Info{Isolation: kernel, Network: "of a later release"}, NonIdempotent},
		{Sandboxed, sandbox.Info{Isolation: sandbox.IsolationProcess}, NonIdempotent},
		{Sandboxed, sandbox.Info{}, NonIdempotent},
		{ReadOnly, networked, ReadOnly},
		{Idempotent, networked, Idempotent},
	} {
		if got := tt.effect.In(tt.in); got != tt.want {
			t.Errorf("%v in %+v is %v, want %v", tt.effect, tt.in, got, tt.want)
		}
	}
}

func TestFuncPanics(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(){
		"text": func() { Func("x", "", func(context.Context, string) (string, error) { return "", nil }, nil) },
		"chan": func() {
			Func("x", "", func(context.Context, struct{ C chan int }) (int, error) { return 0, nil }, nil)
		},
		"any":  func() { Func("x", "", func(context.Context, any) (int, error) { return 0, nil }, nil) },
		"name": func() { Func("x y", "", func(context.Context, pair) (int, error) { return 0, nil }, nil) },
	} {
		func() {
			defer func() {
				if v := recover(); v == nil || !strings.HasPrefix(fmt.Sprint(v), "tool.Func: ") {
					t.Errorf("%s: panic %v", name, v)
				}
			}()
			make()
		}()
	}
}

// FuzzArguments passes any text of a model to strict and open schemas: no call fails, and
// every body is valid.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{"", "{}", `{"a":"x"}`, "[1]", "{", `{"a":null}`, `{"a":"x","b":null,"c":null}`, "\xff", `{"a":1e999}`, `{"a":"x","a":2}`} {
		f.Add(s)
	}
	tb := table(f, Func("strict", "", func(_ context.Context, in pair) (pair, error) { return in, nil }, nil), echo("open", ""))
	f.Fuzz(func(t *testing.T, args string) {
		for _, name := range []string{"strict", "open"} {
			out := tb.Call(t.Context(), name, args, Call{})
			if !json.Valid(out.Body) || !utf8.Valid(out.Body) || len(out.Body) > MaxBody || bytes.ContainsAny(out.Body, "\n") {
				t.Errorf("%s %q: body %q", name, args, out.Body)
			}
			if out.IsError && out.Kind != InvalidArguments {
				t.Errorf("%s %q: a checked call failed: %s", name, args, out.Body)
			}
			again := tb.Call(t.Context(), name, args, Call{})
			if !bytes.Equal(again.Body, out.Body) {
				t.Errorf("%s %q: bodies %s and %s", name, args, out.Body, again.Body)
			}
			if _, once, err := tb.Bind(name, args); err == nil {
				if _, twice, err := tb.Bind(name, string(once)); err != nil || !bytes.Equal(once, twice) {
					t.Errorf("%s %q: checked arguments %q become %q, %v", name, args, once, twice, err)
				}
			}
		}
	})
}

// TestTablesShareSchemas: agents make a table for each of their runs, so that one
// must not hold the schemas of its tools again.
func TestTablesShareSchemas(t *testing.T) {
	const tables, bar = 100, 4 << 10
	var before, after runtime.MemStats
	table(t, Builtins()...)
	runtime.ReadMemStats(&before)
	for range tables {
		table(t, Builtins()...)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / tables; each > bar {
		t.Errorf("a table of the built-in tools takes %d B, want at most %d", each, bar)
	}
}
