// Package schedule decides the actions of a relay for the runs of one partition: which run
// goes to which node, which signal is sent again, which result is still to be stored. It is
// a pure state machine: it has no clock, goroutine, connection or log. Its driver feeds it
// commits, the states of nodes and the outcomes of earlier actions, and carries out the
// actions that it returns:
//
//	s := schedule.New(&schedule.Options{Self: incarnation, Known: members.Known})
//	s.Fold(now, entry, journal.Facts(entry.Commit))
//	for _, a := range s.Next(now) {
//		go func() { done <- outcome{a.ID, carryOut(a)} }()
//	}
//	s.Done(now, id, schedule.Outcome{Result: schedule.Settled})
//	timer.Reset(s.Wake().Sub(now))
//
// # The open set
//
// The scheduler folds the few events of an event stream that determine the open set: runs
// that have not ended, and follow-ups of commits (the first dispatch of a branch, a signal
// to another session, a result) that are not settled. Its size depends on the open set,
// never on the past. Its decisions are hints: the log of a session decides each claim and
// each signal, so that repeated actions are harmless.
//
// # Dispatch
//
// A run that no living node executes is runnable. Runnable runs lie in queues by pool and
// class, in each of which the tenants take turns. A run goes to the node that claimed it
// last if that node has a free slot, else to the node of the pool with the most free slots.
// A node without a free slot answers [Busy] and stores the relay's [Demand]; when a slot
// becomes free it grants it to one relay. A dispatch names the attempt that the relay saw,
// and the fold rejects a claim that finds another one.
//
// The package does not store data: pages.Take and [Restore] convert the open set to
// pages and back. Transcripts in testdata show a scheduler's actions for commits, answers,
// deaths and demands.
//
// Files, the lowest first: alarm, session, runs, queue, action, followup, node,
// slots, dispatch, backlog, page, scheduler, next, standing.
package schedule
