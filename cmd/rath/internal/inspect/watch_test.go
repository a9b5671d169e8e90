package inspect

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestWatchedLines checks the output of a watched list of runs that cannot be redrawn:
// a line for each run that is new or has changed.
func TestWatchedLines(t *testing.T) {
	var out bytes.Buffer
	a := app.New("rath", nil, &out, &out, func(string) string { return "" })
	a.Config.Format.Value = "text"
	runs := []messages.RunInfo{
		{Run: "r2", State: run.Running, Workflow: "fix", Session: "s2", Node: "n1"},
		{Run: "r1", State: run.Succeeded, Workflow: "fix", Session: "s1", Node: "n2"},
	}
	names := map[string]string{"n1": "a"} // n2 is gone
	shown := map[run.ID]messages.RunInfo{}
	draw := func(want ...string) {
		t.Helper()
		out.Reset()
		must.Do(t, redraw(a, runs, names, nil, shown))
		var got []string
		for l := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(l, "  ")
			got = append(got, strings.Join(strings.Fields(rest), " "))
			if len(l) > 81 {
				t.Errorf("%d columns: %s", len(l)-1, l)
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	draw("r1 succeeded fix s1 n2", "r2 running fix s2 a")
	draw()
	runs[0].State, runs[0].Reason = run.Failed, "no luck"
	draw("r2 failed fix s2 a no luck")
	a.Config.Format.Value = "json"
	runs[0].Steps = 3
	out.Reset()
	if err := redraw(a, runs, names, nil, shown); err != nil || strings.Count(out.String(), "\n") != 1 || !strings.HasPrefix(out.String(), `{"run":"r2"`) {
		t.Errorf("%v, %s", err, out.String())
	}
}
