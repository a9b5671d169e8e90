package archtest

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// referred are the packages that docs/reference.md lists, in its order: first those for
// authors of workflows, then those for programs around a fleet.
var referred = []string{
	"flow", "session", "run", "tool", "llm", "llm/scripted", "llm/openai", "llm/anthropic", "llm/llmtest",
	"memory", "memory/openviking", "workspace", "blob",
	"sandbox", "sandbox/local", "sandbox/docker", "sandbox/kubernetes", "sandbox/opensandbox", "sandbox/scripted",
	"flow/inprocess", "flow/flowtest", "client", "messages", "node",
}

// TestReference makes docs/reference.md of the code, and compares.
func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Reference\n\nEach exported name of the packages that programs import, with its first sentence; made of the\ncode by `go test ./internal/archtest -update`. `go doc PACKAGE.NAME` prints the whole contract.\n")
	for _, path := range referred {
		refer(t, &b, path)
	}
	name := filepath.Join("..", "..", "docs", "reference.md")
	if *update {
		must.Do(t, os.WriteFile(name, []byte(b.String()), 0o644))
		return
	}
	want := must.Get(os.ReadFile(name))(t)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("docs/reference.md is not what the code says; run go test ./internal/archtest -update (-want +got):\n%s", diff)
	}
}

// refer writes the exported declarations of a package as built for Linux.
func refer(t *testing.T, b *strings.Builder, path string) {
	t.Helper()
	dir := filepath.Join("..", "..", filepath.FromSlash(path))
	system := build.Default
	system.GOOS, system.GOARCH, system.CgoEnabled = "linux", "amd64", false
	found := must.Get(system.ImportDir(dir, 0))(t)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range found.GoFiles {
		file := must.Get(parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution))(t)
		files = append(files, file)
	}
	p := must.Get(doc.NewFromFiles(fset, files, module+"/"+path))(t)
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n| name | what it is |\n|---|---|\n", path, p.Synopsis(p.Doc))
	row := func(name, text string) {
		fmt.Fprintf(b, "| `%s` | %s |\n", name, strings.ReplaceAll(p.Synopsis(text), "|", `\|`))
	}
	function := func(f *doc.Func) {
		f.Decl.Body, f.Decl.Doc = nil, nil
		var s strings.Builder
		must.Do(t, printer.Fprint(&s, token.NewFileSet(), f.Decl))
		row(strings.Join(strings.Fields(s.String()), " "), f.Doc)
	}
	values := func(all []*doc.Value) {
		for _, v := range all {
			for _, s := range v.Decl.Specs {
				s := s.(*ast.ValueSpec)
				text := s.Doc.Text() + s.Comment.Text()
				if text == "" {
					text = v.Doc
				}
				for _, name := range s.Names {
					if name.IsExported() {
						row(name.Name, text)
					}
				}
			}
		}
	}
	for _, f := range p.Funcs {
		function(f)
	}
	for _, typ := range p.Types {
		row("type "+typ.Name, typ.Doc)
		values(typ.Consts)
		values(typ.Vars)
		for _, f := range typ.Funcs {
			function(f)
		}
		for _, f := range typ.Methods {
			function(f)
		}
	}
	values(p.Consts)
	values(p.Vars)
}
