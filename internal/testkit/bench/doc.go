// Package bench measures one machine's node against the limits of what it is
// built on, in the same run:
//
//	go test -run '^$' -bench . ./internal/testkit/bench
//
// Every figure stands beside its limit: turns of an agent beside a bare program
// that publishes the same bytes to the same streams, a fan of slow model calls
// beside their ideal. It holds no code of its own. Package internal/testkit/load tells how
// a fleet of processes is measured.
package bench
