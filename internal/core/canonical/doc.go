// Package canonical reads and writes JSON in the one form that logs hold: no white
// space, keys sorted, integers only, each character escaped in one way.
package canonical
