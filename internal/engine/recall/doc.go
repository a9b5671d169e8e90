// Package recall searches a memory for the notes of a step, omits notes of quarantined
// sessions, and renders the others for a prompt.
//
// [Search] finds the notes, and [Record] is the journal's record of a search.
package recall
