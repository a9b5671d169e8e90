// Package audit checks from stored bytes alone that a system kept its
// promises. It imports nothing else of this module: what it knows is in
// messages/FORMAT.md and in the JSON Schemas, which the caller hands over.
//
// Its input are the messages of the streams, as [Message]s: from NATS, or from
// a dump that [NewWriter] wrote and [ReadDump] reads. The event streams (EV_…)
// come first, each in the order of its sequence; LINEAGE, RESULT, DLQ, TASKS
// and KV_ALIAS follow in any order and may be absent. A blob that holds the
// data of an event comes as a message of stream BLOB before the commit that
// names it, with all of its bytes as data and no sequence. One with a sequence, after the
// event streams, lists a blob that is stored, and has data only if it may be the head of a
// session's files. A message without a subject says
// that a stream was read, so that what is missing in it is missed; its sequence
// is that of the last message that the stream ever had.
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
// What the logs cannot tell, witnesses do, see [Options]: tools that note each
// execution, the request log of the model server, and clients that note what
// they were told. [Invariants] lists what is checked; the names are stable.
//
// One pass over the messages is made. In memory stay 32 bytes for each commit
// and one for each event, some hundred bytes for each session and run, the
// steps of open runs with 16 bytes for each recorded one, and the witnesses.
// A report is made by one goroutine; nothing here is safe for concurrent use.
//
// Files, the lowest first: canonical, commit, schema, dump, events, edition, audit, log,
// links, head, fold, run, settled, tombstone, answer, wait, warm, budget, branch, step, lineage, result,
// witness.
package audit
