package engine

import (
	"regexp"
	"strconv"
	"strings"
)

// clip returns at most n bytes of s, cut between characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// firstLine returns the first line of s that is not blank.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

var firstInteger = regexp.MustCompile(`-?\d+`)

// integerIn returns the first integer of a model's answer; -1 if there is none.
func integerIn(answer string) int {
	if n, err := strconv.Atoi(firstInteger.FindString(answer)); err == nil {
		return n
	}
	return -1
}
