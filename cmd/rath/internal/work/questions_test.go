package work

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/platform/term"
)

// TestDetail: on a terminal no line of a question is cut, and a wrapped line begins
// with the mark of the line before it.
func TestDetail(t *testing.T) {
	message := strings.Repeat("word ", 800) + "end"
	for _, width := range []int{0, 80} {
		var said []string
		for _, row := range detail("> "+message+"\n  value, string: "+message+"\nThe last.", width) {
			line := row[0]
			if width > 0 && term.Width(line) > width {
				t.Errorf("%d columns: %q", term.Width(line), line)
			}
			if strings.HasPrefix(line, "  > word") {
				t.Errorf("no mark before %q", line)
			}
			said = append(said, strings.Fields(strings.TrimLeft(line, "> "))...)
		}
		if got, want := strings.Join(said, " "), message+" value, string: "+message+" The last."; got != want {
			t.Errorf("width %d: %q", width, got)
		}
	}
	if got := detail("> "+strings.Repeat("é", 2000)+"!", 80); !strings.HasSuffix(got[len(got)-1][0], "!") {
		t.Errorf("cut: %q", got[len(got)-1][0])
	}
}
