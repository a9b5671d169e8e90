package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestInputIsText: input that is no text is rejected, and not sent with replacement
// characters.
func TestInputIsText(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must.Do(t, os.WriteFile("picture", []byte("\x89PNG\xff"), 0o600))
	const want = "no text in UTF-8"
	if got := command(t, "rath run -f picture", dir); !strings.Contains(got, want) || !strings.Contains(got, "[exit 2]") {
		t.Errorf("it says %q, want %q and exit code 2", got, want)
	}
}

// TestImportFindsArchive restores a session by exactly the command that its error
// names.
func TestImportFindsArchive(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	command(t, "RATH_MODEL=echo rath run -m hello --session notes -q", dir)
	command(t, "rath cluster prune --older-than 0", dir)
	names, err := filepath.Glob(filepath.Join(".rath", "archives", "*.json"))
	if err != nil || len(names) != 1 {
		t.Fatalf("archives %q, %v", names, err)
	}
	if got := command(t, "rath show notes", dir); !strings.Contains(got, "bring it back with: rath cluster import") {
		t.Errorf("a session that was archived says %q", got)
	}
	if got := command(t, "rath cluster import "+filepath.Base(names[0]), dir); strings.Contains(got, "[exit") {
		t.Errorf("import says %q", got)
	}
	if got := command(t, "rath show notes", dir); !strings.Contains(got, "echo: hello") {
		t.Errorf("the session reads as %q", got)
	}
}
