// Package load puts bounded load on a cluster and measures what becomes of it:
// throughput, latencies, how many tasks wait, the processors' time of each
// process, refusals. `rath bench` and the benchmarks of fleets in package e2e
// are written on it.
//
//	r, err := load.Run(ctx, conn, &load.Options{Workflow: "agent", Tasks: 1000, InFlight: 64})
//	if err != nil {
//		return err
//	}
//	fmt.Print(r.Table())
//
// It is a client like any other: it submits tasks, hears the events and the
// results of its runs, and needs no rights beyond that. Latencies are measured
// on the clock of this process alone:
//
//   - submit: from the submission to its acknowledgement;
//   - claim: from the submission until this client hears that a node has begun
//     the run, which is told after it is durable;
//   - first step: from the submission until the run's first model call reaches
//     the model server of this process, where there is one, see [Model];
//   - end: from the submission to the result.
//
// Everything is bounded: tasks, tasks in flight, the time of submitting and the
// time for the last results. An ended context ends the load, and Run reports
// what there is.
//
// # The benchmarks of a fleet
//
// Package e2e measures real processes on one machine against their limits, in
// one run: nodes and NATS servers in namespaces of their own, and the model
// server in the test. It needs Linux and root, prints one table and fails where
// a bar is missed:
//
//	go test -tags=e2e -count=1 -timeout=30m -run TestFleetBench -bench-fleet ./e2e
//
// Single rows:
//
//	-run 'TestFleetBench/continuation/kill'    kill -9 of a node, 20 times
//	-run 'TestFleetBench/continuation/freeze'  SIGSTOP of a node, 20 times
//	-run 'TestFleetBench/scaling'              1 to 4 nodes with full slots
//	-run 'TestFleetBench/fanout'               64 and 256 branches on 3 nodes
//	-run 'TestFleetBench/commits'              64 sessions against bare JetStream
//	-run 'TestFleetBench/dispatch'             publish to first step, idle
//	-run 'TestFleetBench/waiting'              1,000 runs that wait
//
// -bench-tries sets the tries of the first two, -keep the directory where the
// logs of all processes stay. What one node does against the limits of its
// machine is measured by package internal/bench.
package load
