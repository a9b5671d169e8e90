// Package dispatch brings tasks to logs and runs to nodes: the intake of the stream of
// tasks, the relay of each partition with the driver of package schedule and its stored
// open set, and the host that takes what is dispatched to this process.
//
// What runs next is decided by package schedule, which has no connection. Who may write
// is decided by the log's compare-and-set.
//
// Files, the lowest first: dispatch, registry, ledgers, relay_options, relay_membership, relay_strangers, deliver, death, host, bound,
// dispatcher, relay_state, relay, openset, pull, credit, intake, refusal, admit, standing,
// open_sessions, waiting_runs.
package dispatch
