package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
)

// completions returns a shell's completions of a line, without descriptions.
func completions(t testing.TB, line string) (words []string) {
	t.Helper()
	args := append([]string{"rath", "__completeNoDesc"}, strings.Split(line, " ")...)
	var out, errs bytes.Buffer
	if code := execute(args, strings.NewReader(""), &out, &errs, func(string) string { return "" }); code != 0 {
		t.Fatalf("%s: exit %d: %s", line, code, errs.String())
	}
	for w := range strings.Lines(out.String()) {
		if w = strings.TrimSpace(w); !strings.HasPrefix(w, ":") {
			words = append(words, w)
		}
	}
	return words
}

// TestComplete completes ids, workflows, states and kinds: over a server and with the
// node of the store; and completes nothing without a store.
func TestComplete(t *testing.T) {
	if isPlayed(t) {
		return
	}
	store := t.TempDir()
	t.Chdir(store)
	dev, url := startDev(t, store)
	if got := command(t, "rath submit agent -m hello --id tides --session shore --wait", store); strings.Contains(got, "[exit") {
		t.Fatal(got)
	}
	within := completeWithin
	completeWithin = time.Minute // as long as this machine needs
	for _, at := range []string{"", "--server " + url + " "} {
		for line, want := range map[string]string{
			"show ": "@last tides shore-", "show ti": "tides", "cancel ": "@last tides", "answer tides ": "", "diff tides ": "@last tides shore-",
			"ps --state failed,wai": "failed,waiting", "submit fan": "fanout", "run ag": "agent", "ps --state wai": "waiting", "ps --workflow de": "demo demo-fleet", "cluster tail --kind hal": "",
			"cluster tail --kind cla": "claimed", "submit agent --session sho": "shore-", "export --format ": "text json jsonl",
			"cluster nodes show ": "dev",
		} {
			var short []string
			for _, w := range completions(t, at+line) {
				if i := strings.Index(w, "shore-"); i == 0 {
					w = "shore-"
				}
				short = append(short, w)
			}
			if got := strings.Join(short, " "); got != want {
				t.Errorf("%q: %q, want %q", at+line, got, want)
			}
		}
	}
	dev.interrupt()
	t.Chdir(t.TempDir())
	if got := completions(t, "show "); len(got) > 0 {
		t.Errorf("without a store: %q", got)
	}
	completeWithin = within
	least := time.Hour
	for range 3 {
		began := time.Now()
		if got := completions(t, "--server nats://127.0.0.1:9 show "); len(got) > 0 {
			t.Errorf("without a server: %q", got)
		}
		least = min(least, time.Since(began))
	}
	if least > 2*completeWithin {
		t.Errorf("without a server it takes %s, want at most %s", least, completeWithin)
	}
}

// TestCompletedCommands checks that each command with completed arguments exists.
func TestCompletedCommands(t *testing.T) {
	a := app.New("rath", nil, io.Discard, io.Discard, func(string) string { return "" })
	var paths []string
	for _, c := range commands(root(a)) {
		paths = append(paths, strings.TrimPrefix(c.CommandPath(), "rath "))
	}
	for name := range completed {
		if !slices.Contains(paths, name) {
			t.Errorf("there is no command %q", name)
		}
	}
}
