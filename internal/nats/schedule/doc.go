// Package schedule decides what a relay does for the runs of one partition:
// which run goes to which node, which signal is sent again, which result is
// still to be stored. It is a pure state machine: it has no clock, goroutine,
// connection or log. Its driver feeds it commits, the states of nodes and what
// became of earlier actions, and carries out the actions that it returns:
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
// The scheduler folds the few events of an event stream that say what is open:
// runs that have not ended, and follow-ups of commits (the first dispatch of a
// branch, a signal to another session, a result) that nothing has settled. Its
// size follows what is open, never what has been. What it decides is a hint:
// each claim and each signal is decided by the log of its session, so that
// doing something twice is harmless.
//
// # Dispatch
//
// A run that no living node executes is runnable. Runnable runs lie in queues
// by pool and class, in each of which the tenants take turns. A run goes to the
// node that claimed it last if that one has a free slot, else to the one of the
// pool with the most free slots. A node that has none answers [Busy] and notes
// the relay's [Demand]; when a slot becomes free it grants it to one relay. A
// dispatch names the attempt that the relay saw, and the fold refuses a claim
// that finds another one.
//
// The package does not store anything: [Scheduler.Pages] and [Restore] turn the
// open set into pages and back. testdata tells in transcripts what a scheduler does
// with commits, answers, deaths and demands.
//
// Files, the lowest first: alarm, session, runs, queue, followup, node, action,
// scheduler, dispatch, page, next, standing, backlog.
package schedule
