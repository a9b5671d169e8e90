package main

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestFilesOverServer uploads a directory with only a client's credentials, and gets
// the diff, the proof and the author of a line, as at the store.
func TestFilesOverServer(t *testing.T) {
	if isPlayed(t) {
		return
	}
	if runtime.GOOS == "windows" {
		t.Log("a process cannot be interrupted from outside here")
		return
	}
	node, dir := t.TempDir(), t.TempDir()
	script := "Edits.\n\n-- edit --\noffers: write_workspace_file\nnot result: write_workspace_file\n" +
		"call: write_workspace_file {\"path\":\"a.txt\",\"content\":\"two\\n\"}\n" +
		"call: write_workspace_file {\"path\":\".git/hooks/post-commit\",\"content\":\"#!/bin/sh\\n\"}\n\n-- done --\n\ndone\n"
	big := make([]byte, 700<<10) // three parts
	_, _ = rand.Read(big)
	for name, data := range map[string][]byte{
		filepath.Join(node, "edit.txtar"): []byte(script), filepath.Join(dir, "work", "a.txt"): []byte("one\n"), filepath.Join(dir, "later", "a.txt"): []byte("one\n"),
		filepath.Join(dir, "ours", "zip", "SKILL.md"): []byte("---\nname: zip\ndescription: Packs files.\n---\n"),
		filepath.Join(dir, "work", "big"):             big,
		filepath.Join(dir, "work", ".gitignore"):      []byte("*.log\n"), filepath.Join(dir, "work", "x.log"): []byte("stays"), filepath.Join(dir, "work", ".git", "config"): []byte("[core]\n"),
	} {
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, os.WriteFile(name, data, 0o644))
	}
	dev, url := startDev(t, node, "--script", filepath.Join(node, "edit.txtar"))
	t.Chdir(dir)
	gitCommand(t, []string{"init", "-q", "later"}, dir)
	gitCommand(t, []string{"-C", "later", "add", "a.txt"}, dir)
	gitCommand(t, []string{"-C", "later", "commit", "-q", "-m", "first"}, dir)
	for _, c := range []struct{ line, want string }{
		{"run -C work -m edit --apply --id one --out-dossier run.html", "put back .git/hooks/post-commit"},
		{"diff - one", "+two"},
		{"why one:a.txt:1", "write_workspace_file"},
		{"show one", "HEAD in local"},
		{"show one --step 1", "answer   finish tool_calls"},
		{"why one/0", "tools, "},
		{"export one --dossier json --out run.json", ""},
		{"export one", "record_type"},
		{"export one --script", "write_workspace_file"},
		{"submit agent -C work -m edit --id two --wait", "done"},
		{"submit agent -C later -m edit --id three --wait", "done"},
		{"submit agent -C later --git -m edit --id four --wait", "done"},
		{"workspace ls four .git", ".git/packed-refs"},
		{"apply three -C later --only a.txt --branch", "a.txt"},
		{"apply three -C later --only a.txt", "a.txt"},
		{"workflows show agent", "agent agent"},
		{"submit agent --skills ours -m edit --id five --wait", "done"},
		{"workspace ls five .agents/skills", ".agents/skills/zip/SKILL.md"},
		{"workspace ls three", "100644  4      a.txt"},
		{"workspace get three a.txt", "two"},
		{"workspace merge two three --base - --on-conflict both", "HASH64"},
	} {
		got := command(t, "rath --server "+url+" "+c.line, dir)
		if !strings.Contains(got, c.want) || strings.Contains(got, "[exit") {
			t.Errorf("$ %s\n%s\nwant %q", c.line, got, c.want)
		}
	}
	for name, want := range map[string]string{"a.txt": "two\n", "big": string(big), ".git/config": "[core]\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, "work", filepath.FromSlash(name))); err != nil || string(got) != want {
			t.Errorf("%s holds %d bytes, %v", name, len(got), err)
		}
	}
	if got := gitCommand(t, []string{"-C", "later", "show", "rath/three:a.txt"}, dir); got != "two\n" {
		t.Errorf("the branch of run three says %q", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "work", ".git", "hooks")); err == nil {
		t.Error("a hook came out")
	}
	for _, name := range []string{"run.json", "run.html"} {
		if got := command(t, "rath verify "+name, dir); strings.Contains(got, "[exit") {
			t.Errorf("verify %s: %s", name, got)
		}
	}
	// It is signed: a client verifies that of any run with the operator's list of
	// signers.
	signers := filepath.Join(dir, "signers")
	t.Chdir(node)
	command(t, "rath verify --print-signers > "+signers, node)
	t.Chdir(dir)
	for _, c := range []struct{ line, want string }{
		{"verify run.html --signers signers --require-anchor", "by rath, SHA256:KEY"},
		{"--server " + url + " verify two --signers signers", "verified"},
		{"--server " + url + " verify nope --signers signers", "[exit 3]"},
		{"--server " + url + " verify --print-signers", "[exit 2]"},
	} {
		if got := command(t, "rath "+c.line, dir); !strings.Contains(got, c.want) {
			t.Errorf("$ rath %s\n%s\nwant %q", c.line, got, c.want)
		}
	}
	// The store's own dossier is the same to the byte, and its view of a step.
	step := command(t, "rath --server "+url+" show one --step 1 --format json", dir)
	t.Chdir(node)
	command(t, "rath export one --dossier json --out store.json", node)
	if got := command(t, "rath show one --step 1 --format json", node); got != step || !strings.Contains(got, `"tool_table"`) {
		t.Errorf("the step at the store:\n%s\nover the server:\n%s", got, step)
	}
	t.Chdir(dir)
	want := must.Get(os.ReadFile(filepath.Join(node, "store.json")))(t)
	if got, err := os.ReadFile(filepath.Join(dir, "run.json")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the dossier of the store has %d bytes, that of the client %d, %v", len(want), len(got), err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "later", "a.txt")); err != nil || string(got) != "two\n" {
		t.Errorf("applied later: %q, %v", got, err)
	}
	if got := command(t, "rath --server "+url+" --tenant other diff - one", dir); !strings.Contains(got, "[exit 7]") {
		t.Errorf("as another tenant: %s", got)
	}
	dev.interrupt()
}

// TestAuthorities checks that the servers' authority can be named as for nodes.
func TestAuthorities(t *testing.T) {
	dir := t.TempDir()
	got := command(t, "NATS_CA=authorities.pem rath --server tls://127.0.0.1:1 ps", dir)
	if !strings.Contains(got, "authorities.pem") || strings.HasSuffix(got, "[exit 0]\n") {
		t.Errorf("authorities that are not there: %s", got)
	}
}
