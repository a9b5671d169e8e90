package archtest

import (
	"bytes"
	"flag"
	"go/ast"
	"go/build"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
)

var update = flag.Bool("update", false, "write the exported API as it is now into testdata/api")

// mostTypes bounds the exported types of all packages that other modules may
// import. Lower it when types go; a new type takes the place of another one.
const mostTypes = 235

// namesInternal are the packages whose exported declarations may name types of internal
// packages: actors hosts the logs and journals of a node, and node gives its log to the
// commands of this module.
var namesInternal = []string{"actors", "node"}

// TestExportedAPI compares the exported declarations of each importable package, on Linux,
// with testdata/api, so that a review sees each change.
func TestExportedAPI(t *testing.T) {
	root := filepath.Join("..", "..")
	dir := filepath.Join("testdata", "api")
	written, types := map[string]bool{}, 0
	for _, p := range packages(t, "") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		first, _, _ := strings.Cut(path, "/")
		if p.Name == "" || p.Name == "main" || slices.Contains([]string{"internal", "cmd", "e2e", "examples", "helm"}, first) {
			continue
		}
		decls, n, hidden := exported(t, filepath.Join(root, filepath.FromSlash(path)))
		types += n
		switch listed := slices.Contains(namesInternal, path); {
		case len(hidden) > 0 && !listed:
			t.Errorf("package %s exports what no other module can name: %s", path, strings.Join(hidden, ", "))
		case len(hidden) == 0 && listed:
			t.Errorf("package %s names no internal type: take it off namesInternal", path)
		}
		name := filepath.Join(dir, strings.ReplaceAll(path, "/", ".")+".txt")
		written[name] = true
		if *update {
			must.Do(t, os.MkdirAll(dir, 0o755))
			must.Do(t, os.WriteFile(name, []byte(decls), 0o644))
			continue
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Errorf("%v; run go test ./internal/archtest -update", err)
			continue
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(decls, "\n")); diff != "" {
			t.Errorf("package %s exports something else than %s says; if that is meant, run go test ./internal/archtest -update (-want +got):\n%s", path, name, diff)
		}
	}
	there := must.Get(filepath.Glob(filepath.Join(dir, "*.txt")))(t)
	for _, name := range there {
		if !written[name] {
			t.Errorf("%s is of no package: remove it", name)
		}
	}
	if types != mostTypes {
		t.Errorf("%d types are exported for other modules, mostTypes is %d: lower it to the number, or move what came under internal/", types, mostTypes)
	}
}

// exported returns the exported declarations of a package as built for Linux, sorted,
// without comments and bodies, the number of types among them, and the internal names that
// they mention.
func exported(t *testing.T, dir string) (decls string, types int, hidden []string) {
	t.Helper()
	system := build.Default
	system.GOOS, system.GOARCH, system.CgoEnabled = "linux", "amd64", false
	p := must.Get(system.ImportDir(dir, 0))(t)
	fset := token.NewFileSet()
	var all []string
	add := func(node any) {
		var b bytes.Buffer
		must.Do(t, printer.Fprint(&b, fset, node))
		all = append(all, b.String()+"\n")
	}
	for _, name := range p.GoFiles {
		file := must.Get(parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution))(t)
		ast.FileExports(file)
		internal := map[string]bool{}
		for _, i := range file.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			name := path[strings.LastIndexByte(path, '/')+1:]
			if i.Name != nil {
				name = i.Name.Name
			}
			internal[name] = strings.HasPrefix(path, module+"/internal/")
		}
		look := func(node ast.Node) {
			ast.Inspect(node, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && internal[x.Name] {
						hidden = append(hidden, x.Name+"."+s.Sel.Name)
					}
				}
				return true
			})
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && !ast.IsExported(receiver(d.Recv.List[0].Type)) {
					continue
				}
				d.Body = nil
				look(d.Type)
				add(d)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ImportSpec:
						continue
					case *ast.TypeSpec:
						types++
						look(s.Type)
					case *ast.ValueSpec:
						if s.Type != nil {
							look(s.Type)
						}
						if d.Tok == token.VAR {
							s.Values = nil // the initial value of a variable is not part of the API
						}
					}
					add(&ast.GenDecl{Tok: d.Tok, Specs: []ast.Spec{s}})
				}
			}
		}
	}
	slices.Sort(all)
	slices.Sort(hidden)
	return strings.Join(all, ""), types, slices.Compact(hidden)
}

// receiver is the name of the type that a method belongs to.
func receiver(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
