package flow

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPartialAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want []string // the results, fed byte by byte
	}{
		{"", nil},
		{"no JSON at all", nil},
		{`{}`, []string{`{}`}},
		{"Here:\n```json\n{\"a\":1}\n```", []string{`{}`, `{"a":1}`}},
		{`{"n":-1.5e3,"ok":true}`, []string{`{}`, `{"n":-1.5e3}`, `{"n":-1.5e3,"ok":true}`}},
		{`{"a":"xy","b":[1,{"c":null}]}`, []string{
			`{}`, `{"a":""}`, `{"a":"x"}`, `{"a":"xy"}`, `{"a":"xy","b":[]}`, `{"a":"xy","b":[1]}`, `{"a":"xy","b":[1,{}]}`,
			`{"a":"xy","b":[1,{"c":null}]}`,
		}},
		{`{"a":"\"\u00e9\ud83d\ude00é"}`, []string{
			`{}`, `{"a":""}`, `{"a":"\""}`, `{"a":"\"\u00e9"}`, `{"a":"\"\u00e9\ud83d\ude00"}`, `{"a":"\"\u00e9\ud83d\ude00é"}`,
		}},
		{`{"a":"x","b`, []string{`{}`, `{"a":""}`, `{"a":"x"}`}},
		{`{"a" 1}`, []string{`{}`}},
		{`{"a":tru,"b":1}`, []string{`{}`}},
		{`{"a":[1}`, []string{`{}`, `{"a":[]}`, `{"a":[1]}`}},
		{`{"a":1,}`, []string{`{}`, `{"a":1}`}},
		{"{\"a\":\"x\n\"}", []string{`{}`, `{"a":""}`, `{"a":"x"}`}},
	} {
		var p partialAnswer
		var got []string
		for i := range len(tt.text) {
			if said := p.next(tt.text[:i+1]); said != "" {
				got = append(got, said)
			}
		}
		if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
			t.Errorf("of %q:\n%s\nwant\n%s", tt.text, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
		var whole partialAnswer
		if said := whole.next(tt.text); len(tt.want) > 0 && said != tt.want[len(tt.want)-1] {
			t.Errorf("of %q at once: %q", tt.text, said)
		}
	}
}

// TestPartialAnswerBeginsAgain: another text is another answer.
func TestPartialAnswerBeginsAgain(t *testing.T) {
	t.Parallel()
	var p partialAnswer
	for _, step := range [][2]string{{`I look`, ""}, {`{"a":"x`, `{"a":"x"}`}, {`{"b"`, `{}`}, {``, ``}, {`{"b":1,`, `{"b":1}`}, {`{"b":1,`, ""}} {
		if got := p.next(step[0]); got != step[1] {
			t.Errorf("%q gives %q, want %q", step[0], got, step[1])
		}
	}
	if deep := p.next(strings.Repeat(`{"a":`, maxOpen+5)); !json.Valid([]byte(deep)) && deep != "" {
		t.Errorf("too deep: %.100s", deep)
	}
}

// FuzzPartialAnswer: at each byte of any text the result is valid JSON, and at the end of
// a JSON object the object itself.
func FuzzPartialAnswer(f *testing.F) {
	for _, text := range []string{`{"a":"\"\u00e9\ud83d\ude00é","b":[1,{"c":null}],"d":{"e":[[]]}}`, `x {"a": [ "b" , -0.1e+2 ] } y`, `{"a":"\ud83dx"}`, "{\"a\":\"\xff\"}", `{"a":01}`, `{"":{}}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var p partialAnswer
		last := ""
		for i := range len(text) {
			said := p.next(text[:i+1])
			if said == "" {
				continue
			}
			if last = said; !json.Valid([]byte(said)) {
				t.Fatalf("%q gives %q", text[:i+1], said)
			}
		}
		if strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") && json.Valid([]byte(text)) && utf8.ValidString(text) && last != text {
			t.Errorf("%q ends as %q", text, last)
		}
	})
}
