package workspace_test

import (
	"os"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/workspace"
)

// TestProtected tries each pattern: at the top and below, as it is written and in capital
// letters, with a name below it. The document has the same list.
func TestProtected(t *testing.T) {
	doc, err := os.ReadFile("../docs/files.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range workspace.Protected {
		if row := "| " + kind.What + " | `" + strings.Join(kind.Patterns, "`, `") + "` |"; !strings.Contains(string(doc), row) {
			t.Errorf("docs/files.md lacks the row\n%s", row)
		}
		for _, p := range kind.Patterns {
			name := strings.ReplaceAll(p, "*", "")
			for _, path := range []string{name, "sub/dir/" + name, strings.ToUpper(name), name + "/below", "sub/" + name + ". "} {
				b := blob.NewMemory()
				from, to := worked(t, b, t.TempDir(), func(dir string) { write(t, dir, map[string]string{path: "x", "harmless": "y"}) })
				plan, err := workspace.NewPlan(t.Context(), b, from, to, nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(plan.Withheld) != 1 || plan.Withheld[0].Path != path || !plan.Withheld[0].Refused || plan.Withheld[0].Never {
					t.Errorf("%s: %+v is withheld", path, plan.Withheld)
				}
			}
		}
	}
}
