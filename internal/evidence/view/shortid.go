package view

import (
	"slices"

	"github.com/rathcluster/rath/run"
)

// ShortIDs returns a function that shortens the ids of the runs in a table to unique
// prefixes of at least 12 characters.
func ShortIDs(ids []run.ID) func(run.ID) string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	n := 12
	for i := 1; i < len(ids); i++ {
		same := 0
		for same < len(ids[i-1]) && ids[i][same] == ids[i-1][same] { // the order ensures that ids[i] is the longer one
			same++
		}
		n = max(n, same+1)
	}
	return func(id run.ID) string { return string(id[:min(len(id), n)]) }
}

// IDsOf returns the run of each row.
func IDsOf[T any](rows []T, of func(*T) run.ID) []run.ID {
	ids := make([]run.ID, len(rows))
	for i := range rows {
		ids[i] = of(&rows[i])
	}
	return ids
}
