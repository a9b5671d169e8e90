// Package journal is the durable-execution core: the records of runs in the log of a
// session, the decision between execution and replay of a step, and the single writer.
//
// A run is one execution of a workflow on a session. Its steps are recorded as events
// in the logs of the sessions it works on, next to the content they produced. After a
// crash the workflow's code runs again from the start; each step consults the
// [Journal]. Recorded steps return their recorded results, and execution continues at
// the first step without a record.
//
// The package is pure but for [NewStore]: a [StateMachine] takes commits, requests and
// the time as arguments and returns the events to append. The caller that drives it (a
// session actor, the store of NewStore) owns the log, the clock and the goroutines.
//
// testdata/protocol documents the protocol in transcripts: the commits of a claim, a
// step, a signal, a fan-out or a takeover, and the answer to each. They are also the
// tests of every [Store].
//
// Files, the lowest first: paths, task, instructions, event, record, store, suspect,
// start, state_machine, terminal_only, answer, wait, quarantine, branch, scratch, cleanup, key_log, published, limit, limit_state, after, quota, reservation, settled, cache_warmup, fact, values,
// run_state, journal, loop, signals_taken, paged, claim, recording, archive, account, batch,
// snapshot, recorded_run, resumption, ways_on, direct_store, followups.
package journal
