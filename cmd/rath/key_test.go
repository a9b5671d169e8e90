package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
)

// TestKeyForPrograms: a key is a line for a file, and JSON with --format json.
func TestKeyForPrograms(t *testing.T) {
	code, line, errs := rath(t, "cluster", "key")
	if code != app.ExitOK || len(strings.TrimSpace(line)) != 44 || errs != "" {
		t.Errorf("exit %d: %q %q", code, line, errs)
	}
	for _, form := range []string{"json", "jsonl"} {
		var v struct{ Key string }
		code, out, _ := rath(t, "cluster", "key", "--format", form)
		if err := json.Unmarshal([]byte(out), &v); err != nil || code != app.ExitOK || len(v.Key) != 44 {
			t.Errorf("-o %s: exit %d, %v: %q", form, code, err, out)
		}
	}
}
