// Package actors hosts the sessions and the runs of one process.
//
// Each session that is in use has an actor: the one writer of its log in this process.
// The actor folds the log, lets a state machine turn requests into commits,
// makes one commit at a time durable and only then answers. Requests that wait
// meanwhile share the next commit. A session that is not used is passivated: its actor
// ends and costs nothing until the next request.
//
// Each run that executes here has a workflow actor. It has no state of its own: the
// logs of the run's sessions hold the state, and an interrupted run resumes wherever
// its task is accepted next.
//
//	sys := actors.New(&actors.Options{Log: log, Runtime: rt, Workflows: offered})
//	go sys.Run(ctx)                     // drains when ctx ends
//	answer, err := sys.Accept(ctx, task) // a log holds the task now
//
// The log decides which writer may append, by compare-and-set. An actor that lost its
// session gets a conflict from the log and ends, together with its run. Between
// processes a task or a signal goes to the incarnation that wrote the session last,
// through Options.Deliver, because appending to a log that another process holds would
// end that process's run.
//
// The package uses no network: its tests run several systems over one log in memory.
//
// Files, the lowest first: options, mailbox, slots, system, feed, session,
// passivate, supervisor, store, deliver, workflow, accept, suspects, drain.
package actors
