package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestNoStore gives every command that reads a store a directory without one. The
// command reports that and makes none, also if the directory exists already, or another
// one was named.
func TestNoStore(t *testing.T) {
	asks := []string{
		"answer", "answer r yes", "answer --where state=waiting yes", "cancel r", "cancel --where state=failed", "cluster audit", "cluster bench", "cluster dlq drop 1 --reason x",
		"cluster dlq ls", "cluster dlq retry 1", "cluster dlq show 1", "cluster nodes drain b", "cluster nodes ls", "cluster nodes show b",
		"cluster prune --older-than 1d --dry-run", "cluster quarantine r --reason x", "cluster repair", "cluster rebudget r --unlimited", "cluster release r --reason x",
		"cluster tail", "cluster tools ls", "cluster tools withdraw x", "diff a b", "event publish a b", "export r", "memory add m x", "memory export m", "memory find m x", "memory forget m memory://", "memory import m .", "memory ls",
		"memory read m memory://user/x", "ps", "cluster quota open", "cluster quota remove", "cluster quota set --runs 1", "cluster quota show", "resume", "session fork r", "session merge a b", "session message r hi", "session replay r",
		"session rerun r", "session rewind r:1", "show r", "show r --steps", "show r --tree", "token create --user ana --role client", "token ls", "token revoke x", "top", "apply r", "why r", "why --impact r", "cluster prune --blobs",
		"workspace get r f", "workspace ls r", "workspace merge a b", "workflows ls", "workflows show w",
	}
	makes := []string{ // one, or ask no store
		"cluster import", "cluster key", "cluster provision", "demo", "dev", "doctor", "doctor completion", "doctor config", "doctor config init",
		"init", "mcp add", "mcp login", "mcp ls", "mcp test", "member", "models import", "models ls", "models serve", "models test", "node", "open", "router", "run", "submit", "verify", "version",
	}
	known := map[string]bool{}
	for _, line := range append(asks, makes...) {
		words := strings.Fields(line)
		for n := range min(len(words), 3) {
			known[strings.Join(words[:n+1], " ")] = true
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
			must.Do(t, os.Mkdir(store, 0o700))
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
