package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// Bounds of a function, in lines, and of a type, in methods.
const (
	mostLines   = 80
	mostMethods = 30
)

// longFunctions are the functions above mostLines, and wideTypes the types above
// mostMethods, with their numbers. Neither list may grow, nor a number in it.
var longFunctions = map[string]int{
	"cmd/rath/internal/evidence Verify":        86,
	"cmd/rath/internal/follow Watch":           118,
	"cmd/rath/internal/inspect Show":           122,
	"cmd/rath/internal/work Run":               106,
	"cmd/rath/internal/work Submit":            88,
	"cmd/rath/internal/work finish":            89,
	"cmd/rath/internal/work questions":         85,
	"internal/agents/mcp result":               97,
	"internal/core/journal Followups":          93,
	"internal/core/journal RunState.fold":      103,
	"internal/evidence/dossier planFor":        84,
	"internal/evidence/dossier timeline.event": 95,
	"internal/evidence/view Timeline.record":   87,
	"internal/nats/conn Conn.natsOptions":      88,
	"internal/nats/dispatch dispatcher.pump":   89,
	"internal/nats/streams layout":             90,
	"internal/sandbox/confinement filter":      169,
	"internal/sandbox/confinement makeRuleset": 85,
	"internal/testkit/mcptest New":             87,
	"llm Provider.Validate":                    86,
	"sandbox/local box.Exec":                   94,
}

var wideTypes = map[string]int{
	"actors System":                           55,
	"cmd/rath/internal/app App":               46,
	"internal/core/journal Record":            31,
	"internal/core/journal StateMachine":      50,
	"internal/core/journal/journaltest stage": 50,
	"internal/evidence/audit audit":           68,
	"internal/evidence/audit folding":         52,
	"internal/evidence/dossier timeline":      43,
	"internal/testkit/fleet Fleet":            35,
	"session Session":                         33,
}

// TestSizes: no function has more lines than mostLines, and no type more methods than
// mostMethods, except for listed ones.
func TestSizes(t *testing.T) {
	lines, methods := map[string]int{}, map[string]int{}
	for _, p := range packages(t, "") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f := must.Get(parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution))(t)
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				at := path + " " + fn.Name.Name
				if fn.Recv != nil {
					of := path + " " + typeName(fn.Recv.List[0].Type)
					methods[of]++
					at = of + "." + fn.Name.Name
				}
				lines[at] = fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
			}
		}
	}
	bounded(t, "lines", mostLines, lines, longFunctions)
	bounded(t, "methods", mostMethods, methods, wideTypes)
}

// bounded fails for each count above a bound that is not listed, or above its number in
// the list, and for each name of the list that is within the bound.
func bounded(t *testing.T, of string, most int, counts, listed map[string]int) {
	t.Helper()
	if len(counts) == 0 {
		t.Fatalf("no %s: the test shows nothing", of)
	}
	for name, n := range counts {
		if n > max(most, listed[name]) {
			t.Errorf("%s has %d %s, at most %d are allowed: split it", name, n, of, max(most, listed[name]))
		}
	}
	for name := range listed {
		if counts[name] <= most {
			t.Errorf("%s has %d %s, which is within the bound: take it off the list", name, counts[name], of)
		}
	}
}

// typeName returns the name of a receiver's type.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
