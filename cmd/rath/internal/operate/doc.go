// Package operate has the commands for operators: nodes, tools, dead letters,
// quarantines, budgets, streams, load, and this installation.
package operate
