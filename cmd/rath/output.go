package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
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

// age writes how long ago something was.
func age(now, then time.Time) string {
	if then.IsZero() || then.UnixMilli() == 0 {
		return "-"
	}
	switch d := now.Sub(then); {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// moment writes a date and a time, in the zone of whoever looks.
func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

// clock writes the time of a day, likewise.
func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// took writes a duration for people.
func took(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d.%d s", d/time.Second, d%time.Second/(100*time.Millisecond))
	default:
		return d.Round(time.Second).String()
	}
}

// counted returns "1 step", "2 steps".
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return thousands(n) + " " + noun + "s"
}

// thousands writes 12345 as "12,345".
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
