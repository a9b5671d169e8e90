package main

import (
	"encoding/json"
)

// emit writes rows as JSON when that is asked for: one array, or with jsonl one
// line each. It reports whether it did.
func emit[T any](a *app, rows []T) (bool, error) {
	switch a.config.Output.Value {
	case "json":
		if rows == nil {
			rows = []T{}
		}
		return true, a.writeJSON(rows)
	case "jsonl":
		for _, r := range rows {
			if err := a.writeLine(r); err != nil {
				return true, err
			}
		}
		return true, nil
	}
	return false, nil
}

// emitOne is emit for what is one thing.
func emitOne(a *app, v any) (bool, error) {
	switch a.config.Output.Value {
	case "json":
		return true, a.writeJSON(v)
	case "jsonl":
		return true, a.writeLine(v)
	}
	return false, nil
}

func (a *app) writeJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (a *app) writeLine(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// asJSON reports whether standard output is for programs.
func (a *app) asJSON() bool { return a.config.Output.Value != "table" }
