package tool_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/rathcluster/rath/tool"
)

// TestResultText: Text returns a body as a model reads it, in any form.
func TestResultText(t *testing.T) {
	for want, body := range map[string]any{
		"plain":       "plain",
		"quoted":      tool.JSON(`"quoted"`),
		"raw":         json.RawMessage(`"raw"`),
		`{"n":1}`:     tool.JSON(`{"n":1}`),
		`{"n":2}`:     map[string]int{"n": 2},
		"null":        nil,
		`"not" JSON`:  `"not" JSON`,
		`[1,"a<b>c"]`: []any{1, "a<b>c"},
	} {
		if got := (tool.Result{Body: body}).Text(); got != want {
			t.Errorf("%T %v reads %q, want %q", body, body, got, want)
		}
	}
	if got := fmt.Sprintf("%v", tool.JSON(`"hi"`)); got != "hi" {
		t.Errorf("it prints %q", got)
	}
	var v struct{ N int }
	if err := (tool.Result{Body: tool.JSON(`{"N":7}`)}).Decode(&v); err != nil || v.N != 7 {
		t.Errorf("decoded %v: %v", v, err)
	}
	if err := (tool.Result{Body: tool.JSON(`"text"`)}).Decode(&v); err == nil {
		t.Error("a text was decoded into a struct")
	}
}
