package excerpt

import (
	"strconv"
	"strings"
)

// Counted returns "1 step", "2,000 steps", "3 branches".
func Counted[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return Thousands(int64(n)) + " " + noun + "s"
}

// Thousands writes 12345 as "12,345".
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
