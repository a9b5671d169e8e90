// Package selection selects the runs of a command, one by its name or all that match a
// selector, and acts on each of them.
//
// Files, the lowest first: selection, each, topic.
package selection
