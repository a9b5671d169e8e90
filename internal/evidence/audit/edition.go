package audit

import (
	"cmp"
	"slices"
)

// Newer is a field of events that is not in the schemas, written by a release of a later
// edition than theirs: readers may skip it.
type Newer struct {
	Kind    string `json:"kind"` // of the event
	Field   string `json:"field"`
	Edition uint64 `json:"edition"` // the highest of its writers
	Count   uint64 `json:"count"`
}

// newerField identifies the field of a Newer.
type newerField struct{ kind, field string }

// newerThanKnown returns a function that records fields missing from the schemas; nil if
// the schemas describe the writer's edition, so that such a field is a violation.
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

// finishNewer adds the recorded fields to the report.
func (a *audit) finishNewer() {
	for _, n := range a.newer {
		a.report.Newer = append(a.report.Newer, *n)
	}
	slices.SortFunc(a.report.Newer, func(x, y Newer) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Field, y.Field))
	})
}
