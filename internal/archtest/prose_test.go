package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// proseLimits bound how often a document uses the words of a dialect, per 1,000 words. The
// other words of a technical writer name the thing: the run's changes, not what a run changed.
var proseLimits = []struct {
	word *regexp.Regexp
	most int
}{
	{regexp.MustCompile(`(?i)\bwhat\b`), 1},
	{regexp.MustCompile(`(?i)\bthat\b`), 8},
	{regexp.MustCompile(`(?i)\b(says|said|tells|told)\b`), 1},
}

// generatedPages are documents made of the code, whose words are those of its comments.
var generatedPages = map[string]bool{"docs/reference.md": true, "docs/internals/hostile.md": true}

// TestProse: no document uses the words of proseLimits more often than that, outside of its
// blocks and code. A document of few words may use each of them once.
func TestProse(t *testing.T) {
	pages := documents(t)
	for _, name := range []string{"SECURITY.md"} {
		text := must.Get(os.ReadFile(filepath.Join("..", "..", name)))(t)
		pages[name] = string(text)
	}
	word := regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)
	for name, text := range pages {
		if generatedPages[name] {
			continue
		}
		text = codeSpan.ReplaceAllString(text, "x")
		words := len(word.FindAllString(text, -1))
		for _, limit := range proseLimits {
			found := len(limit.word.FindAllString(text, -1))
			if found > max(1, words*limit.most/1000) {
				t.Errorf("%s has %d of %s in %d words, and may have %d per 1,000", name, found, limit.word, words, limit.most)
			}
		}
	}
}
