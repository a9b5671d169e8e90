// Package recall searches a memory for the notes of a step, leaves out those of
// quarantined sessions, and renders the others for a prompt.
//
// [Search] finds them, and [Record] is what the journal holds of it.
package recall
