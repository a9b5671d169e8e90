package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
)

// TestNoStore gives every command that asks something of a store a directory
// that has none. It says so and makes none, also where the directory exists
// already, or another one was named.
func TestNoStore(t *testing.T) {
	asks := []string{
		"approvals ls", "approve r", "audit", "bench", "cancel r", "cancel --where state=failed", "diff a b", "dlq drop 1 --reason x",
		"dlq ls", "dlq retry 1", "dlq show 1", "export r", "fork r", "graph r", "impact r", "merge a b", "message r hi", "nodes drain b", "nodes ls",
		"nodes show b", "prune --older-than 1d --dry-run", "ps", "quarantine r --reason x", "rebudget r --unlimited", "reject r --reason x",
		"release r --reason x", "replay r", "rerun r", "resolve r --fail --reason x", "respond r 1", "resume", "rewind r:1", "show r",
		"tail", "tools ls", "tools withdraw x", "trace r", "why r",
	}
	makes := []string{ // one, or ask no store
		"completion", "config", "config init", "demo", "dev", "doctor", "import", "init", "key", "member", "models serve", "node", "provision", "router", "run", "submit", "verify", "version",
	}
	known := map[string]bool{}
	for _, line := range append(asks, makes...) {
		words := strings.Fields(line)
		known[words[0]] = true
		if len(words) > 1 {
			known[words[0]+" "+words[1]] = true
		}
	}
	a := app.New("rath", nil, io.Discard, io.Discard, func(string) string { return "" })
	for _, c := range commands(root(a)) {
		name := strings.TrimPrefix(c.CommandPath(), "rath ")
		if c.Runnable() && !c.HasSubCommands() && !known[name] {
			t.Errorf("%s is in no list: does it make a store?", name)
		}
	}
	dir := t.TempDir()
	t.Chdir(dir)
	for _, store := range []string{"", "mine"} {
		flag, want := "", "there is no store at .rath: start with"
		if store != "" {
			flag, want = " --store "+store, "there is no store at "+store+": start with"
			if err := os.Mkdir(store, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, line := range asks {
			if got := command(t, "rath "+line+flag, dir); !strings.Contains(got, want) || !strings.HasSuffix(got, "[exit 3]\n") {
				t.Errorf("$ rath %s\n%s", line+flag, got)
			}
			if _, err := os.Stat(".rath"); err == nil {
				t.Fatalf("rath %s made a store", line)
			}
		}
	}
	if in, err := os.ReadDir("mine"); err != nil || len(in) > 0 {
		t.Errorf("mine holds %v, %v; want nothing", in, err)
	}
}
