package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestImportOverServer imports an archive and a session of OpenRath to a server with a
// client's rights, with the same output as at a store.
func TestImportOverServer(t *testing.T) {
	if isPlayed(t) {
		return
	}
	if runtime.GOOS == "windows" {
		t.Log("a process cannot be interrupted from outside here")
		return
	}
	here, err := os.Getwd()
	must.Do(t, err)
	from, store, server := t.TempDir(), t.TempDir(), t.TempDir()
	t.Chdir(from)
	for _, line := range []string{`run --model echo -m "hello" --id one --session notes`, "cluster prune --older-than 0s"} {
		if got := command(t, "rath "+line, from); strings.Contains(got, "[exit") {
			t.Fatalf("$ rath %s\n%s", line, got)
		}
	}
	archives, err := filepath.Glob(filepath.Join(".rath", "archives", "*.json"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("%v, %v", archives, err)
	}
	doc, err := os.ReadFile(archives[0])
	must.Do(t, err)
	for name, data := range map[string]string{
		"cut.json": string(doc[:len(doc)/2]), "altered.json": strings.Replace(string(doc), "hello", "hullo", 1), "none.json": "{}",
	} {
		must.Do(t, os.WriteFile(name, []byte(data), 0o600))
	}
	session, err := os.ReadFile(filepath.Join(here, "..", "..", "internal", "evidence", "openrath", "testdata", "v1.2.jsonl"))
	if err == nil {
		err = os.WriteFile("session.jsonl", session, 0o600)
	}
	must.Do(t, err)
	dev, url := startDev(t, server)
	t.Chdir(from)
	local := "rath --store " + filepath.Join(store, ".rath") + " "
	command(t, local+"run --model echo -m x --id other", from) // makes the store
	for _, c := range []struct{ line, want string }{
		{"cluster import " + archives[0] + " session.jsonl", "archive"},
		{"cluster import " + archives[0] + " session.jsonl --format jsonl", "was there already"},
		{"show notes", "hello"},
		{"cluster import cut.json altered.json", "[exit 6]"},
		{"cluster import none.json", "[exit 6]"},
		{"cluster import nosuch.json", "[exit 3]"},
	} {
		at, over := command(t, local+c.line, from), command(t, "rath --server "+url+" "+c.line, from)
		if !strings.Contains(at, c.want) {
			t.Errorf("$ rath %s\n%s\nwant %q", c.line, at, c.want)
		}
		// Rejections have different texts at the store and over the server.
		if c.want != "[exit 6]" && at != over || !strings.Contains(over, c.want) {
			t.Errorf("$ rath %s\nat the store\n%s\nover the server\n%s", c.line, at, over)
		}
	}
	// The importing user is in the lineage and in the evidence.
	for _, line := range []string{"cluster tail notes", "export one --dossier md"} {
		got := command(t, "rath --server "+url+" "+line, from)
		if !strings.Contains(got, "by anonymous") || !strings.Contains(got, "it was not here before") {
			t.Errorf("$ rath %s does not say who brought the session:\n%s", line, got)
		}
	}
	dev.interrupt()
}

// TestImportedRunWithTheSameID imports a session whose run has the id of an existing
// run. The id remains the name of the existing run, for its transcript, why and
// dossier; the session names the imported one.
func TestImportedRunWithTheSameID(t *testing.T) {
	if isPlayed(t) {
		return
	}
	from, here := t.TempDir(), t.TempDir()
	t.Chdir(from)
	for _, line := range []string{`run --model echo -m "asked elsewhere" --id one --session notes`, "cluster prune --older-than 0s"} {
		if got := command(t, "rath "+line, from); strings.Contains(got, "[exit") {
			t.Fatalf("$ rath %s\n%s", line, got)
		}
	}
	archives, err := filepath.Glob(filepath.Join(from, ".rath", "archives", "*.json"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("%v, %v", archives, err)
	}
	t.Chdir(here)
	for _, line := range []string{`run --model echo -m "asked here" --id one --session mine`, "cluster import " + archives[0]} {
		if got := command(t, "rath "+line, here); strings.Contains(got, "[exit") {
			t.Fatalf("$ rath %s\n%s", line, got)
		}
	}
	for _, c := range []struct{ line, want, not string }{
		{"show one", "asked here", "asked elsewhere"},
		{"export one --dossier md", "asked here", "asked elsewhere"},
		{"why one", "mine", "notes"},
		{"show notes", "asked elsewhere", "asked here"},
		{"export notes", "asked elsewhere", "asked here"},
		{"export notes --dossier md", "asked elsewhere", "asked here"},
		{"why notes", "notes", "mine"},
	} {
		got := command(t, "rath "+c.line, here)
		if strings.Contains(got, "[exit") || !strings.Contains(got, c.want) || strings.Contains(strings.ReplaceAll(got, c.want, ""), c.not) {
			t.Errorf("$ rath %s\n%s\nwant %q and not %q", c.line, got, c.want, c.not)
		}
	}
}
