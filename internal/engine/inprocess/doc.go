// Package inprocess runs workflows in one process without a node: a [Driver] carries out the
// effects of commits, as relays and nodes do in a fleet, and a [Runtime] runs one workflow to
// its end in the goroutine of its caller.
//
// Files, the lowest first: turns, tree, started, attempt, answer, driver, runtime.
package inprocess
