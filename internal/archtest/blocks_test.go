package archtest

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// taught are the packages that blocks in documents use, by the word before the dot.
var taught = func() map[string]string {
	all := map[string]string{}
	for _, p := range []string{"context", "encoding/json", "errors", "fmt", "io", "net/http", "strings", "testing", "time"} {
		all[path.Base(p)] = p
	}
	for _, p := range []string{"client", "flow", "flow/flowtest", "flow/inprocess", "llm", "messages", "node", "run", "session", "tool"} {
		all[path.Base(p)] = module + "/" + p
	}
	return all
}()

// given declares the variables that the statements of a block may use.
const given = `
func block(ctx context.Context, s session.Session, w flow.Workflow, coder, judge *flow.Agent) (session.Session, error) {
%s
return s, nil
}
`

// source converts a block to a file: declarations unchanged, statements in the body of a
// Forward.
func source(block string) string {
	if !regexp.MustCompile(`^(func|var|type|const) `).MatchString(block) || !declares(block) {
		block = fmt.Sprintf(given, block)
	}
	var imports strings.Builder
	for word, p := range taught {
		if regexp.MustCompile(`\b` + word + `\.[A-Z]`).MatchString(block) {
			fmt.Fprintf(&imports, "import %q\n", p)
		}
	}
	return "package block\n" + imports.String() + block
}

// declares reports whether a block is declarations of a file.
func declares(block string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+block, parser.SkipObjectResolution)
	return err == nil
}

// TestGoBlocks: each Go block of the documents in docs compiles, with importable packages
// only.
func TestGoBlocks(t *testing.T) {
	fset := token.NewFileSet()
	paths := []string{}
	for _, p := range taught {
		paths = append(paths, p)
	}
	compiled := importer.ForCompiler(fset, "gc", exports(t, paths...))
	names := must.Get(filepath.Glob(filepath.Join("..", "..", "docs", "*.md")))(t)
	found := 0
	for _, name := range names {
		text := must.Get(os.ReadFile(name))(t)
		for _, at := range goBlock.FindAllSubmatchIndex(text, -1) {
			found++
			where := fmt.Sprintf("docs/%s:%d", filepath.Base(name), strings.Count(string(text[:at[2]]), "\n"))
			f, err := parser.ParseFile(fset, where, source(string(text[at[2]:at[3]])), parser.SkipObjectResolution)
			if err != nil {
				t.Errorf("the block at %s is no Go: %v", where, err)
				continue
			}
			conf := types.Config{Importer: compiled}
			if _, err := conf.Check("block", fset, []*ast.File{f}, nil); err != nil {
				t.Errorf("the block at %s does not compile: %v", where, err)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d Go blocks in docs: the test does not find them", found)
	}
	for _, wrong := range []string{"return flow.Nothing(ctx, s)", "x := 1", "func f() { unknown() }"} {
		f := must.Get(parser.ParseFile(fset, "wrong", source(wrong), parser.SkipObjectResolution))(t)
		if _, err := (&types.Config{Importer: compiled}).Check("block", fset, []*ast.File{f}, nil); err == nil {
			t.Errorf("%q passes", wrong)
		}
	}
}
