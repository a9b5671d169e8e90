// Package fleet starts the nodes of a fleet of this machine, which are processes of
// their own, and is such a node.
package fleet
