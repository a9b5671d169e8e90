// Package audit checks the invariants of a system from its stored bytes alone.
// It imports no other package of this module: it relies on messages/FORMAT.md
// and on the JSON Schemas, which the caller provides.
//
// The input is the messages of the streams, as [Message]s, from NATS or from a
// dump that [NewWriter] wrote and [ReadDump] reads. The event streams (EV_…)
// come first, each in the order of its sequence; LINEAGE, RESULT, DLQ, TASKS
// and KV_ALIAS follow in any order and may be absent. A blob that holds the
// data of an event is a message of stream BLOB before the commit that names it,
// with all of its bytes as data and no sequence. A BLOB message with a sequence,
// after the event streams, lists a stored blob; it has data only if the blob may
// be the head of a session's files. A message without a subject states that its
// stream was read, so that the audit reports missing messages; its sequence is the
// last one that the stream ever had.
//
//	schemas, err := audit.ReadSchemas(files)
//	if err != nil {
//		return err
//	}
//	report, err := audit.Run(ctx, audit.ReadDump(file), &audit.Options{Schemas: schemas})
//	if err != nil {
//		return err // the input could not be read
//	}
//	for _, v := range report.Violations {
//		fmt.Println(v)
//	}
//
// Witnesses supply facts that are not in the logs, see [Options]: tools that
// record each execution, the request log of the model server, and clients that
// record the responses they received. [Invariants] lists the checks; the names
// are stable.
//
// An audit makes one pass over the messages. It keeps in memory 32 bytes per
// commit and one per event, some hundred bytes per session and run, the steps of
// open runs with 16 bytes per recorded step, and the witnesses. One goroutine
// makes a report; the package is not safe for concurrent use.
//
// Files, the lowest first: canonical, commit, schema, dump, events, edition, audit, log,
// links, head, fold, run, settled, tombstone, answer, wait, warm, budget, cleanup, branch, started, after, limit, quota, published, loop, step, lineage, result,
// witness.
package audit
