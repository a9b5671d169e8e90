// Package excerpt shortens texts, for records, prompts and users.
package excerpt

import (
	"regexp"
	"strconv"
	"strings"
)

// Start returns at most n bytes of the beginning of s, as valid UTF-8.
func Start(s string, n int) string { return Clip(strings.ToValidUTF8(s, "\uFFFD"), n) }

// Clip returns at most n bytes of s, cut between characters.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// End returns at most the last n bytes of s, cut between characters.
func End(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, "")
	}
	return strings.ToValidUTF8(s[len(s)-n:], "")
}

// FirstLine returns the first line of s that is not blank.
func FirstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

var integer = regexp.MustCompile(`-?\d+`)

// FirstInteger returns the first integer in s; -1 if there is none.
func FirstInteger(s string) int {
	if n, err := strconv.Atoi(integer.FindString(s)); err == nil {
		return n
	}
	return -1
}

// Cut cuts s to limit characters, the last of which marks the cut.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n, cut := 0, len(s)
	for i := range s {
		if n == limit-1 {
			cut = i
		}
		if n++; n > limit {
			return strings.TrimRight(s[:cut], " ") + "…"
		}
	}
	return s
}
