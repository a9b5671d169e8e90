package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/core/strict"
)

// TestQueryRefusals: an invalid query is rejected with its field, the cause and the
// remedy.
func TestQueryRefusals(t *testing.T) {
	many := func(n int, one string) string { return "[" + strings.Repeat(one+",", n-1) + one + "]" }
	digest := `"` + strings.Repeat("0a", 32) + `"`
	for body, want := range map[string][2]string{
		`{"run":"a b"}`:                                   {"run", "send the id of a run, or @last"},
		`{"session":"a:b:c"}`:                             {"session", `write it as "session" or "session:version"`},
		`{"limit":-1}`:                                    {"limit", "leave it out and read page by page"},
		fmt.Sprintf(`{"limit":%d}`, MaxLimit+1):           {"limit", "is not of 0 to 10000"},
		`{"digests":` + many(MaxDigests+1, digest) + `}`:  {"digests", fmt.Sprintf("ask for %d at a time", MaxDigests)},
		`{"digests":["` + strings.Repeat("0", 64) + `"]}`: {"digests[0]", "send 64 lower-case hexadecimal digits"},
		`{"digests":[` + digest + `,"x"]}`:                {"digests[1]", `digest "x": want 64 hexadecimal digits`},
		`{"digests":7}`:                                   {"digests", `write it as ["one","two"]`},
		`{"tasks":` + many(MaxTasks+1, `"a"`) + `}`:       {"tasks", fmt.Sprintf("ask for %d at a time", MaxTasks)},
		`{"tasks":["a","b c"]}`:                           {"tasks[1]", "send ids of runs"},
		`{"at":{"seq":1,"token":1,"hash":"x"}}`:           {"at", "send the next of the page before as it came"},
		`{"states":["running","gone"]}`:                   {"states[1]", `"gone" is no state of a run`},
		`{"format":"png"}`:                                {"format", "use text, mermaid or svg"},
		`{"scores":"bm25"}`:                               {"scores", "use openrath, or leave it out"},
		`{"level":"most"}`:                                {"level", "use abstract, overview or full"},
		`{"memory":"a/b"}`:                                {"memory", "send the name of a memory"},
		`{"workflow":"a b"}`:                              {"workflow", "send the name of a workflow"},
	} {
		_, err := DecodeQuery([]byte(body))
		e, ok := errors.AsType[*strict.Error](err)
		if !ok || e.Message != "query" || e.Field != want[0] || !strings.Contains(err.Error(), want[1]) {
			t.Errorf("%.80s: %v, want field %s and %q", body, err, want[0], want[1])
		}
	}
	if _, err := DecodeBlob([]byte(`{"data":"!!!"}`)); err == nil || !strings.Contains(err.Error(), `field data: "!!!" is not in base64`) {
		t.Errorf("a blob: %v", err)
	}
	for _, body := range []string{
		"", `{}`, `{"run":"@last"}`, `{"run":"a","session":"s:3","limit":10000,"tasks":["a"],"states":["waiting"],"format":"svg","scores":"openrath","level":"full","where":"state=failed","cursor":"end","memory":"m","workflow":"w","digests":[` + digest + `]}`,
	} {
		if _, err := DecodeQuery([]byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}
