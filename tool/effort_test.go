package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/schema"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestCostlyChecks: a program may announce any schema, and a model may call it with any
// arguments. A check that would be too expensive is rejected before it begins.
func TestCostlyChecks(t *testing.T) {
	t.Parallel()
	nested := func(n int, open, inner, end string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	list := func(n int, item func(i int) string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	quoted := func(i int) string { return fmt.Sprintf(`"%05d"`, i) }
	for _, tt := range []struct{ name, schema, args string }{
		{
			"two references a level", `{"type":"object","properties":{"n":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`,
			nested(60, `{"n":`, `{}`, `}`),
		},
		{
			"alternatives that fail last", `{"type":"object","properties":{"n":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}},"$defs":{
				"a":{"type":"object","properties":{"n":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}},"required":["v"]},
				"b":{"type":"object","properties":{"n":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}},"required":["v"]}}}`,
			nested(60, `{"n":`, `{}`, `}`),
		},
		{
			"items and what they contain", `{"type":"object","additionalProperties":{"$ref":"#/$defs/l"},"$defs":{"l":{"items":{"$ref":"#/$defs/l"},"contains":{"$ref":"#/$defs/l"}}}}`,
			`{"l":` + nested(100, "[", "1", "]") + `}`,
		},
		{
			"a long enum", `{"type":"object","properties":{"l":{"items":{"enum":` + list(5000, quoted) + `}}}}`,
			`{"l":` + list(100_000, func(int) string { return `"x"` }) + `}`,
		},
		{
			"a slow pattern", `{"type":"object","properties":{"s":{"pattern":"^` + strings.Repeat("(?:a?){900}", 10) + `b"}}}`,
			`{"s":"` + strings.Repeat("a", 1_000_000) + `"}`,
		},
		{
			"patterns of names", `{"type":"object","patternProperties":{"` + strings.Repeat("(?:a?){900}", 10) + `b":{}}}`,
			`{"` + strings.Repeat("a", 1_000_000) + `":1}`,
		},
		{
			"items that hash alike", `{"type":"object","properties":{"l":{"uniqueItems":true}}}`,
			`{"l":` + list(10_000, func(i int) string { // of 14 letters, cut into 14 words in different ways
				var b strings.Builder
				b.WriteString(`["`)
				for bit := range 14 {
					b.WriteString("a")
					if i>>bit&1 == 1 {
						b.WriteString(`","`)
					} else {
						defer b.WriteString(`,""`)
					}
				}
				return b.String() + `"` + strings.Repeat(`,""`, strings.Count(fmt.Sprintf("%014b", i), "0")) + `]`
			}) + `}`,
		},
		{
			"alternatives that tell of a long text", `{"type":"object","properties":{"s":{"anyOf":` + list(2000, func(int) string { return `{"maxLength":1}` }) + `}}}`,
			`{"s":"` + strings.Repeat("a", 1_000_000) + `"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			table := must.Get(NewTable(echo("costly", tt.schema)))(t)
			ended := make(chan Outcome, 1)
			go func() { ended <- table.Call(t.Context(), "costly", tt.args, Call{}) }()
			select {
			case o := <-ended:
				if !o.IsError || !strings.Contains(string(o.Body), `the schema of \"costly\"`) || !strings.Contains(string(o.Body), "flatter") {
					t.Errorf("%.300s", o.Body)
				}
			case <-time.After(30 * time.Second): // it takes a part of a second; without a bound, minutes or for ever
				t.Error("the check has not ended")
			}
		})
	}
}

// TestCostlySchemas: these would take too long, or too much memory, before the
// first call.
func TestCostlySchemas(t *testing.T) {
	t.Parallel()
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf(`"%d":{"$id":"http://a/%[1]d","$ref":"#"}`, i))
	}
	for _, tt := range []struct{ name, schema, text string }{
		{"large automata", `{"type":"object","properties":{"s":{"pattern":"` + strings.Repeat("a{1000}", 100) + `"}}}`, "states"},
		{"many names", `{"type":"object","$defs":{` + strings.Join(ids, ",") + `}}`, "$id"},
		{"long pointers", `{"type":"object","properties":{"` + strings.Repeat("a", 30_000) + `":{"allOf":[{}` + strings.Repeat(",{}", 1000) + `]}}}`, "shorter names"},
		{"a broken pattern", `{"type":"object","properties":{"s":{"pattern":"("}}}`, "missing closing"},
		{"no number", `{"type":"object","minProperties":1e999999999}`, "into an int"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := NewTable(echo("x", tt.schema)); err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%.300v; want %q", err, tt.text)
			}
			if _, err := schema.Refuses(json.RawMessage(tt.schema), nil); err == nil {
				t.Error("it is accepted")
			}
		})
	}
}

// TestLargeArguments: arguments that are merely large are checked.
func TestLargeArguments(t *testing.T) {
	t.Parallel()
	tree := `{"type":"object","properties":{"op":{"type":"string"},"args":{"type":"array","items":{"oneOf":[{"$ref":"#"},{"type":"number"}]}}},"required":["op"]}`
	deep := `{"op":"+","args":[1,2]}`
	for range 12 {
		deep = `{"op":"+","args":[` + deep + `,` + `{"op":"-","args":[3]}` + `]}`
	}
	either := `{"type":"object","properties":{"e":{"$ref":"#/$defs/e"}},"$defs":{"e":{"oneOf":[
		{"type":"object","properties":{"and":{"type":"array","items":{"$ref":"#/$defs/e"}}},"required":["and"],"additionalProperties":false},
		{"type":"object","properties":{"or":{"type":"array","items":{"$ref":"#/$defs/e"}}},"required":["or"],"additionalProperties":false},
		{"type":"object","properties":{"not":{"$ref":"#/$defs/e"}},"required":["not"],"additionalProperties":false},
		{"type":"object","properties":{"is":{"type":"string"}},"required":["is"],"additionalProperties":false}]}}}`
	for _, tt := range []struct{ name, schema, args string }{
		{"numbers", `{"type":"object","properties":{"l":{"type":"array","items":{"type":"number","minimum":0,"multipleOf":0.5}}}}`, `{"l":[1` + strings.Repeat(",1.5", 200_000) + `]}`},
		{"rows", `{"type":"object","properties":{"l":{"items":{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string","pattern":"^[a-z]+$"},"kind":{"enum":["a","b"]}},"required":["id"],"additionalProperties":false}}}}`, `{"l":[{"id":1}` + strings.Repeat(`,{"id":2,"name":"ann","kind":"a"}`, 20_000) + `]}`},
		{"text", `{"type":"object","properties":{"content":{"type":"string","minLength":1,"pattern":"^[^\\x00]*$"}},"required":["content"]}`, `{"content":"` + strings.Repeat("a", 1_000_000) + `"}`},
		{"unique", `{"type":"object","properties":{"l":{"items":{"type":"string"},"uniqueItems":true}}}`, `{"l":["x","` + strings.Join(numbers(50_000), `","`) + `"]}`},
		{"a tree", tree, deep},
		{"alternatives", either, `{"e":` + strings.Repeat(`{"and":[{"is":"a"},{"or":[`, 20) + `{"is":"b"}` + strings.Repeat(`]}]}`, 20) + `}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			table := must.Get(NewTable(echo("x", tt.schema)))(t)
			if o := table.Call(t.Context(), "x", tt.args, Call{}); o.IsError {
				t.Errorf("%.500s", o.Body)
			}
		})
	}
}

func numbers(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(i)
	}
	return all
}
