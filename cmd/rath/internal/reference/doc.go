// Package reference finds what names on the command line stand for: sessions,
// versions and runs.
//
// Files, the lowest first: tree, reference, search, task, head.
package reference
