// Package natsbus is Rath on NATS with JetStream, and the only importer of the
// NATS client but for tests.
//
// A [Conn] is one connection to the NATS servers. Its methods hand out what
// the packages below ask for: the log of sessions, snapshots, blobs, whose
// contracts are there. The rest runs a fleet: tasks and derived work are pulled,
// a relay for each event stream publishes what follows from commits and sweeps
// open runs, control and queries are served, streams are set up, watched and
// created again.
//
//	c, err := natsbus.Connect(ctx, &natsbus.Options{URL: "nats://nats:4222", Name: "node-1", Replicas: 3, Probe: …})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	if err := c.Provision(ctx); err != nil {
//		return err
//	}
//
// A connection that stores promises a durability, see [Level], and refuses to
// store when the servers run with less. Streams are created by [Conn.Provision],
// which alters none, or by an operator, see [Conn.Plan]. What these credentials
// lack is a [conn.PermissionError].
//
// The package holds no workflow logic and decides nothing about who may write:
// the log's compare-and-set does.
//
// # Where to look
//
// How servers are asked, what is asked again while a stream elects a leader, what ends
// with the connection, and what credentials lack is known in package conn. The rest
// moves into packages beside it, one theme after the other. Its files by theme:
//
//   - the connection to the streams: connect, store (the streams over one
//     connection), options, durability (levels, and whether servers keep them),
//     transient (errors that pass by themselves; the requests are in package conn).
//   - streams, buckets and consumers: streams (their table), settings (what has to
//     be as it says), queues (the consumer of tasks), plan (what is to be done
//     about all of them), change (about one), former_release (about what former
//     releases left), provision (what a node makes, or demands), recreate (streams
//     and consumers that no server serves), lag (how far the intake is behind).
//   - sessions and their data: log (the log of sessions), append (a commit is stored
//     once), chain (which messages are commits), snapshot, blob, linearizable (the
//     newest version, from a leader that is one), tombstone (what an archived log
//     leaves), purge, restore, trees (what is archived together), dump (all that
//     auditors read), alias (names and ids that users chose).
//   - room in streams: capacity (how full they are), disk (and what they lie on),
//     tenant_usage (what a tenant holds there), admit (whether a run may begin),
//     roomlog (what a log takes then).
//   - tasks come in: tasks (submitted tasks), credit (how many may wait in logs),
//     refusal (of those that no node will ever run), deadletters (dead letters, as
//     refused tasks are called, are listed, tried again and dropped), rerun (those
//     that are run again), registry (which pool offers a workflow), pull (the queue).
//   - the relay of a partition: relay (both of its parts), membership (which process
//     has it), lineage, records (commits become lineage), decoded (commits that both
//     parts read), dispatcher (the driver of package schedule), openset (its open set
//     is stored), host (what a node does with dispatched runs, and what it tells
//     relays), waiting_runs (what waits for the slots of a pool), result, checkpoint
//     (how far a relay has come), watermark (a caller waits until it is there).
//   - what nodes answer: control, query, query_handlers,
//     history, runlist (what LINEAGE tells), deliver (work for the holder of a
//     session), ask (what is asked of one node), nodes (the bucket of nodes), delta
//     (a model's output as it comes), tool (tools of other programs).
//   - what clients ask: requests (tasks, queries, control), tail (lineage as it comes).
package natsbus
