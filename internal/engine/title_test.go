package engine

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
)

// TestAskedTitle: the title of a call's question is one line within its limit.
func TestAskedTitle(t *testing.T) {
	if w := (&toolCall{ToolCall: session.ToolCall{Name: "s__x"}, asks: &journal.Asked{Message: strings.Repeat("é\n", 2000)}}).asked("1.0.answer"); len(w.Title) > maxTitle || !strings.HasSuffix(w.Title, "…") || strings.Contains(w.Title, "\n") {
		t.Errorf("title %q", w.Title)
	}
}
