package audit

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/jsonschema-go/jsonschema"
)

// TestCanonical: JSON is canonical in one form alone, and all others are found.
func TestCanonical(t *testing.T) {
	for _, text := range []string{
		`null`, `true`, `false`, `0`, `-1`, `18446744073709551615`, `123456789012345678901234567890`, `""`, `"a"`, `"ä€😀"`,
		`"\"\\\b\f\n\r\t"`, `"\u0000\u001f"`, `"\u2028\u2029"`, `"/<>&"`, `[]`, `[1,"a",[null],{}]`, `{}`, `{"":0,"a":[],"b":{"a":false}}`,
		`{"\n":1,"a":2}`, strings.Repeat("[", maxDepth) + "0" + strings.Repeat("]", maxDepth),
	} {
		if !canonical(text) {
			t.Errorf("%s is refused", text)
		}
	}
	for what, texts := range map[string][]string{
		"nothing":        {"", " ", "nul", "tru", "fals", "x"},
		"more than one":  {"1 ", "null,", `""""`, "[]]"},
		"space":          {" 1", "[ ]", "[1, 2]", `{"a": 1}`, "{ }", "[\n]"},
		"numbers":        {"-0", "01", "-01", "1.0", "1e3", "+1", "-", "0x1"},
		"unended":        {`"`, `"a`, `"\`, `"\u12`, "[", "[1", "[1,", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`},
		"separators":     {"[1 2]", "[,]", "[1,]", `{"a"}`, `{"a",1}`, `{a:1}`, `{"a":1 "b":2}`, `{1:2}`},
		"escapes":        {`"\/"`, `"\a"`, `"\u0041"`, `"\u000A"`, `"\u001F"`, `"\u000a"`, `"\u0009"`, `"\u20ac"`, `"\ud83d\ude00"`, `"\uzzzz"`, `"\U0000"`},
		"raw characters": {"\"\n\"", "\"\x00\"", "\"\u2028\"", "\"\u2029\"", "\"\xff\"", "\"\xed\xa0\x80\""},
		"keys":           {`{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"a":1,"\n":2}`, `{"\q":1}`},
		"depth":          {strings.Repeat("[", maxDepth+1) + "0" + strings.Repeat("]", maxDepth+1), strings.Repeat(`{"a":`, maxDepth+1) + "0" + strings.Repeat("}", maxDepth+1)},
	} {
		for _, text := range texts {
			if canonical(text) {
				t.Errorf("%s: %q is accepted", what, text)
			}
		}
	}
}

// TestSchemaWords holds what the auditor reads of each keyword against another
// implementation.
func TestSchemaWords(t *testing.T) {
	values := []string{
		`null`, `true`, `0`, `3`, `-4`, `7`, `"a"`, `"bcd"`, `"äöüß"`, `""`, `[]`, `[1]`, `["a","b"]`, `[1,2,3]`, `[[1],[2]]`, `{}`, `{"a":1}`, `{"a":"x","b":[1]}`, `{"b":{"c":null}}`,
	}
	for _, text := range []string{
		`{}`, `{"type":"object"}`, `{"type":["string","null"]}`, `{"type":"array","items":{"type":"integer"}}`, `{"type":"array","minItems":1,"maxItems":2}`,
		`{"type":"integer","minimum":0,"maximum":5}`, `{"type":"string","maxLength":3}`, `{"type":"string","pattern":"^[a-c]+$"}`, `{"const":"a"}`, `{"const":3}`, `{"enum":["a",7,null]}`,
		`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`, `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`,
		`{"anyOf":[{"type":"string","maxLength":1},{"type":"object","required":["b"]}]}`, `{"$ref":"#/$defs/n","$defs":{"n":{"type":"integer","description":"a number"}}}`,
	} {
		c, err := readSchema(fstest.MapFS{"s": {Data: []byte(text)}}, "s")
		if err != nil {
			t.Fatal(err)
		}
		mine, err := c.compile(c.root)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var other jsonschema.Schema
		if err := json.Unmarshal([]byte(text), &other); err != nil {
			t.Fatal(err)
		}
		resolved, err := other.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range values {
			var v any
			if err := json.Unmarshal([]byte(value), &v); err != nil {
				t.Fatal(err)
			}
			wrong, others := mine.check(value), resolved.Validate(v)
			if (wrong == "") != (others == nil) {
				t.Errorf("%s in %s: %q, the other says %v", value, text, wrong, others)
			}
		}
	}
	// Text that is no JSON is found by whichever keyword comes to it.
	for text, schema := range map[string]string{
		``: `{}`, `{"a" 1}`: `{"type":"object"}`, `{"a":1 }`: `{"type":"object"}`, `{"a":x}`: `{"type":"object"}`, `[1 2]`: `{"type":"array"}`, `[x]`: `{"type":"array"}`,
		`["a]`: `{"items":{"type":"string"}}`, `"\q"`: `{"type":"string","maxLength":9}`, `1.5`: `{"type":"integer"}`, `-x`: `{"type":"integer"}`,
		`99999999999999999999`: `{"type":"integer","maximum":5}`, `-99999999999999999999`: `{"type":"integer"}`,
	} {
		c, err := readSchema(fstest.MapFS{"s": {Data: []byte(schema)}}, "s")
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.compile(c.root)
		if err != nil {
			t.Fatal(err)
		}
		if s.check(text) == "" && canonicalIn(s, text) {
			t.Errorf("%s is accepted by %s", text, schema)
		}
	}
	// What this compiler does not know, or cannot read, is an error, and names the place.
	for text, want := range map[string]string{
		`{"oneOf":[]}`: "oneOf: the auditor does not know this keyword", `{"type":7}`: "type: json.Number is no value of it", `{"type":["a",1]}`: "type: ",
		`{"properties":[]}`: "properties: ", `{"properties":{"a":{"multipleOf":2}}}`: "properties: a: multipleOf: ", `{"items":7}`: "items: no schema", `{"minimum":"a"}`: "minimum: ", `{"minimum":1.5}`: "minimum: ",
		`{"pattern":"("}`: "pattern: ", `{"anyOf":[{"not":{}}]}`: "anyOf: not: ", `{"$ref":"#/$defs/a"}`: "#/$defs/a is not defined", `{"required":"a"}`: "required: ",
	} {
		c, err := readSchema(fstest.MapFS{"s": {Data: []byte(text)}}, "s")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.compile(c.root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
	if _, err := readSchema(fstest.MapFS{"s": {Data: []byte("{")}}, "s"); err == nil {
		t.Error("a schema that is no JSON")
	}
	if _, err := ReadSchemas(fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), "commit.v1.json") {
		t.Errorf("no schemas: %v", err)
	}
}

// canonicalIn reports whether a schema came to the end of a text.
func canonicalIn(s *schema, text string) bool {
	c := scanner{s: text}
	return s.value(&c, "") == "" && c.i == len(text)
}
