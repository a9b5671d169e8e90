// Package journal is the durable-execution core: what the log of a session says of
// runs, how it decides what executes and what is replayed, and who may write.
//
// A run is one execution of a workflow on a session. Its steps are recorded
// as events in the logs of the sessions it works on, next to the content they
// produced. After a crash the workflow's code runs again from the start; each
// step asks the [Journal], recorded ones return what they returned before, and
// execution goes on at the first step that is not there.
//
// The package is pure but for [NewStore]: a [StateMachine] takes commits, requests and
// the time as arguments and says which events to append. The caller that drives it (a
// session actor, the store of NewStore) owns the log, the clock and the goroutines.
//
// testdata/protocol tells the protocol in transcripts: which commits a claim, a step, a
// signal, a fan-out or a take-over makes, and what each is answered. They are the tests
// of every [Store], too.
//
// Files, the lowest first: paths, task, event, record, store, suspect,
// state_machine, terminal_only, answer, wait, quarantine, branch, scratch, reservation, settled, cache_warmup, fact, values,
// run_state, journal, signals_taken, paged, claim, recording, archive, account, batch,
// snapshot, recorded_run, direct_store, followups.
package journal
