package evidence

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/retention"
	"github.com/rathcluster/rath/internal/platform/term"
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
	if got, want := keptText(views), "1 tree left as it is: kept for 365 days"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for line := range strings.Lines(strings.TrimPrefix(shown(false), strings.SplitN(shown(false), "\n", 2)[0]+"\n")) {
		if !strings.HasPrefix(line, root+"  ") || !strings.Contains(line, file) {
			t.Errorf("a program does not get all of it: %s", line)
		}
	}
}

// TestPruneCountsWhatIsKept: kept trees have no rows of their own, however many they
// are.
func TestPruneCountsWhatIsKept(t *testing.T) {
	var views []prunedTree
	for i := range 300 {
		views = append(views, prunedTree{State: retention.Kept, Reason: fmt.Sprintf("used %d days ago, kept for 30 days", i%30)})
	}
	for i, reason := range []string{"tenant legal keeps everything", "tenant legal keeps everything", "session a names no event stream", "session b names no event stream"} {
		views = append(views, prunedTree{Root: session.ID(fmt.Sprint(i)), State: retention.Kept, Reason: reason})
	}
	for i := range 12 {
		views = append(views, prunedTree{State: retention.Kept, Reason: fmt.Sprintf("run r%d is waiting", i)})
	}
	views = append(views, prunedTree{State: retention.Kept, Reason: "branch b is not closed"})
	if rows := prunedRows(views, time.Now(), false); len(rows) > 0 {
		t.Errorf("%d rows", len(rows))
	}
	const want = "317 trees left as they are: kept for 30 days (300); a run is waiting (12); a session names no event stream (2); other reasons, see --format jsonl (3)"
	if got := keptText(views); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
