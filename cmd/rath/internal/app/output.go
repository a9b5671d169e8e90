package app

import (
	"encoding/json"

	"github.com/rathcluster/rath/run"
)

// Emit writes rows as JSON when that is asked for: one array, or with jsonl one
// line each. It reports whether it did.
func Emit[T any](a *App, rows []T) (bool, error) {
	switch a.Config.Output.Value {
	case "json":
		if rows == nil {
			rows = []T{}
		}
		return true, a.WriteJSON(rows)
	case "jsonl":
		for _, r := range rows {
			if err := a.WriteLine(r); err != nil {
				return true, err
			}
		}
		return true, nil
	}
	return false, nil
}

// EmitOne is Emit for one value.
func EmitOne(a *App, v any) (bool, error) {
	switch a.Config.Output.Value {
	case "json":
		return true, a.WriteJSON(v)
	case "jsonl":
		return true, a.WriteLine(v)
	}
	return false, nil
}

// WriteJSON writes a value for programs, indented.
func (a *App) WriteJSON(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// WriteLine writes a value for programs, on one line.
func (a *App) WriteLine(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// AsJSON reports whether standard output is for programs.
func (a *App) AsJSON() bool { return a.Config.Output.Value != "table" }

// Submitted is what commands print that submit a task.
type Submitted struct {
	Run run.ID `json:"run"`
}
