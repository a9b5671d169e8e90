// Package session is the pure core of Rath: the session value, its chunks,
// and the events that it is made of.
//
// A [Session] is to agents what a tensor is to a numeric library: an immutable
// value that workflows transform. Copying it, sharing it between goroutines
// and forking it cost the same for ten chunks and for a hundred thousand.
//
// Behind each session id is one append-only log of commits with one writer at a time.
// Commits hold events; folding the content events of a log gives the value at each
// version. The same log is the journal of the runs that worked on the session and the
// evidence of their actions, because each commit holds the hash of the previous one.
//
// The package reads no clock, draws no randomness, starts no goroutine and writes no
// logs: times and ids are arguments, and folds never panic on any input.
//
// Files, the lowest first: errors, id, hash, image, chunk, event, decode, table,
// page, archived, session, spent, snapshot, unmarshal, fold, pending.
package session
