package helm

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const tableBegins = "by go test -update. -->\n"

// TestReadme: the tables of values match the schemas.
func TestReadme(t *testing.T) {
	data, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text, _, ok := strings.Cut(string(data), tableBegins)
	if !ok {
		t.Fatal("README.md has no place for the table of values")
	}
	var b strings.Builder
	b.WriteString(text + tableBegins)
	valuesTable(t, &b, chartDir)
	b.WriteString("\n### Of helm/accounts\n")
	valuesTable(t, &b, accountsDir)
	compare(t, "README.md", b.String())
}

func valuesTable(t *testing.T, b *strings.Builder, dir string) {
	t.Helper()
	b.WriteString("\n| value | default | |\n|---|---|---|\n")
	set := defaults(t, dir)
	all := leaves(readSchema(t, dir), "", map[string]property{})
	delete(all, "global")
	for _, path := range slices.Sorted(maps.Keys(all)) {
		v, _ := at(set, path)
		def, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		description := all[path].Description
		if e := all[path].Enum; len(e) > 0 {
			var words []string
			for _, w := range e {
				words = append(words, fmt.Sprint(w))
			}
			description += " One of: " + strings.Join(words, ", ") + "."
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", path, def, strings.ReplaceAll(description, "|", "\\|"))
	}
}
