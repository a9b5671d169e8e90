// Package translate turns messages of the wire into facts of the journal and back: tasks,
// signals, results, runs, and the work that nodes send each other. Nodes and the commands
// that read logs use it; a client needs none of it.
//
// Files, the lowest first: task, signal, result, refused, alias, work.
package translate
