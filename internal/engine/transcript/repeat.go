package transcript

import (
	"regexp"
	"slices"
	"strings"

	"github.com/rathcluster/rath/session"
)

// MaxRepeats bounds how often in a row an agent makes the same calls with the same
// results, unless the agent sets its own maximum of rounds.
const MaxRepeats = 16

// Repeats reports whether the last rounds of a session are the same calls with the same
// results, MaxRepeats times in a row.
func Repeats(s session.Session) bool {
	first, end := lastRound(s, s.Len())
	for n := 1; first != ""; n++ {
		if n == MaxRepeats {
			return true
		}
		var before string
		if before, end = lastRound(s, end); before != first {
			return false
		}
	}
	return false
}

var elapsed = regexp.MustCompile(`"elapsed_ms":\d+`)

// lastRound returns the calls that end before a row, with their results, and the row at
// which they begin; "" if there are none.
func lastRound(s session.Session, end int) (text string, at int) {
	var results []string
	for at = end - 1; at >= 0; at-- {
		c, _ := s.At(at)
		if c.Kind() == session.ToolResult {
			result := c.Text()
			if strings.Contains(result, "elapsed_ms") { // an expression takes a while over a long text
				result = elapsed.ReplaceAllString(result, "")
			}
			results = append(results, result)
			continue
		}
		if c.Kind() != session.Assistant || c.CallCount() != len(results) || len(results) == 0 {
			return "", at
		}
		var b strings.Builder
		slices.Reverse(results)
		for i, call := range c.Calls() {
			b.WriteString(call.Name + "\x00" + Compact(call.Args) + "\x00" + results[i] + "\x00")
		}
		return b.String(), at
	}
	return "", at
}
