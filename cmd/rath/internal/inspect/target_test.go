package inspect

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
)

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]target{
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
		if got, err := parseTarget(in); err != nil || got != want {
			t.Errorf("parseThing(%q) = %+v, %v, want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", ":", "a:", ":3", "a:0", "a:b:", "::3", "a:-1", "s1#", "s1#x", "s1#-1", "a b:c d"} {
		if got, err := parseTarget(in); err == nil || app.CodeOf(err) != app.ExitUsage {
			t.Errorf("parseThing(%q) = %+v, %v, want a usage error", in, got, err)
		}
	}
}
