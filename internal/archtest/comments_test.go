package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

var (
	// qualified matches a name of a package with one of its declarations.
	qualified = regexp.MustCompile(`\b([a-z][a-z0-9]*)\.([A-Za-z]\w*)`)
	// ofPackage matches the name of a package as prose has it.
	ofPackage = regexp.MustCompile(`\bpackages? ([a-z][a-z0-9/]*)`)
)

// TestPublicComments checks the documentation of importable packages, as go doc prints it:
// it names no internal package, nor a declaration that other packages do not export. A
// reader of another module has no such declaration.
func TestPublicComments(t *testing.T) {
	public, internal := map[string]map[string]bool{}, map[string]map[string]bool{}
	all := packages(t, "")
	for _, p := range all {
		kind := public
		if !importable(p) {
			kind = internal
		}
		names := declared(t, p)
		if kind[p.Name] == nil {
			kind[p.Name] = map[string]bool{}
		}
		for name := range names {
			kind[p.Name][name] = true
		}
	}
	read := 0
	for _, p := range all {
		if !importable(p) {
			continue
		}
		for at, text := range publicComments(t, p) {
			read++
			if strings.Contains(text, "internal/") {
				t.Errorf("%s: the documentation names a path under internal/: give the value or the contract", at)
			}
			for _, m := range ofPackage.FindAllStringSubmatch(text, -1) {
				name := m[1][strings.LastIndexByte(m[1], '/')+1:]
				if internal[name] != nil && public[name] == nil {
					t.Errorf("%s: the documentation names the internal package %s: give the value or the contract", at, name)
				}
			}
			for _, m := range qualified.FindAllStringSubmatch(text, -1) {
				of, name := m[1], m[2]
				hidden := internal[of][name] && ast.IsExported(name) || public[of][name] && !ast.IsExported(name) && of != p.Name
				if hidden && !(public[of][name] && ast.IsExported(name)) {
					t.Errorf("%s: the documentation names %s.%s, which no other module can read: give the value or the contract", at, of, name)
				}
			}
		}
	}
	if read < 1000 {
		t.Errorf("%d comments were read: the test shows nothing", read)
	}
}

// importable reports whether programs of other modules import a package.
func importable(p pkg) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(p.ImportPath, module+"/"), "/")
	return p.Name != "" && p.Name != "main" && !strings.Contains(" internal cmd e2e examples helm ", " "+first+" ")
}

// sources parses the files of a package for every system, without tests.
func sources(t *testing.T, p pkg) (*token.FileSet, []*ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range must.Get(filepath.Glob(filepath.Join(p.Dir, "*.go")))(t) {
		if !strings.HasSuffix(name, "_test.go") {
			files = append(files, must.Get(parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution))(t))
		}
	}
	return fset, files
}

// declared returns the names of the declarations of a package.
func declared(t *testing.T, p pkg) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	_, files := sources(t, p)
	for _, file := range files {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names[d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range s.Names {
							names[name.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}

// publicComments returns the prose of a package's documentation by its position: the
// comments of the package, of its exported declarations and of their exported fields,
// without indented code.
func publicComments(t *testing.T, p pkg) map[string]string {
	t.Helper()
	texts := map[string]string{}
	fset, files := sources(t, p)
	for _, file := range files {
		ast.FileExports(file)
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				fn.Body = nil
				if fn.Recv != nil && !ast.IsExported(receiver(fn.Recv.List[0].Type)) {
					fn.Doc = nil
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			group, ok := n.(*ast.CommentGroup)
			if !ok {
				return true
			}
			var prose strings.Builder
			for line := range strings.Lines(group.Text()) {
				if !strings.HasPrefix(line, "\t") {
					prose.WriteString(line)
				}
			}
			texts[fset.Position(group.Pos()).String()] = prose.String()
			return true
		})
	}
	return texts
}
