package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

type inner struct {
	Name  string
	cache int
}

type Embedded struct{ Deep int }

type report struct {
	Embedded
	Title   string
	At      time.Time
	Inner   *inner
	All     []inner
	ByName  map[string]any
	Skipped string `json:"-"`
	note    string
}

// TestDoSurvivesJSON: a step returns the value of its record, from the first execution
// on, and rejects content that the record would lose.
func TestDoSurvivesJSON(t *testing.T) {
	whole := report{Embedded: Embedded{1}, Title: "t", At: time.UnixMilli(7).UTC(), Inner: &inner{Name: "a"}, All: []inner{{Name: "b"}}, ByName: map[string]any{"n": 1}}
	recorded := whole
	recorded.ByName = map[string]any{"n": 1.0}
	for name, tt := range map[string]struct {
		value report
		lost  string // the field that the error names
	}{
		"whole":           {value: whole},
		"not exported":    {value: report{note: "n"}, lost: "field note "},
		"left out by tag": {value: report{Skipped: "s"}, lost: "field Skipped "},
		"by a pointer":    {value: report{Inner: &inner{cache: 1}}, lost: "field Inner.cache "},
		"in a list":       {value: report{All: []inner{{}, {cache: 2}}}, lost: "field All.1.cache "},
		"in a map":        {value: report{ByName: map[string]any{"x": inner{cache: 3}}}, lost: "field ByName.x.cache "},
	} {
		var got report
		_, err := (&inprocess.Runtime{}).Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (_ session.Session, err error) {
			got, err = flow.Do(ctx, "report", func(context.Context) (report, error) { return tt.value, nil }, tool.ReadOnly)
			return s, err
		}), session.New(session.UserText("go")))
		if tt.lost != "" {
			if err == nil || !strings.Contains(err.Error(), tt.lost) {
				t.Errorf("%s: %v, want an error that names the %s", name, err, tt.lost)
			}
			continue
		}
		if diff := cmp.Diff(recorded, got, cmp.AllowUnexported(report{}, inner{})); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

func explode(m map[string]int) { m["x"] = 1 }

// TestPanicNamesItsPlace: the error of a run whose workflow panicked names the file and
// line.
func TestPanicNamesItsPlace(t *testing.T) {
	for name, f := range map[string]func(){"panic": func() { panic("boom") }, "runtime error": func() { explode(nil) }} {
		_, err := (&inprocess.Runtime{}).Run(t.Context(), flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
			f()
			return s, nil
		}), session.New(session.UserText("go")))
		if err == nil || !strings.Contains(err.Error(), "panicked at do_test.go:") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
