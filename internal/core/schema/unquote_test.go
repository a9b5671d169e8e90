package schema

import (
	"encoding/json"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestUnquoted: a quoted value of a model is accepted where the schema accepts no text.
func TestUnquoted(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{
		"n":{"type":"integer","minimum":1},"f":{"type":"number"},"b":{"type":"boolean"},"s":{"type":"string"},"e":{"type":"integer","enum":[1,2]},
		"either":{"type":["string","integer"]},"word":{"enum":["1","2"]},"maybe":{"anyOf":[{"type":"integer"},{"type":"null"}]},
		"list":{"type":"array","items":{"type":"integer"}},"deep":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"additionalProperties":false},"any":{}},
		"$defs":{"n":{"type":"integer"}},"additionalProperties":false}`
	c := must.Get(Compile("t", json.RawMessage(schema)))(t)
	for args, want := range map[string]string{
		`{"n":"5000"}`: `{"n":5000}`, `{"n":" 7 "}`: `{"n":7}`, `{"f":"-1.5e3"}`: `{"f":-1.5e3}`, `{"n":12345678901234567890,"b":"true"}`: `{"b":true,"n":12345678901234567890}`,
		`{"b":"false"}`: `{"b":false}`, `{"b":"True"}`: `{"b":true}`, `{"e":"2"}`: `{"e":2}`, `{"maybe":"3"}`: `{"maybe":3}`, `{"n":"1","s":null}`: `{"n":1}`,
		`{"list":"[1, 2]"}`: `{"list":[1,2]}`, `{"list":["1",2]}`: `{"list":[1,2]}`, `{"deep":{"n":"4"}}`: `{"deep":{"n":4}}`, `{"deep":"{\"n\":4}"}`: `{"deep":{"n":4}}`,
		// These are texts, and stay so.
		`{"s":"5000"}`: `{"s":"5000"}`, `{"either":"5"}`: `{"either":"5"}`, `{"word":"1"}`: `{"word":"1"}`, `{"any":"1"}`: `{"any":"1"}`,
	} {
		if got, err := c.Check(args); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", args, got, err, want)
		}
	}
	for _, args := range []string{
		`{"n":"05"}`, `{"n":"0"}`, `{"n":"5s"}`, `{"n":"1.5"}`, `{"n":""}`, `{"n":"NaN"}`, `{"n":"0x10"}`, `{"b":"yes"}`, `{"b":"1"}`, `{"b":"TRUE"}`, `{"e":"3"}`, `{"list":"1,2"}`, `{"list":"[1] [2]"}`, `{"deep":"{"}`, `{"deep":{"m":"4"}}`, `{"s":5}`, `{"x":"5"}`,
	} {
		if got, err := c.Check(args); err == nil {
			t.Errorf("%s: taken as %s", args, got)
		}
	}
}
