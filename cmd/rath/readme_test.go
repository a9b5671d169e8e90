//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// readmeCommands returns the indented lines of a section of the README, in the form
// that a person types.
func readmeCommands(t *testing.T, section string) []string {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join("..", "..", "README.md")))(t)
	_, text, ok := strings.Cut(string(data), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("README.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var lines []string
	more := false
	for line := range strings.Lines(text) {
		switch typed, ok := strings.CutPrefix(line, "    "); {
		case more:
			lines[len(lines)-1] += line
		case ok:
			lines = append(lines, typed)
		default:
			continue
		}
		more = strings.HasSuffix(line, "\\\n")
	}
	return lines
}

// TestREADMEFleet types the lines of the README's section about fleets into a shell.
// Only the port differs, and PID is a node's.
func TestREADMEFleet(t *testing.T) {
	if isPlayed(t) {
		return
	}
	lines := readmeCommands(t, "A fleet")
	exe, err := os.Executable()
	must.Do(t, err)
	dir, bin := t.TempDir(), t.TempDir()
	must.Do(t, os.Symlink(exe, filepath.Join(bin, "rath")))
	examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
	must.Do(t, err)
	must.Do(t, os.Symlink(examples, filepath.Join(dir, "examples")))
	const goRun = "go run ./cmd/rath "
	if len(lines) == 0 || !strings.HasPrefix(lines[0], goRun) {
		t.Fatalf("the section does not begin with %q: %q", goRun, lines)
	}
	port := natstest.FreePort(t)
	dev := startCommand(t, dir, append(strings.Fields(strings.TrimPrefix(lines[0], goRun)), "--port", strconv.Itoa(port))...)
	waitFor(t, func() bool { return strings.Contains(dev.said(), "try  ") })
	nodes := devNode.FindAllStringSubmatch(dev.said(), -1)
	if len(nodes) != 3 {
		t.Fatalf("%d nodes", len(nodes))
	}

	// The output of each line. Read-only commands are repeated until their output
	// appears: a person is slower than a test.
	looks := []string{"rath answer  ", "rath show", "rath session replay"}
	shows := map[string]string{
		"rath submit":              "one\n",
		"rath answer  ":            "write_workspace_file",
		"rath answer one":          "run one continues",
		"rath show":                "hello.txt is written",
		"rath run fanout":          "echo: louder",
		"kill -9":                  "",
		"rath cluster nodes drain": "node b drains",
		"rath session replay":      "matches: 5 of 5 steps",
	}
	for _, line := range lines[1:] {
		line = strings.ReplaceAll(line, "PID", nodes[0][2])
		command := ""
		for begins := range shows {
			if strings.HasPrefix(line, begins) {
				command = begins
			}
		}
		if command == "" {
			t.Fatalf("this test does not say what comes of %q", line)
		}
		want := shows[command]
		delete(shows, command)
		var out []byte
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("$ %s%s", line, out)
			}
		})
		waitFor(t, func() bool {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
			cmd.Dir, cmd.Env = dir, append(ownEnv(dir), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			out, err = cmd.CombinedOutput()
			shown := err == nil && strings.Contains(string(out), want)
			if !shown && (err != nil || !slices.Contains(looks, command)) {
				t.Fatalf("$ %swant %q, %v", line, want, err)
			}
			return shown
		})
	}
	for begins := range shows {
		t.Errorf("the README has no %q", begins)
	}
	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev: exit %d", code)
	}
}
