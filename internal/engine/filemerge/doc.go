// Package filemerge merges the files of branches into those of a session.
//
// A [Decider] merges sides and decides conflicts by a rule, or by the choices of a judge,
// and a [Result] is the record of the merge: the new head, the conflicts with what decided
// them, and those that a judge is asked about.
package filemerge
