// Package fleet starts the nodes of a fleet of this machine, which are processes of
// their own, and is such a node.
//
// Files, the lowest first: member_command, host, member, fleet.
package fleet
