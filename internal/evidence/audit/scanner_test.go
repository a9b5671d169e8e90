package audit

import (
	"errors"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
)

// TestCanonical checks that only one form of a JSON value is canonical.
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

// TestReadSchemas checks that an unreadable or unresolvable schema is an error with its
// name.
func TestReadSchemas(t *testing.T) {
	valid := fstest.MapFS{}
	for _, name := range []string{"commit", "records", "result", "alias"} {
		valid[name+".v1.json"] = &fstest.MapFile{Data: []byte(`{"$defs":{"run.ended":{"type":"object"}}}`)}
	}
	if _, err := ReadSchemas(valid); err != nil {
		t.Error(err)
	}
	for name := range valid {
		for what, data := range map[string]string{"no JSON": "{", "no type": `{"type":7}`, "a keyword that is misspelt": `{"$defs":{"run.ended":{"minimun":7}}}`, "no reference": `{"$defs":{"run.ended":{"$ref":"#/$defs/none"}}}`} {
			files := maps.Clone(valid)
			files[name] = &fstest.MapFile{Data: []byte(data)}
			if _, err := ReadSchemas(files); err == nil || !strings.Contains(err.Error(), "schema") {
				t.Errorf("%s with %s: %v", name, what, err)
			}
		}
		files := maps.Clone(valid)
		delete(files, name)
		if _, err := ReadSchemas(files); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
