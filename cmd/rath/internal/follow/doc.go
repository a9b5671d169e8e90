// Package follow follows a run to its end, or until a person has to act.
//
// Files, the lowest first: watcher, resume, person, questions, timeline, follow.
package follow
