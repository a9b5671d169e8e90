package audit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/audit"
)

// TestNewerFields checks that a field missing from the schemas is a violation if they
// describe the writer's edition, and a Newer if the writer's edition is later.
func TestNewerFields(t *testing.T) {
	zoned := func(e *envelope) {
		if e.session != "s1" {
			return
		}
		for _, f := range e.facts {
			if f.kind == "step.done" {
				f.data["zone"] = "next"
				if u, ok := f.data["usage"].(object); ok {
					u["audio"] = 3
				}
			}
		}
	}
	ahead := func(session string) func(*envelope) {
		return func(e *envelope) {
			for _, f := range e.facts {
				if e.session == session && f.kind == "writer.opened" {
					f.data["edition"], f.data["host"] = 2, "h"
				}
			}
		}
	}
	for name, c := range map[string]struct {
		hook func(*envelope)
		want []string // fields that are newer
		bad  string   // the violation
	}{
		"a mistake":              {zoned, nil, `unexpected additional properties ["zone"]`},
		"another log is ahead":   {both(ahead("s2"), zoned), []string{"writer.opened host"}, `unexpected additional properties ["zone"]`},
		"ahead":                  {both(ahead("s1"), zoned), []string{"step.done usage.audio", "step.done zone", "writer.opened host"}, ""},
		"ahead, another meaning": {both(ahead("s1"), set("s1", 2, "step.done", "attempt", "one")), []string{"writer.opened host"}, `attempt: type: one has type "string", want "integer"`},
		"ahead, a field missing": {both(ahead("s1"), at("s1", 2, func(e *envelope) { delete(e.fact("step.done").data, "run") })), []string{"writer.opened host"}, `missing properties: ["run"]`},
	} {
		t.Run(name, func(t *testing.T) {
			r := story(newWorld(t, c.hook)).audited()
			var got []string
			for _, n := range r.Newer {
				got = append(got, n.Kind+" "+n.Field)
				if n.Edition != 2 || n.Count == 0 {
					t.Errorf("%+v", n)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("newer are %q, want %q", got, c.want)
			}
			if r.OK() != (c.bad == "") || c.bad != "" && !slices.ContainsFunc(r.Violations, func(v audit.Violation) bool {
				return v.Invariant == audit.Format && strings.Contains(v.Found, c.bad)
			}) {
				t.Errorf("want %q:\n%s", c.bad, violations(r))
			}
		})
	}
}
