package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// commands returns every command of the tree.
func commands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			all = append(all, commands(c)...)
		}
	}
	return all
}

func helpOf(t *testing.T, path string) string {
	t.Helper()
	var out, errs bytes.Buffer
	args := append(strings.Fields(path), "--help")
	if code := execute(args, strings.NewReader(""), &out, &errs, func(string) string { return "" }); code != 0 || errs.Len() > 0 {
		t.Fatalf("%s: exit %d, %s", strings.Join(args, " "), code, errs.String())
	}
	return out.String()
}

func TestEveryCommandHelps(t *testing.T) {
	a := app.New("rath", nil, io.Discard, io.Discard, func(string) string { return "" })
	for _, c := range commands(root(a)) {
		if c.Short == "" || c.Runnable() && c.Example == "" {
			t.Errorf("%s has no short text or no example", c.CommandPath())
		}
		for line := range strings.Lines(helpOf(t, c.CommandPath())) {
			if term.Width(strings.TrimRight(line, "\n")) > 80 {
				t.Errorf("%s: wider than 80 columns: %s", c.CommandPath(), line)
			}
		}
	}
}

// TestFirstLevel counts the commands of the first level: each belongs to a group, and
// there is room for more.
func TestFirstLevel(t *testing.T) {
	a := app.New("rath", nil, io.Discard, io.Discard, func(string) string { return "" })
	const most = 30
	var words []string
	for _, c := range root(a).Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" {
			continue
		}
		words = append(words, c.Name())
		if c.GroupID == "" {
			t.Errorf("%s stands in no group of the help", c.Name())
		}
	}
	if len(words) > most {
		t.Errorf("%d words at the first level, want at most %d: %s", len(words), most, strings.Join(words, " "))
	}
}

// TestHelpTexts compares the help of every command with testdata/help.txt.
func TestHelpTexts(t *testing.T) {
	a := app.New("rath", nil, io.Discard, io.Discard, func(string) string { return "" })
	var b strings.Builder
	for _, c := range commands(root(a)) {
		b.WriteString("== " + c.CommandPath() + "\n" + helpOf(t, c.CommandPath()) + "\n")
	}
	const name = "testdata/help.txt"
	if *update {
		must.Do(t, os.WriteFile(name, []byte(b.String()), 0o644))
		return
	}
	want := must.Get(os.ReadFile(name))(t)
	if got, want := b.String(), strings.ReplaceAll(string(want), "\r\n", "\n"); got != want {
		t.Errorf("the help differs (go test ./cmd/rath -update rewrites it):\n%s", firstDifference(got, want))
	}
}

// TestArgumentsAreUsage gives every command as many arguments as there may be: a number
// or a word that the command does not take is a wrong command line, with an error in
// our words.
func TestArgumentsAreUsage(t *testing.T) {
	a := app.New("rath", nil, io.Discard, io.Discard, func(string) string { return "" })
	unbounded := []string{"rath cluster import", "rath mcp add", "rath verify", "rath member", "rath node", "rath router"}
	for _, c := range commands(root(a)) {
		if !c.Runnable() {
			continue
		}
		refused := 0
		for n := range 8 {
			err := c.ValidateArgs(slices.Repeat([]string{"foo"}, n))
			if err == nil {
				continue
			}
			refused++
			if app.CodeOf(err) != app.ExitUsage || strings.Contains(err.Error(), " for \"rath") {
				t.Errorf("%s with %d arguments: exit %d, %v", c.CommandPath(), n, app.CodeOf(err), err)
			}
		}
		if refused == 0 && !slices.Contains(unbounded, c.CommandPath()) {
			t.Errorf("%s takes any number of arguments", c.CommandPath())
		}
	}
}

// TestSelectTopic checks for a space after the name of every field.
func TestSelectTopic(t *testing.T) {
	text := selection.Topic()
	for _, f := range lineage.SelectorFields() {
		if !strings.Contains(text, "\n  "+f.Name+"  ") {
			t.Errorf("%s is not in a column of its own:\n%s", f.Name, text)
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "./a-b_c": "./a-b_c", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "$x": "'$x'"} {
		if got := app.ShellWord(in); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", in, got, want)
		}
	}
}

// TestInitBuilds writes a module outside of the repository, and builds and
// tests it there.
func TestInitBuilds(t *testing.T) {
	if isPlayed(t) {
		return
	}
	checkout := must.Get(filepath.Abs(filepath.Join("..", "..")))(t)
	t.Chdir(t.TempDir())
	var out, errs bytes.Buffer
	if code := execute([]string{"rath", "init", "review", "--replace", checkout}, nil, &out, &errs, func(string) string { return "" }); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	for _, args := range [][]string{{"vet", "."}, {"test", "-vet=off", "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = "review"
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly", "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if gofmt, err := exec.LookPath("gofmt"); err == nil {
		if out, err := exec.CommandContext(t.Context(), gofmt, "-l", "review").CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("gofmt -l: %v %s", err, out)
		}
	}
}
