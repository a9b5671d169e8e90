// Package live reports the steps under way of an execution, which no log holds, and sums
// up for people the calls of tools.
//
// An execution adds each step to its [Steps] and gets a [Flight], whose methods note the
// progress of the step. A [Report] is a copy of all of them.
//
// Files, the lowest first: summary, live.
package live
