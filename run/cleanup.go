package run

import "strings"

// cleanupSuffix ends the id of a cleanup run. No task has such an id.
const cleanupSuffix = "-cleanup"

// MaxCleanedID is the maximum length of the id of a run that can have a cleanup run.
const MaxCleanedID = 64 - len(cleanupSuffix)

// CleanupOf returns the id of the run that executes the compensations of a run, see
// flow.Defer.
func CleanupOf(id ID) ID { return id + cleanupSuffix }

// CleanedBy returns the run whose compensations a cleanup run executes; of is "" and ok is
// false if id is not the id of a cleanup run.
func CleanedBy(id ID) (of ID, ok bool) {
	if s, cut := strings.CutSuffix(string(id), cleanupSuffix); cut {
		of = ID(s)
	}
	return of, of != ""
}
