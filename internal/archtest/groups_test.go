package archtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// layers are the groups of packages, from the bottom up. A group is the folder at the
// top level, or below internal.
var layers = []struct {
	name   string
	groups []string
}{
	{"values", list("session", "run", "blob", "internal/core", "internal/platform")},
	{"abilities", list("llm", "sandbox", "memory", "tool", "workspace", "internal/models", "internal/sandbox", "internal/files", "internal/agents")},
	{"work", list("flow", "messages", "internal/engine", "internal/evidence", "internal/wire")},
	{"fleet", list("actors", "cluster", "client", "internal/nats", "internal/workflows")},
	{"doors", list("internal/web")},
	{"programs", list("node", "cmd", "examples", "e2e", "internal/testkit", "internal/archtest")},
}

// groupOf returns the group of a package, given by its path in the module.
func groupOf(path string) string {
	parts := strings.SplitN(path, "/", 3)
	if parts[0] == "internal" {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// layerOf returns the number of a group's layer, -1 if it has none.
func layerOf(group string) int {
	for i, l := range layers {
		if slices.Contains(l.groups, group) {
			return i
		}
	}
	return -1
}

// grouped is the module as groups: the packages of each, and the groups that those
// import. Suites and tests do not count.
type grouped struct {
	packages map[string][]pkg
	imports  map[string]map[string]bool
}

func groups(t *testing.T) grouped {
	t.Helper()
	g := grouped{map[string][]pkg{}, map[string]map[string]bool{}}
	for _, p := range packages(t, "e2e") {
		path, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours {
			continue
		}
		from := groupOf(path)
		g.packages[from] = append(g.packages[from], p)
		if strings.HasSuffix(path, "test") {
			continue
		}
		for _, imp := range p.Imports {
			own, ours := strings.CutPrefix(imp, module+"/")
			if to := groupOf(own); ours && to != from {
				if g.imports[from] == nil {
					g.imports[from] = map[string]bool{}
				}
				g.imports[from][to] = true
			}
		}
	}
	return g
}

// TestLayers: no package imports one of a layer above its own.
func TestLayers(t *testing.T) {
	g := groups(t)
	for from := range g.packages {
		at := layerOf(from)
		if at < 0 {
			t.Errorf("group %s is in no layer: add it to the list", from)
		}
		for to := range g.imports[from] {
			if layerOf(to) > at {
				t.Errorf("%s imports %s, which is in a layer above it", from, to)
			}
		}
	}
	for _, l := range layers {
		for _, group := range l.groups {
			if g.packages[group] == nil {
				t.Errorf("layer %s names %s, and there is no such group", l.name, group)
			}
		}
	}
}

// table renders the layers for ARCHITECTURE.md. The words about a group are the first
// sentence of its own package, and the names are of the packages below it.
func (g grouped) table() string {
	var b strings.Builder
	b.WriteString("| layer | group | its subject | packages below it |\n|---|---|---|---|\n")
	for _, l := range layers {
		for _, group := range l.groups {
			subject := "programs and their commands"
			var below []string
			for _, p := range g.packages[group] {
				path := strings.TrimPrefix(p.ImportPath, module+"/")
				if name, ok := strings.CutPrefix(path, group+"/"); ok {
					if group != "examples" && p.Name != "" {
						below = append(below, name)
					}
					continue
				}
				_, subject, _ = strings.Cut(p.Doc, " ")
				_, subject, _ = strings.Cut(subject, " ")
				subject = strings.TrimSuffix(subject, ".")
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", l.name, group, subject, strings.Join(below, ", "))
		}
	}
	return b.String()
}

// drawing renders the groups and their imports as a Mermaid flowchart. It omits an import
// that follows from two others.
func (g grouped) drawing() string {
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart BT\n")
	id := func(group string) string { return strings.ReplaceAll(group, "/", "_") }
	drawn := map[string]bool{}
	for _, l := range layers {
		fmt.Fprintf(&b, "  subgraph %s\n", l.name)
		for _, group := range l.groups {
			if group == "examples" || group == "e2e" || group == "internal/archtest" {
				continue // no group imports them
			}
			drawn[group] = true
			fmt.Fprintf(&b, "    %s[%s]\n", id(group), group)
		}
		b.WriteString("  end\n")
	}
	for _, from := range slices.Sorted(maps.Keys(drawn)) {
		for _, to := range slices.Sorted(maps.Keys(g.imports[from])) {
			follows := false
			for middle := range g.imports[from] {
				follows = follows || middle != to && g.imports[middle][to] && !g.imports[middle][from] && !g.imports[to][middle]
			}
			if !follows && drawn[to] {
				fmt.Fprintf(&b, "  %s --> %s\n", id(from), id(to))
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// TestLayerTable: ARCHITECTURE.md shows the current groups.
func TestLayerTable(t *testing.T) {
	const begin, end = "<!-- The groups: made by go test ./internal/archtest -update -->\n", "<!-- The end of the groups -->\n"
	text := architecture(t)
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("ARCHITECTURE.md has no place for the groups: %q, %q", begin, end)
	}
	g := groups(t)
	want := before + begin + g.table() + "\n" + g.drawing() + end + after
	if want == text {
		return
	}
	if !*update {
		t.Fatal("ARCHITECTURE.md shows other groups than there are; run go test ./internal/archtest -run TestLayerTable -update")
	}
	must.Do(t, os.WriteFile(filepath.Join("..", "..", "ARCHITECTURE.md"), []byte(want), 0o644))
}
