package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestUnboundedSchemas: checking arguments against such a schema would take a
// stack or a time that no process has, and a stack that is used up ends the
// process. Another program can announce a tool that has one.
func TestUnboundedSchemas(t *testing.T) {
	t.Parallel()
	chain := func(n int, of string) string {
		var defs []string
		for i := range n {
			defs = append(defs, fmt.Sprintf(`"a%d":`+of, i, i+1))
		}
		return fmt.Sprintf(`{"type":"object","$ref":"#/$defs/a0","$defs":{%s,"a%d":{}}}`, strings.Join(defs, ","), n)
	}
	for _, tt := range []struct{ name, schema, text string }{
		{"itself", `{"type":"object","$ref":"#"}`, "refers to itself"},
		{"through a list", `{"type":"object","anyOf":[{"type":"null"},{"$ref":"#"}]}`, "refers to itself"},
		{"through definitions", `{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"not":{"$ref":"#/$defs/y~1z"}},"y/z":{"$ref":"#/%24defs/x"}}}`, "refers to itself"},
		{"through an anchor", `{"type":"object","$anchor":"top","if":{"$ref":"#top"},"then":{}}`, "refers to itself"},
		{"dynamically", `{"type":"object","$dynamicAnchor":"top","oneOf":[{"$dynamicRef":"#top"}]}`, "refers to itself"},
		{"by its name", `{"type":"object","$id":"http://a/b","dependentSchemas":{"k":{"$ref":"http://a/b"}}}`, "refers to itself"},
		{"as of draft 7", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"k":{"$id":"#k","dependencies":{"a":{"$ref":"#k"}}}}}`, "refers to itself"},
		{"a long way", chain(100, `{"$ref":"#/$defs/a%d"}`), "by way of each other"},
		{"many times", chain(30, `{"allOf":[{"$ref":"#/$defs/a%[2]d"},{"$ref":"#/$defs/a%[2]d"},{"$ref":"#/$defs/a%[2]d"}]}`), "schemas apply to one value"},
		{"null in anyOf", `{"type":"object","anyOf":[null]}`, "is nil"},
		{"null in oneOf", `{"type":"object","properties":{"a":{"oneOf":[{},null]}}}`, "is nil"},
		{"null in allOf", `{"type":"object","allOf":[null]}`, "is nil"},
		{"null among properties", `{"type":"object","properties":{"a":null}}`, "is nil"},
		{"deep", `{"type":"object","not":` + strings.Repeat(`{"not":`, 300) + `{}` + strings.Repeat("}", 301), "nested more than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := NewTable(echo("x", tt.schema))
			if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v; want %q", err, tt.text)
			}
		})
	}
}

// TestRecursiveSchemas: schemas that refer to themselves describe trees.
func TestRecursiveSchemas(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`{"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#"}}}`,
		`{"type":"object","properties":{"next":{"anyOf":[{"type":"null"},{"$ref":"#/definitions/n"}]}},"definitions":{"n":{"properties":{"v":{"type":"integer"},"next":{"$ref":"#/definitions/n"}}}}}`,
		`{"type":"object","$id":"http://a/n","additionalProperties":{"$ref":"#/$defs/v"},"$defs":{"v":{"oneOf":[{"type":"integer"},{"$ref":"http://a/n"}]}}}`,
	} {
		table, err := NewTable(echo("x", schema))
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		nested := func(n int, v string) string {
			return strings.Repeat(`{"next":`, n) + `{"v":` + v + `}` + strings.Repeat("}", n)
		}
		for args, text := range map[string]string{nested(100, "1"): "", nested(100, `"a"`): "do not match", nested(9000, "1"): "nested more than"} {
			o := table.Call(t.Context(), "x", args, Call{})
			if o.IsError != (text != "") || !strings.Contains(string(o.Body), text) {
				t.Errorf("%s with %.30s: %.300s; want %q", schema, args, o.Body, text)
			}
		}
	}
}

// TestWideSchema: each start of an agent builds a table, so its cost must not grow with the
// square of a schema.
func TestWideSchema(t *testing.T) {
	t.Parallel()
	properties := make(map[string]any, 5000)
	args := map[string]any{}
	for i := range 5000 {
		name := fmt.Sprintf("p%04d", i)
		properties[name] = map[string]string{"type": "integer"}
		args[name] = 1
	}
	args["p0001"] = "one"
	schema := must.Get(json.Marshal(map[string]any{"type": "object", "properties": properties}))(t)
	text := must.Get(json.Marshal(args))(t)
	began := time.Now()
	table := must.Get(NewTable(echo("x", string(schema))))(t)
	if took := time.Since(began); took > 20*time.Second { // it took minutes, and takes a part of a second
		t.Errorf("the table was made in %v", took)
	}
	if o := table.Call(t.Context(), "x", string(text), Call{}); !strings.Contains(string(o.Body), `\"p0001\": type: one has type`) {
		t.Errorf("%.300s", o.Body)
	}
}

// FuzzSchema: any schema of a program's tool is accepted or rejected, and so are arguments
// for it.
func FuzzSchema(f *testing.F) {
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{"enum":[1,null]},"b":{"const":{}}},"required":["a"]}`,
		`{"type":"object","anyOf":[null,{"$ref":"#/$defs/a"}],"$defs":{"a":{"not":{}}}}`,
		`{"type":"object","patternProperties":{"^a+$":{"items":[{},null]}},"dependencies":{"a":["b"],"c":{}}}`,
		`{"$id":"#x","$anchor":"y","$dynamicRef":"#x","unevaluatedItems":false,"additionalProperties":{"uniqueItems":true}}`,
	} {
		f.Add(schema, `{"a":[1,{"b":null}],"c":{"a":"text"}}`)
	}
	f.Fuzz(func(t *testing.T, schema, args string) {
		table, err := NewTable(echo("x", schema))
		if err != nil {
			return
		}
		if _, _, err := table.Bind("x", args); err != nil && err.Error() == "" {
			t.Error("an error without a word")
		}
	})
}
