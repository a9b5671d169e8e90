// Package testkit groups the tools of tests: servers, fleets of processes, load,
// benchmarks, and suites for internal interfaces.
package testkit
