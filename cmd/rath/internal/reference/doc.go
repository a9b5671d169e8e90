// Package reference resolves names on the command line to sessions, versions and runs.
//
// Files, the lowest first: tree, reference, search, task, head.
package reference
