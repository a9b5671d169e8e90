// Package engine executes workflows over their journals. It makes the steps that
// package flow asks for.
//
// A [Runtime] is what a run needs from outside. Its Begin claims a run, and the
// [Execution] that it returns runs Forward to its end:
//
//	ex, err := rt.Begin(ctx, registration, task)
//	if err != nil || ex.State() != run.Running {
//		return err // the log says how it stands
//	}
//	state, err := ex.Forward(ctx)
//
// Recorded steps return what they returned before. The first step that is not
// recorded is executed, and its outcome is committed through the [journal.Store]
// before Forward sees it. A wait unwinds the execution with run.ErrSuspended; its
// end makes the run runnable again, and another execution comes to it by replay.
//
// What an Execution keeps lies in parts that change together: lifetime (whether it
// may go on), position (in the journal), sessions (held ones and aliases), account
// (the budget), inbox (signals), levels (the runs around a branch). One mutex guards
// them. Its leases of sandboxes have a lock of their own.
//
// On a node an actor drives executions, and the relays of partitions carry out
// the effects of commits. Package inprocess does both in one process. [Replay] runs
// code against a journal and executes nothing.
//
// Rooms of its own have the parts that need no execution: chain asks models one after
// another, transcript renders requests and judges answers, recall searches memories,
// toolserver keeps tool servers, lease keeps sandboxes, filemerge merges the files of
// branches, question renders what people are asked, and live reports the steps under way.
//
// Files, the lowest first: registry, clock, position, lifetime, inbox, level, sessions,
// account, runtime, execution, scope, step, placement, read, join, guide, fork, branch,
// roundtrip, do, version, diff, await, follow, image, complete, message, memory, compress,
// overflow, round, call_tool, hooks, approval, ask, equip, turn, select, fanout, gather,
// merge, delegate, files, ending, claim, replay.
package engine
