package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// hint finds the commands in a text that people are to type: in quotes, or on lines of
// their own, behind a word or none. Three blanks separate a command from a remark.
var hint = regexp.MustCompile(`"(rath [^"]+)"|(?m:^>?\w* {2,}(rath .*)$)`)

// hintsOf returns the commands of a text.
func hintsOf(text string) (lines []string) {
	for _, m := range hint.FindAllStringSubmatch(text, -1) {
		for line := range strings.SplitSeq(m[1]+m[2], "  |  ") {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "   ")
			for word, value := range map[string]string{"TEXT": "x", "VALUE": "1", "RUN": "r", "NAME": "n", "COMMAND": "ps"} {
				line = regexp.MustCompile(`\b`+word+`\b`).ReplaceAllString(line, value)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// TestHintsParse parses each command that the transcripts suggest as the command line
// does, up to where it would run.
func TestHintsParse(t *testing.T) {
	names := must.Get(filepath.Glob("testdata/*.txtar"))(t)
	seen := map[string]bool{}
	for _, name := range names {
		data := must.Get(os.ReadFile(name))(t)
		for _, line := range hintsOf(string(data)) {
			if seen[line] {
				continue
			}
			seen[line] = true
			if err := parses(split(line)[1:]); err != nil {
				t.Errorf("%s tells to type %q: %v", filepath.Base(name), line, err)
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d commands are told: are they found?", len(seen))
	}
}

// parses returns the error of a command line, short of running it.
func parses(args []string) error {
	a := app.New("rath", strings.NewReader(""), io.Discard, io.Discard, func(string) string { return "" })
	r := root(a)
	r.InitDefaultHelpCmd()
	c, rest, err := r.Find(args)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if len(c.Flags().Args()) == 0 {
		return nil // the rest is left to the reader
	}
	return c.ValidateArgs(c.Flags().Args())
}

// TestHintsRun runs the commands that other commands suggest, at a store and over
// --server: they exist, reach the same system, and have an effect.
func TestHintsRun(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	script := "Edits.\n\n-- edit --\noffers: write_workspace_file\nnot result: write_workspace_file\n" +
		"call: write_workspace_file {\"path\":\"a.txt\",\"content\":\"two\\n\"}\n\n-- done --\n\ndone\n"
	for name, text := range map[string]string{"edit.txtar": script, "work/a.txt": "one\n"} {
		file := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	dev, url := startDev(t, dir, "--script", filepath.Join(dir, "edit.txtar"))
	elsewhere := t.TempDir()
	for _, at := range []struct{ name, dir, flag string }{{"at the store", dir, ""}, {"over a server", elsewhere, " --server " + url}} {
		t.Run(at.name, func(t *testing.T) {
			t.Chdir(at.dir)
			work := filepath.Join(dir, "work")
			id := "one"
			if at.flag != "" {
				id = "two"
			}
			// Some run may ask, too: the first answer counts, and the others report
			// that.
			asks := "asks-" + id
			command(t, "rath submit agent --id "+asks+" -C "+work+` -m '{"prompt":"edit","approve":["write_workspace_file"]}'`+at.flag, at.dir)
			waitFor(t, func() bool { return strings.Contains(command(t, "rath answer"+at.flag, at.dir), asks) })
			told := 0
			for _, line := range []string{
				"rath ps", "rath show " + asks, "rath why " + asks, "rath answer", "rath answer " + asks,
				"rath run -C " + work + " -m edit --id " + id,
				"rath show nosuch", "rath why nosuch", "rath answer " + id, "rath cluster dlq ls",
				"rath submit agent --id " + id + " -m other", "rath submit nosuch -m x", "rath ps --where under=nosuch",
				"rath answer nosuch yes", "rath cancel nosuch", "rath resume nosuch", "rath apply nosuch -C " + work, "rath diff nosuch", "rath export nosuch", "rath verify nosuch",
				"rath show nosuch --steps", "rath show nosuch --tree", "rath why nosuch:a.txt:1", "rath run -m x --fork-of nosuch",
				"rath session fork nosuch", "rath session rewind nosuch:1", "rath session rerun nosuch", "rath session message nosuch x", "rath session replay nosuch", "rath session merge nosuch other",
				"rath cluster tail nosuch", "rath cluster quarantine nosuch --reason x", "rath cluster release nosuch --reason x", "rath cluster rebudget nosuch --budget-tokens 1",
			} {
				said := command(t, line+at.flag, at.dir)
				t.Logf("$ %s\n%s", line+at.flag, said)
				for _, next := range hintsOf(said) {
					told++
					next = strings.ReplaceAll(next, "DIR", at.dir) // as in transcripts
					if at.flag != "" && !strings.Contains(next, "--server "+url) && !strings.HasSuffix(next, "--help") {
						t.Errorf("%s tells to type %q, which does not reach the server", line, next)
					}
					if got := command(t, next, at.dir); strings.Contains(got, "[exit 2]") || strings.Contains(got, "[exit 5]") {
						t.Errorf("%s tells to type %q, which says\n%s", line, next, got)
					}
				}
			}
			if got := command(t, "rath show "+asks+" --steps"+at.flag, at.dir); !strings.Contains(got, "approved") {
				t.Errorf("the command that answers was not told:\n%s", got)
			}
			if told < 26 {
				t.Errorf("only %d commands are told", told)
			}
			if data, err := os.ReadFile(filepath.Join(work, "a.txt")); err != nil || string(data) != "two\n" {
				t.Errorf("the command that carries the diff was not told: %q, %v", data, err)
			}
			must.Do(t, os.WriteFile(filepath.Join(work, "a.txt"), []byte("one\n"), 0o600))
		})
	}
	dev.interrupt()
}
