// Package follow follows a run to its end, or to what a person has to do about it.
//
// Files, the lowest first: watcher, resume, person, questions, draft, timeline, follow.
package follow
