// Package bench measures the node of one machine against the limits of its
// foundations, in the same run:
//
//	go test -run '^$' -bench . ./internal/testkit/bench
//
// Every figure has its limit beside it: turns of an agent beside a bare program
// that publishes the same bytes to the same streams, a fan of slow model calls
// beside their ideal. The package has no code of its own. Package internal/testkit/load
// describes the measurement of a fleet of processes.
package bench
