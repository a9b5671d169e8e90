// Package flow is the API for authors of agent workflows.
//
// A [Workflow] transforms a session: its Forward takes a value and returns a
// new one. Inside it is ordinary Go with if, for and function calls:
//
//	func (w *Fix) Forward(ctx context.Context, s session.Session) (session.Session, error) {
//		s, err := w.plan.Forward(ctx, s)
//		if err != nil {
//			return s, err
//		}
//		try, err := flow.Fork(ctx, s)
//		if err != nil {
//			return s, err
//		}
//		if try, err = w.code.Forward(ctx, try); err != nil {
//			return s, err
//		}
//		return flow.Adopt(ctx, s, try, "it passes")
//	}
//
// Functions that take a context may be journaled; functions without one are pure. Each
// journaled call is a step: a model call, a tool call, a fork, a join, [Do]. Its outcome is
// durable in the session's log before Forward gets it. After a crash Forward runs again from
// its start: recorded steps return the same outcomes as before, and execution resumes at the
// first step that is not recorded. Therefore the author's code must be deterministic between
// steps. Take the time from [Now], ids from [NewID] and all other values that differ between
// executions from [Do].
//
// Steps are sequential, except in the functions of a [Gather], and do not nest: later
// executions do not call the functions of recorded steps. So the function of a Do, a tool
// and a hook get a context that makes no steps, and need not be deterministic: there Now
// returns the current time and NewID a random id.
//
// Errors that [run.IsControl] reports mean that this execution must stop; return
// them like any other error.
//
// Nodes run workflows, see package node. Package inprocess runs them in the process
// of the caller, and package flowtest in tests.
//
// Files, the lowest first: flow, registration, fanout, defer, start, engine, step, ask, event, select, gather, loop, hooks, agent, partial,
// typed, notes, session, commit, guide, choose, branches, policy, files, tool.
package flow
