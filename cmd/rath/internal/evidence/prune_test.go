package evidence

import (
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/retention"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/session"
)

// TestPruneFitsTheScreen: a terminal shows each line whole in 80
// columns; a program gets the whole ids and the files in the table.
func TestPruneFitsTheScreen(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	const root, file = "d96d6a2502cc32296112-1-0", ".rath/archives/default-d96d6a2502cc32296112-1-0-20261122T221733Z.json"
	used := now.Add(-100 * 24 * time.Hour).UnixMilli()
	views := []prunedTree{
		{Tenant: "default", Root: root, Sessions: make([]session.ID, 257), State: retention.Archived, File: file, Bytes: 123_456_789, LastMS: used},
		{Tenant: "default", Root: root, Sessions: make([]session.ID, 2), State: retention.Kept, Reason: "used 100 days ago, kept for 365 days", Bytes: 12, LastMS: used},
		{Tenant: "default", Root: root, Sessions: make([]session.ID, 1), State: retention.Due, File: file, Bytes: 12, LastMS: used},
	}
	shown := func(looks bool) string {
		var b strings.Builder
		term.New(&b, nil).Rows([]string{"TREE", "TENANT", "SESSIONS", "BYTES", "USED", "STATE", ""}, prunedRows(views, now, looks))
		return b.String()
	}
	want := `TREE      TENANT   SESSIONS  BYTES        USED  STATE
d96d6a25  default  257       123,456,789  100d  archived
  ` + file + `
d96d6a25  default  2         12           100d  kept      kept for 365 days
d96d6a25  default  1         12           100d  due
`
	got := shown(true)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(got) {
		if n := term.Width(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for line := range strings.Lines(strings.TrimPrefix(shown(false), strings.SplitN(shown(false), "\n", 2)[0]+"\n")) {
		if !strings.HasPrefix(line, root+"  ") || !strings.Contains(line, file) && !strings.Contains(line, "kept for") {
			t.Errorf("a program does not get all of it: %s", line)
		}
	}
}
