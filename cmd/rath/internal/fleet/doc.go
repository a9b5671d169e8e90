// Package fleet starts the nodes of a fleet on this machine, each a process of its own,
// and runs such a node.
//
// Files, the lowest first: member_command, host, member, fleet.
package fleet
