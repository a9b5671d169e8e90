package messages

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed schema/*.json
var schemas embed.FS

//go:embed FORMAT.md
var format string

// Format returns FORMAT.md, which documents the stored and sent formats for readers
// without this code.
func Format() string { return format }

// Schemas returns the names of the JSON Schemas (draft 2020-12) of this release,
// sorted: "task.v1", "result.v1" and so on. A schema changes only by added fields; a
// change of meaning gets another number.
func Schemas() []string {
	entries, err := fs.ReadDir(schemas, "schema")
	if err != nil {
		return nil // it is compiled in
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json"))
	}
	slices.Sort(names)
	return names
}

// SchemaOf returns the text of a schema.
func SchemaOf(name string) ([]byte, error) {
	text, err := schemas.ReadFile("schema/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("messages: no schema %q: there are %s", name, strings.Join(Schemas(), ", "))
	}
	return text, nil
}
