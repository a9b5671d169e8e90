package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestLastLines: what a node logged last is told so that its beginning, which is all that a
// terminal shows, says something.
func TestLastLines(t *testing.T) {
	m := &Member{Log: filepath.Join(t.TempDir(), "log")}
	for log, want := range map[string][]string{
		"": nil,
		`{"time":"2026-11-28T08:58:13.5Z","level":"WARN","msg":"this node hears from no other one","err":"none answers","n":1,"level":"fsync"}` + "\n\n" +
			`{"time":"2026-11-28T08:58:14Z","level":"INFO","msg":"node is up"}` + "\n": {`WARN this node hears from no other one err="none answers" n=1 level="fsync"`, "INFO node is up"},
		"a program may print\n{\"level\":\"of its own\"}\n{\"time\":\n": {"a program may print", `{"level":"of its own"}`, `{"time":`},
		"before\npanic: boom\n\ngoroutine 1\n":                          {"panic: boom", "goroutine 1"},
	} {
		if err := os.WriteFile(m.Log, []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := m.Lines(); !slices.Equal(got, want) {
			t.Errorf("%s: it says %q, want %q", log, got, want)
		}
	}
}
