package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	// pathLike matches a path of the repository: it has a slash, no space, no colon and no
	// leading host, unlike modules. notOurs matches paths that are not in the repository:
	// build outputs, packages of the standard library and files of workspaces.
	pathLike = regexp.MustCompile(`^(\.ci|[a-z0-9_*][a-z0-9_*-]*)(/[A-Za-z0-9_.*-]+)+/?$|^[A-Z]+\.md$`)
	notOurs  = regexp.MustCompile(`^(bin|testing|bitkeeper|cvs|gradle)/|^tools/bazel|^(AGENTS|CLAUDE|SKILL)\.md$`)
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notASlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// documents returns the documents, without their fenced blocks, by path from the
// repository's root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	names := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "helm/README.md", "messages/FORMAT.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d documents, %v", pattern, len(found), err)
		}
		for _, name := range found {
			name := must.Get(filepath.Rel(root, name))(t)
			names = append(names, filepath.ToSlash(name))
		}
	}
	fence := regexp.MustCompile("(?ms)^```.*?^```$")
	pages := map[string]string{}
	for _, name := range names {
		text := must.Get(os.ReadFile(filepath.Join(root, filepath.FromSlash(name))))(t)
		pages[name] = fence.ReplaceAllString(strings.ReplaceAll(string(text), "\r\n", "\n"), "")
	}
	return pages
}

// there reports whether a path or pattern from the root, or from dir, exists.
func there(dir, path string) bool {
	for _, from := range []string{".", dir} {
		found, err := filepath.Glob(filepath.Join("..", "..", from, filepath.FromSlash(path)))
		if err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// TestNamedPaths: each path that a document writes as code exists, so that a file
// cannot be renamed without the documents that name it.
func TestNamedPaths(t *testing.T) {
	for name, text := range documents(t) {
		paths := 0
		for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
			if !pathLike.MatchString(m[1]) || notOurs.MatchString(m[1]) {
				continue
			}
			paths++
			if !there(filepath.Dir(name), m[1]) {
				t.Errorf("%s names %s, which does not exist", name, m[1])
			}
		}
		if name == "ARCHITECTURE.md" && paths < 50 {
			t.Errorf("%s names %d paths: the test does not find them", name, paths)
		}
	}
}

// TestLinks: each link between documents leads to a file and to a heading in it.
func TestLinks(t *testing.T) {
	pages, links := documents(t), 0
	for name, text := range pages {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			path := name
			if target != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(name), filepath.FromSlash(target)))
			}
			if !there(".", path) {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			} else if page, ok := pages[path]; ok && anchor != "" && !slices.Contains(slugs(page), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", name, m[1])
			}
		}
	}
	if links == 0 {
		t.Error("no document links to another: the test does not find links")
	}
}

// slugs returns the names by which links reach the headings of a page.
func slugs(page string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		plain := notASlug.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

// TestNamedTests: each test that a page names, as PACKAGE:TEST, is there, and each line of
// the page's table names one.
func TestNamedTests(t *testing.T) {
	for _, page := range []struct {
		name, section, header string
		least                 int // lines
	}{
		{"docs/openrath.md", "Behaviour", "| behaviour |", 70},
		{"docs/peers.md", "Expectations", "| expectation |", 20},
	} {
		text := documents(t)[page.name]
		named := regexp.MustCompile("`([a-z0-9_/]+):(Test[A-Za-z0-9]+)`")
		sources := map[string]string{}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			dir, name := m[1], m[2]
			if _, known := sources[dir]; !known {
				files := must.Get(filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(dir), "*_test.go")))(t)
				for _, file := range files {
					source := must.Get(os.ReadFile(file))(t)
					sources[dir] += string(source)
				}
			}
			if !strings.Contains(sources[dir], "\nfunc "+name+"(t *testing.T)") {
				t.Errorf("%s names %s of %s, which does not exist", page.name, name, dir)
			}
		}
		_, table, _ := strings.Cut(text, "\n## "+page.section+"\n")
		table, _, _ = strings.Cut(table, "\n## ")
		lines := 0
		for line := range strings.Lines(table) {
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, page.header) {
				continue
			}
			if lines++; !named.MatchString(line) {
				t.Errorf("%s names no test beside %.60q", page.name, line)
			}
		}
		if lines < page.least {
			t.Errorf("%s has %d lines: the test does not find them", page.name, lines)
		}
	}
}

// TestEachCode: docs/what-now.md has a next step for each code of a run or an error.
func TestEachCode(t *testing.T) {
	text := documents(t)["docs/what-now.md"]
	_, text, _ = strings.Cut(text, "\n## By code\n")
	source := string(must.Get(os.ReadFile(filepath.Join("..", "..", "run", "code.go")))(t))
	all := regexp.MustCompile(`\bCode[A-Za-z]+ +Code = "([a-z_]+)"`).FindAllStringSubmatch(source, -1)
	if len(all) < 30 {
		t.Fatalf("%d codes are found", len(all))
	}
	for _, m := range all {
		if !strings.Contains(text, "`"+m[1]+"`") {
			t.Errorf("docs/what-now.md has no next step for %s", m[1])
		}
	}
}
