package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

var (
	shownCommand = regexp.MustCompile(`^(go run \./cmd/|bin/)?rath [a-z]`)
	shownInline  = regexp.MustCompile("`(rath [^`]+)`")
	// shellWord matches a word, with quotes around all or a part of it.
	shownWord = regexp.MustCompile(`(?:"[^"]*"|'[^']*'|[^\s"'])+`)
)

// TestDocumentedCommands: each command that a document shows exists, and has the
// flags that it shows.
func TestDocumentedCommands(t *testing.T) {
	root := filepath.Join("..", "..")
	pages := []string{"README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", filepath.Join("helm", "README.md")}
	for _, pattern := range []string{"*.md", filepath.Join("*", "*.md")} {
		found, err := filepath.Glob(filepath.Join(root, "docs", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("docs/%s: %d documents, %v", pattern, len(found), err)
		}
		for _, name := range found {
			name := must.Get(filepath.Rel(root, name))(t)
			pages = append(pages, name)
		}
	}
	commands := 0
	for _, page := range pages {
		text := must.Get(os.ReadFile(filepath.Join(root, page)))(t)
		for _, shown := range shownCommands(strings.ReplaceAll(string(text), "\r\n", "\n")) {
			commands++
			args, help := []string{"rath"}, 0
			for _, word := range shownWord.FindAllString(shown, -1)[1:] {
				if word == ">" || word == "|" || word == "&&" || word == "#" {
					break
				}
				if word == "--" && help == 0 {
					help = len(args)
				}
				args = append(args, strings.NewReplacer(`"`, "", `'`, "").Replace(word))
			}
			if help == 0 {
				help = len(args)
			}
			var out, errs bytes.Buffer
			code := execute(slices.Insert(args, help, "--help"), strings.NewReader(""), &out, &errs, func(string) string { return "" })
			if code != 0 || !strings.Contains(out.String(), "\n  rath "+args[1]) {
				t.Errorf("%s shows %q: exit %d, %s", page, shown, code, errs.String())
			}
		}
	}
	if commands < 50 {
		t.Errorf("the documents show %d commands: the test does not find them", commands)
	}
}

// shownCommands returns the commands of a page: its indented lines, and the code in its
// lines of text.
func shownCommands(text string) (all []string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		if typed, ok := strings.CutPrefix(line, "    "); ok {
			if typed = strings.TrimSpace(typed); shownCommand.MatchString(typed) {
				all = append(all, typed[strings.Index(typed, "rath "):])
			}
			continue
		}
		for _, m := range shownInline.FindAllStringSubmatch(line, -1) {
			all = append(all, m[1])
		}
	}
	return all
}
