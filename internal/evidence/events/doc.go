// Package events folds lineage records and the drafts of model output into neutral events:
// a run started, a step is done, a question was asked. Every door encodes these events in
// its own way, and none of them reads records.
//
// [Of] maps a record to its events. A [Fold] also takes the deltas of runs in progress,
// and returns each event once, in an order in which the drafts of a step come before its
// record. A [Position] is the place of a reader in such a stream. All three are pure: no
// clock, no network, no goroutine.
//
// Files, the lowest first: draft, position, record, fold.
package events
