package natsbus

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFilesByTheme: the package's documentation names each of its files, once.
func TestFilesByTheme(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(doc), "Its files by theme:")
	list, _, _ = strings.Cut(list, "\npackage ")
	list = regexp.MustCompile(`(?s)\(.*?\)`).ReplaceAllString(list, "")
	named := map[string]int{}
	for _, theme := range strings.Split(list, "//   - ")[1:] {
		_, files, _ := strings.Cut(theme, ":")
		for _, name := range regexp.MustCompile(`\w+`).FindAllString(files, -1) {
			named[name]++
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".go")
		if name == "doc" || strings.HasSuffix(name, "_test") {
			continue
		}
		if named[name] != 1 {
			t.Errorf("doc.go names %s %d times", file, named[name])
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("doc.go names %s, and there is no such file", name)
	}
}
