// Package filemerge merges the files of branches into those of a session.
//
// A [Decider] merges sides and resolves conflicts by a rule, or by the choices of a
// judge. A [Result] is the record of the merge: the new head, the conflicts with their
// resolutions, and the conflicts for a judge to resolve.
package filemerge
