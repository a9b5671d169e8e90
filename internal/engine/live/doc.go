// Package live reports the steps in flight of an execution, which no log holds, and
// summarises tool calls for readers.
//
// An execution adds each step to its [Steps] and gets a [Flight], whose methods record
// the progress of the step. A [Report] is a copy of all steps.
//
// Files, the lowest first: summary, live.
package live
