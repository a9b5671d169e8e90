package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// limit bounds how often a text uses a word of a dialect, per 1,000 words or lines.
type limit struct {
	word *regexp.Regexp
	most int
}

// exceeds reports whether a text of so many words or lines uses the word more often than
// permitted. A short text may use it once.
func (l limit) exceeds(text string, size int) (found int, exceeded bool) {
	found = len(l.word.FindAllString(text, -1))
	return found, found > max(1, size*l.most/1000)
}

var (
	what = regexp.MustCompile(`(?i)\bwhat\b`)
	that = regexp.MustCompile(`(?i)\bthat\b`)
	says = regexp.MustCompile(`(?i)\b(says|said|tells|told)\b`)

	pageLimits    = []limit{{what, 1}, {that, 8}, {says, 1}} // per 1,000 words
	commentLimits = []limit{{what, 40}, {says, 10}}          // per 1,000 lines
)

// generatedPages are documents made of the code, whose words are those of its comments.
var generatedPages = map[string]bool{"docs/reference.md": true, "docs/internals/hostile.md": true}

// TestProse: no document uses the words of pageLimits more often than permitted, outside of
// its blocks and code; nor do the help of rath and the README of rath init.
func TestProse(t *testing.T) {
	pages := documents(t)
	for _, name := range []string{"SECURITY.md", "cmd/rath/testdata/help.txt", "cmd/rath/internal/start/template/README.md.tmpl"} {
		text := must.Get(os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name))))(t)
		pages[name] = string(text)
	}
	word := regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)
	for name, text := range pages {
		if generatedPages[name] {
			continue
		}
		text = codeSpan.ReplaceAllString(text, "x")
		words := len(word.FindAllString(text, -1))
		for _, l := range pageLimits {
			if found, exceeded := l.exceeds(text, words); exceeded {
				t.Errorf("%s has %d of %s in %d words, and may have %d per 1,000", name, found, l.word, words, l.most)
			}
		}
	}
}

// TestCommentProse: the comments of no package use the words of commentLimits more often
// than permitted.
func TestCommentProse(t *testing.T) {
	root := filepath.Join("..", "..")
	comments := map[string]*strings.Builder{}
	must.Do(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		if comments[dir] == nil {
			comments[dir] = &strings.Builder{}
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				comments[dir].WriteString(c.Text + "\n")
			}
		}
		return nil
	}))
	for dir, b := range comments {
		text := b.String()
		lines := strings.Count(text, "\n")
		for _, l := range commentLimits {
			if found, exceeded := l.exceeds(text, lines); exceeded {
				t.Errorf("the comments of %s have %d of %s in %d lines, and may have %d per 1,000", dir, found, l.word, lines, l.most)
			}
		}
	}
	if len(comments) < 50 {
		t.Errorf("%d packages have comments: the test does not find them", len(comments))
	}
}
