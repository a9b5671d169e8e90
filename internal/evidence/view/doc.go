// Package view turns records into text: the timeline of a run, the answers of why and
// impact, the origin of the lines of a file, transcripts, and the tables of runs and
// nodes. Its functions take data and a [term.Writer], or return lines and values for
// JSON. They read no flags; a client's functions read the server, so that a command line and an HTTP handler have the same output.
//
// Files, the lowest first: text, shortid, files, blame, details, line, timeline, turn, steps,
// transcript, impact, impact_use, impact_text, instructions, reason, ways_on, reason_text, replay, records, nodes, quota, live,
// runs, workflow, diff, top, read, compose.
package view
