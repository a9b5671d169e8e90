// Package canonical reads and writes JSON in the canonical form of logs: no white
// space, keys sorted, integers only, each character escaped in one way.
package canonical
