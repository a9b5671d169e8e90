package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestOneGoroutine: the packages that .ci/run excludes from the race detector have no
// concurrency, neither in their code nor in their tests.
func TestOneGoroutine(t *testing.T) {
	for _, dir := range []string{"internal/nats/schedule", "internal/evidence/events", "internal/evidence/openrath", "run", "session"} {
		names, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(dir), "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(names), err)
		}
		for _, name := range names {
			data := must.Get(os.ReadFile(name))(t)
			fset := token.NewFileSet()
			f := must.Get(parser.ParseFile(fset, name, data, parser.SkipObjectResolution))(t)
			for _, i := range f.Imports {
				switch path := strings.Trim(i.Path.Value, `"`); path {
				case "testing/synctest", "net/http/httptest", module + "/internal/testkit/natstest", module + "/internal/testkit/sessiontest":
					t.Errorf("%s imports %s", fset.Position(i.Pos()), path)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if _, starts := n.(*ast.GoStmt); starts || ok && (s.Sel.Name == "Go" || s.Sel.Name == "Parallel") {
					t.Errorf("%s: what starts goroutines belongs before the race detector", fset.Position(n.Pos()))
				}
				return true
			})
		}
	}
}
