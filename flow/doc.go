// Package flow is what the author of an agent workflow writes against.
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
// One law tells what is recorded: what takes a context may be journaled, what
// takes none is pure. Each journaled call is a step: a model call, a tool
// call, a fork, a join, [Do]. Its outcome is durable in the session's log
// before Forward sees it. After a crash Forward runs again from its start;
// recorded steps return what they returned before, and execution goes on at
// the first step that is not recorded. That asks one thing of the author:
// between steps the code must be deterministic. Take the time from [Now], ids
// from [NewID] and everything else that differs between executions from [Do].
//
// Steps follow one another and do not lie in each other: later executions do not
// call the functions of steps that are recorded. So the function of a Do, a tool
// and a hook get a context that makes no steps, and may do what they like: there
// Now is the clock and NewID draws at random.
//
// Errors that [run.IsControl] reports mean that this execution must stop; return
// them like any other error.
//
// Nodes run workflows, see package node. Package inprocess runs them in the process
// of the caller, and package flowtest in tests.
//
// Files, the lowest first: flow, registration, fanout, engine, step, ask, hooks, agent, partial,
// typed, notes, session, commit, guide, choose, branches, policy, files, tool.
package flow
