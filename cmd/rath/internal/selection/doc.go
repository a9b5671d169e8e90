// Package selection chooses the runs that a command is for, one by its name or all
// that a selector fits, and does something about each.
//
// Files, the lowest first: selection, each, topic.
package selection
