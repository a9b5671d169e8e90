package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/run"
)

const (
	formatText  = "text"
	formatJSON  = "json"
	formatLines = "jsonl"
)

// formatsKey is the annotation of a command that writes further formats.
const formatsKey = "formats"

// WithFormats declares formats of a command besides text, json and jsonl.
func WithFormats(cmd *cobra.Command, formats ...string) {
	cmd.Annotations = map[string]string{formatsKey: strings.Join(formats, " ")}
}

// checkFormat rejects a format that the command does not write.
func (a *App) checkFormat(cmd *cobra.Command) error {
	formats := append([]string{formatText, formatJSON, formatLines}, strings.Fields(cmd.Annotations[formatsKey])...)
	f := a.Config.Format
	if slices.Contains(formats, f.Value) {
		return nil
	}
	err := fmt.Errorf("%s %w", f.Origin, OneOf(formats...)(f.Value))
	if f.Given() {
		return Usage(cmd, err)
	}
	return WithCode(ExitUsage, err)
}

// Emit writes rows as JSON if the format is JSON: one array, or with jsonl one line
// each. It reports whether it did.
func Emit[T any](a *App, rows []T) (bool, error) {
	switch a.Config.Format.Value {
	case formatJSON:
		if rows == nil {
			rows = []T{}
		}
		return true, a.WriteJSON(rows)
	case formatLines:
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
	switch a.Config.Format.Value {
	case formatJSON:
		return true, a.WriteJSON(v)
	case formatLines:
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
func (a *App) AsJSON() bool {
	return a.Config.Format.Value == formatJSON || a.Config.Format.Value == formatLines
}

// Submitted is the output of commands that submit a task.
type Submitted struct {
	Run run.ID `json:"run"`
}
