package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestLastLines: the last lines of a node's log are shortened so that their beginning,
// the part that fits on a terminal, is informative.
func TestLastLines(t *testing.T) {
	m := &Member{Log: filepath.Join(t.TempDir(), "log")}
	for log, want := range map[string][]string{
		"": nil,
		`{"time":"2026-11-28T08:58:13.5Z","level":"WARN","msg":"this node hears from no other one","err":"none answers","n":1,"level":"fsync"}` + "\n\n" +
			`{"time":"2026-11-28T08:58:14Z","level":"INFO","msg":"node is up"}` + "\n": {`WARN this node hears from no other one err="none answers" n=1 level="fsync"`, "INFO node is up"},
		"a program may print\n{\"level\":\"of its own\"}\n{\"time\":\n": {"a program may print", `{"level":"of its own"}`, `{"time":`},
		"before\npanic: boom\n\ngoroutine 1\n":                          {"panic: boom", "goroutine 1"},
	} {
		must.Do(t, os.WriteFile(m.Log, []byte(log), 0o600))
		if got := m.Lines(); !slices.Equal(got, want) {
			t.Errorf("%s: it says %q, want %q", log, got, want)
		}
	}
}

// TestWords: the words of a node that died are those of its program, even if other
// parts of the node logged lines in between, but not lines from long before.
func TestWords(t *testing.T) {
	m := &Member{Log: filepath.Join(t.TempDir(), "log")}
	logged := func(second, text string) string {
		return `{"time":"2026-11-28T08:58:` + second + `Z","level":"INFO","msg":"` + text + `"}` + "\n"
	}
	for log, want := range map[string]string{
		"":                                 "",
		logged("10", "up") + "no memory\n": "no memory",
		"no memory\n" + logged("10", "up"): "no memory",
		"words\n" + logged("10.1", "a") + logged("10.4", "b") + logged("10.9", "c"): "words",
		"words\n" + logged("10", "a") + logged("12", "b"):                           "INFO b",
		"panic: boom\n\ngoroutine 1\n" + logged("10", "a"):                          "panic: boom",
	} {
		must.Do(t, os.WriteFile(m.Log, []byte(log), 0o600))
		if got := m.words(); got != want {
			t.Errorf("%s: the words are %q, want %q", log, got, want)
		}
	}
}

// TestWordsOfAStart: a restarted node appends to the same file, and the words of its
// former start remain separate.
func TestWordsOfAStart(t *testing.T) {
	before, after := "of an earlier start\n", "of a later start\n"
	m := &Member{Log: filepath.Join(t.TempDir(), "log"), from: int64(len(before)), done: make(chan struct{})}
	m.to = m.from + int64(len("its words\n"))
	close(m.done)
	must.Do(t, os.WriteFile(m.Log, []byte(before+"its words\n"+after), 0o600))
	if got := m.words(); got != "its words" {
		t.Errorf("the words are %q", got)
	}
	if got := m.Lines(); !slices.Equal(got, []string{"its words"}) {
		t.Errorf("the lines are %q", got)
	}
}
