// Package engine executes workflows over their journals. It implements the steps of
// package flow.
//
// A [Runtime] has the external dependencies of a run. Its Begin claims a run, and the
// returned [Execution] runs Forward to its end:
//
//	ex, err := rt.Begin(ctx, registration, task)
//	if err != nil || ex.State() != run.Running {
//		return err // the log has its state
//	}
//	state, err := ex.Forward(ctx)
//
// Recorded steps return their recorded outcomes. The first step that is not recorded is
// executed, and its outcome is committed through the [journal.Store] before Forward gets
// it. A wait unwinds the execution with run.ErrSuspended; its end makes the run runnable
// again, and another execution reaches the wait by replay.
//
// The state of an Execution consists of parts that change together: lifetime (whether it
// may continue), position (in the journal), sessions (held ones and aliases), account
// (the budget), inbox (signals), lines (the functions of a Gather), loops (the iterations of
// a Loop), levels (the runs around a branch). One mutex guards them. Its leases of sandboxes
// have a lock of their own.
//
// On a node an actor drives executions, and the relays of partitions carry out the
// effects of commits. Package inprocess does both in one process. [Replay] runs code
// against a journal and executes no step.
//
// The parts that do not depend on an execution are separate packages: chain sends
// requests to models, transcript renders requests and judges answers, recall searches
// memories, toolserver runs tool servers, lease manages sandboxes, filemerge merges the
// files of branches, question renders questions for their readers, and live reports the
// steps in flight.
//
// Files, the lowest first: registry, clock, position, lifetime, inbox, level, sessions,
// account, runtime, execution, scope, step, placement, read, join, guide, fork, resumption, branch,
// roundtrip, tries, hold, do, tag, defer, version, diff, parallel, loop, event, await, start, follow, image, quota, complete, message, memory,
// compress, overflow, round, call_tool, hooks, rules, approval, ask, equip, turn, select, fanout, gather,
// merge, delegate, files, status, giveup, ending, claim, replay.
package engine
