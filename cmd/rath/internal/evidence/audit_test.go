package evidence

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/audit"
)

// TestAuditOfLaterRelease: no invariant is violated, and not everything was checked.
func TestAuditOfLaterRelease(t *testing.T) {
	var out bytes.Buffer
	a := app.New("rath", nil, &out, &out, func(string) string { return "" })
	err := audited(a, &audit.Report{Newer: []audit.Newer{{Kind: "step.done", Field: "usage.audio", Edition: 2, Count: 3}}})
	if app.CodeOf(err) != app.ExitPartial {
		t.Errorf("exit code %d: %v", app.CodeOf(err), err)
	}
	for _, want := range []string{"usage.audio of step.done, edition 2, 3 events", "every promise known to this auditor was kept"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}
