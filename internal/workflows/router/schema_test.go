package router

import (
	"encoding/json"
	"testing"
)

// TestTakesNothing: another pool's schema cannot hang a router, even if a check of a value
// against it would not end.
func TestTakesNothing(t *testing.T) {
	for schema, want := range map[string]bool{
		"":                         true,
		"null":                     true,
		`true`:                     true,
		`{"type":"object"}`:        false,
		`{"type":["null"]}`:        true,
		`{"$ref":"#"}`:             false,
		`{"allOf":[{"$ref":"#"}]}`: false,
		`nonsense`:                 false,
	} {
		if got := takesNothing(json.RawMessage(schema)); got != want {
			t.Errorf("%s: %v", schema, got)
		}
	}
}
