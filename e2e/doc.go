// Package e2e tests Rath with real processes: it kills them, cuts their power
// and talks to them from other languages. The tests are behind the build tag
// e2e, because they need Linux and root, and Debian's packages for the rest:
//
//	go test -tags=e2e ./e2e/...
//
// No test skips: a missing program fails the test with an error that names it.
// Tests that wait more than they compute run in parallel, after the others, except
// tests that need the address of the documents' programs or count requests under load.
//
// # Fleets
//
// The tests in fleet_*_test.go start whole fleets, with package
// internal/testkit/fleet: NATS servers, nodes and routers, each in a network of its
// own. A load generator submits tasks, answers questions, cancels and reads, and
// records the responses. internal/evidence/audit and porcupine compare them with the
// records of tools and the model server and with the logs of the system.
//
// TestNemesis injects every kind of fault into a fleet, in an order that a seed
// determines. A failure prints its seed and the command that repeats it; the faults
// then occur in the same order, at nearly the same times.
//
//	go test -tags=e2e -count=1 -run '^TestNemesis$' ./e2e                  # 3 seeds of a minute each
//	go test -tags=e2e -count=1 -run '^TestNemesis$' ./e2e -seed 4711 -keep /tmp/kept
//	go test -tags=e2e -count=1 -timeout=2h -run '^TestNemesis$' ./e2e -seeds 20 -length 3m
//
// The last one is the long one: twenty seeds of three minutes each.
//
// The clients' requests are the same for each seed: tasks of every kind, with
// budgets, deadlines and start times, on new sessions, shared ones and earlier
// versions; messages to runs and to sessions, interrupts, cancels, quarantine and
// release, new budgets, approvals, changes, rejections and responses, the same task
// again and another one under its id. Afterwards, the test looks for everything that
// was acknowledged: in the sessions, the logs, the witnesses of the tools or among the
// dead letters. A seed of three minutes fails if one of these requests did not happen.
//
// TestRollingRestart and TestRollingUpgrade accept a rejection only if it follows from
// the answers that the client has received: the run had ended, the question was
// decided. While the client knows only that the task was submitted, it retries until
// the run has begun. The tests print the numbers of requests of each kind that
// succeeded, were retried and were rejected, with the reasons.
//
// One of the faults moves nodes and routers to a build of another version, or back;
// TestRollingUpgrade injects only that fault. With -off, the fleet lacks a protection
// of internal/core/protection, and the seed fails if no check detects it:
//
//	go test -tags=e2e -count=1 -v -run '^TestNemesis$' ./e2e -off append_cas -seeds 1 -length 60s
//
// In the kept directory, history.jsonl has the clients' requests and responses and the
// faults between them, dump.jsonl the streams in the form that `rath cluster audit`
// reads, and each process has its log.
package e2e
