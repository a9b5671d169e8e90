package release_test

import (
	"encoding/json"
	"testing"

	"github.com/rathcluster/rath/internal/release"
)

// TestExtend: an object has a field more in the next release only, and is
// otherwise the same.
func TestExtend(t *testing.T) {
	for _, in := range []string{`{}`, `{"a":1}`, `{"a":{"b":"}"}}`} {
		var before, after map[string]json.RawMessage
		if err := json.Unmarshal([]byte(in), &before); err != nil {
			t.Fatal(err)
		}
		out := release.Extend(in)
		if err := json.Unmarshal([]byte(out), &after); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if len(after) != len(before)+release.Ahead || string(release.Extend([]byte(in))) != out {
			t.Errorf("%s became %s", in, out)
		}
		for k, v := range before {
			if string(after[k]) != string(v) {
				t.Errorf("%s became %s", in, out)
			}
		}
	}
	for _, in := range []string{"", "[1]", `"text"`, "{"} {
		if out := release.Extend(in); out != in {
			t.Errorf("%q became %q", in, out)
		}
	}
}
