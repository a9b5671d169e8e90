// Package e2e tests Rath with real processes: it kills them, cuts their power
// and talks to them from other languages. The tests are behind the build tag
// e2e, because they need Linux and root, and Debian's packages for the rest:
//
//	go test -tags=e2e ./e2e/...
//
// Nothing here skips: what is missing fails the test and says what to install.
// Tests that wait more than they compute run beside each other, after the others; what
// needs the address of the documents' programs, or counts its requests under load, is
// not among them.
//
// # Fleets
//
// The tests in fleet_*_test.go start whole fleets, with package
// internal/testkit/fleet: NATS servers, nodes and routers, each in a network of its
// own. A load generator submits tasks, answers questions, cancels and reads,
// and writes down what it was told; tools, the model server and the logs of
// the system are compared with that by internal/evidence/audit and porcupine.
//
// TestNemesis does everything to a fleet that can go wrong, in an order that a
// seed decides. A failure prints its seed and the command that repeats it; the
// faults come in the same order then, at nearly the same times.
//
//	go test -tags=e2e -count=1 -run '^TestNemesis$' ./e2e                  # 3 seeds of a minute each
//	go test -tags=e2e -count=1 -run '^TestNemesis$' ./e2e -seed 4711 -keep /tmp/kept
//	go test -tags=e2e -count=1 -timeout=2h -run '^TestNemesis$' ./e2e -seeds 20 -length 3m
//
// The last one is the long one: twenty seeds of three minutes each.
//
// What the clients ask for is the same at each seed: tasks of every kind, with
// budgets, deadlines and times before which they shall not begin, on sessions of
// their own, shared ones and earlier versions; messages to runs and to sessions,
// interrupts, cancels, quarantine and release, new budgets, approvals, changes,
// rejections and responses, the same task again and another one under its id.
// Everything that was acknowledged is looked for afterwards: in the sessions, the logs,
// the witnesses of the tools or among the dead letters. A seed of three minutes
// fails if one of them did not happen.
//
// TestRollingRestart and TestRollingUpgrade take no refusal from the fleet but
// what follows from answers that the client has got: the run had ended, the
// question was decided. While it knows no more than that the task was submitted it
// asks again until the run has begun. They print how many requests of each kind were
// done, asked again and refused, and why.
//
// One of the faults moves nodes and routers to a build of another version, or back, and
// TestRollingUpgrade does nothing else. With -off a protection of internal/core/protection is left out, and the seed
// fails if no check notices:
//
//	go test -tags=e2e -count=1 -v -run '^TestNemesis$' ./e2e -off append_cas -seeds 1 -length 60s
//
// In the kept directory, history.jsonl is what the clients did and were told,
// with the faults between, dump.jsonl the streams as `rath cluster audit` reads them,
// and each process has its log.
package e2e
