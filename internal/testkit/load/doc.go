// Package load puts bounded load on a cluster and measures the outcome: throughput,
// latencies, waiting tasks, the CPU time of each process, and rejections.
// `rath cluster bench` and the benchmarks of fleets in package e2e use it.
//
//	r, err := load.Run(ctx, conn, &load.Options{Workflow: "agent", Tasks: 1000, InFlight: 64})
//	if err != nil {
//		return err
//	}
//	fmt.Print(r.Table())
//
// It is an ordinary client: it submits tasks, receives the events and results of
// its runs, and needs no further permissions. Latencies are measured with the clock
// of this process, except for claims, which nodes stamp with their own:
//
//   - submit: from the submission to its acknowledgement;
//   - claim: from the submission until the time, in milliseconds, of the commit
//     with which a node began the run;
//   - first step: from the submission until the run's first model call reaches
//     the model server of this process, if there is one, see [Model];
//   - end: from the submission to the result.
//
// Everything is bounded: tasks, tasks in flight, the time of submitting and the
// time for the last results. If the context ends, the load ends and Run reports
// the results so far.
//
// # The benchmarks of a fleet
//
// Package e2e measures real processes on one machine against their limits, in
// one run: nodes and NATS servers in namespaces of their own, three servers with
// replicas 3 that sync every write, and the model server in the test. It needs
// Linux and root, takes about twelve minutes, prints one table and fails where a
// bar is missed:
//
//	go test -tags=e2e -run '^$' -bench Fleet -benchtime 1x -timeout 30m ./e2e
//
// Its rows, each of which runs alone too:
//
//	-bench Fleet/continuation/kill    20 times kill -9 of one of three nodes at
//	                                  work: when its open runs are claimed and
//	                                  resumed elsewhere, and how long the first
//	                                  read of one of them takes
//	-bench Fleet/continuation/freeze  the same with SIGSTOP
//	-bench Fleet/scaling              1 to 4 nodes of 8 slots that are always
//	                                  full, models of 500 ms: model calls per
//	                                  second, beside the processors' time
//	-bench Fleet/fanout               64 and 256 branches with a model call of
//	                                  50 ms each, on 3 nodes, against 50 ms
//	-bench Fleet/commits              appends of 64 writers to the log against bare
//	                                  publishes of the same bytes by 64 writers to
//	                                  the same streams: 21 short rounds of both in
//	                                  turns, the median of their ratios and their
//	                                  spread, and the CPU time of a commit for the
//	                                  writer; and commits of 64 sessions at work
//	-bench Fleet/dispatch             publish to first model call, idle fleet
//	-bench Fleet/waiting              1,000 runs that wait for an approval: their
//	                                  resources, and when all have resumed after it
//
// -bench-tries sets the tries of the first two, and -keep the directory that
// keeps the logs of all processes. Each node serves pprof at port 6060 of its
// address. The load of the machine is printed beside the figures: if it is above 1,
// they include its other work. Package internal/testkit/bench measures one node
// against the limits of its machine.
package load
