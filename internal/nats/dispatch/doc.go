// Package dispatch brings tasks to logs and runs to nodes: the intake of the stream of
// tasks, the relay of each partition with the driver of package schedule and its stored
// open set, and the host that accepts the runs dispatched to this process.
//
// Package schedule, which has no connection, decides which run is next. The log's
// compare-and-set decides who may write.
//
// Files, the lowest first: dispatch, registry, ledgers, quota, relay_options, relay_membership, relay_strangers, deliver, death, host, bound,
// dispatcher, relay_state, relay, openset, pull, credit, intake, refusal, after, admit, standing,
// open_sessions, waiting_runs.
package dispatch
