package audit

import (
	"cmp"
	"slices"
)

// Newer is a field of events that the schemas do not have, written by a release
// of a later edition than theirs: it may mean anything that readers may skip.
type Newer struct {
	Kind    string `json:"kind"` // of the event
	Field   string `json:"field"`
	Edition uint64 `json:"edition"` // the highest that it came with
	Count   uint64 `json:"count"`
}

// newerField names a field of which Newer tells.
type newerField struct{ kind, field string }

// newerThanKnown returns what takes note of fields that the schemas do not have;
// nil if the writer's edition is one that they describe, so that such a field is
// a mistake.
func (a *audit) newerThanKnown(l *log, kind string) func(field string) {
	if l.edition <= a.o.Edition {
		return nil
	}
	return func(field string) {
		k := newerField{kind, field}
		n := a.newer[k]
		if n == nil {
			n = &Newer{Kind: kind, Field: field}
			if a.newer == nil {
				a.newer = map[newerField]*Newer{}
			}
			a.newer[k] = n
		}
		n.Edition, n.Count = max(n.Edition, l.edition), n.Count+1
	}
}

// finishNewer puts what was noted into the report.
func (a *audit) finishNewer() {
	for _, n := range a.newer {
		a.report.Newer = append(a.report.Newer, *n)
	}
	slices.SortFunc(a.report.Newer, func(x, y Newer) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Field, y.Field))
	})
}
