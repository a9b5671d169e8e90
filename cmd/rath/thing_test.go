package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

func TestParseThing(t *testing.T) {
	for in, want := range map[string]thing{
		"@last":           {name: "@last"},
		"s1":              {name: "s1"},
		"@last:5":         {name: "@last", version: 5},
		"s1:5":            {name: "s1", version: 5},
		"s1#3":            {name: "s1", row: 3},
		"@last#0":         {name: "@last"},
		"r1/2":            {name: "r1", step: "2", path: "r1/2"},
		"@last/2.fast.0":  {name: "@last", step: "2.fast.0", path: "@last/2.fast.0"},
		"call_13-0":       {name: "call_13-0"},
		"slug.sh":         {name: "@last", path: "slug.sh"},
		"dir/x.go":        {name: "@last", path: "dir/x.go"},
		"dir/7.txt":       {name: "dir", step: "7.txt", path: "dir/7.txt"},
		"slug.sh:7":       {name: "@last", path: "slug.sh", line: 7},
		"./dir/x.go:7":    {name: "@last", path: "dir/x.go", line: 7},
		"@last:slug.sh:7": {name: "@last", path: "slug.sh", line: 7},
		"@last:slug.sh":   {name: "@last", path: "slug.sh"},
		"s1:5:slug.sh:7":  {name: "s1", version: 5, path: "slug.sh", line: 7},
		"s1:5:slug.sh":    {name: "s1", version: 5, path: "slug.sh"},
		"s1:a:b.txt:7":    {name: "s1", path: "a:b.txt", line: 7},
	} {
		want.text = in
		if !strings.Contains(in, "#") {
			want.row = -1
		}
		if got, err := parseThing(in); err != nil || got != want {
			t.Errorf("parseThing(%q) = %+v, %v, want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", ":", "a:", ":3", "a:0", "a:b:", "::3", "a:-1", "s1#", "s1#x", "s1#-1", "a b:c d"} {
		if got, err := parseThing(in); err == nil || codeOf(err) != exitUsage {
			t.Errorf("parseThing(%q) = %+v, %v, want a usage error", in, got, err)
		}
	}
}

// TestWatchedLines shows what a list of runs that is watched prints where
// nobody can redraw it: a line for each run that is new or has changed.
func TestWatchedLines(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &out, stderr: &out, getenv: func(string) string { return "" }}
	a.out = a.writer(&out, "never")
	a.config.Output.Value = "table"
	runs := []messages.RunInfo{
		{Run: "r2", State: run.Running, Workflow: "fix", Session: "s2", Node: "n1"},
		{Run: "r1", State: run.Succeeded, Workflow: "fix", Session: "s1", Node: "n2"},
	}
	names := map[string]string{"n1": "a"} // n2 is gone
	shown := map[run.ID]messages.RunInfo{}
	draw := func(want ...string) {
		t.Helper()
		out.Reset()
		if err := a.redraw(runs, names, shown); err != nil {
			t.Fatal(err)
		}
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
	a.config.Output.Value = "json"
	runs[0].Steps = 3
	out.Reset()
	if err := a.redraw(runs, names, shown); err != nil || strings.Count(out.String(), "\n") != 1 || !strings.HasPrefix(out.String(), `{"run":"r2"`) {
		t.Errorf("%v, %s", err, out.String())
	}
}
