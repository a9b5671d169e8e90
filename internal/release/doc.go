// Package release tells this release from the one after it, as far as the two
// meet in one fleet while it is upgraded node by node, or taken back.
//
// The one after it does not exist yet. The build tag next makes a program that
// is like it in everything that a release may change without asking the others:
// it numbers its snapshots and checkpoints higher and names what is in them
// otherwise, speaks a newer protocol to nodes, and writes an optional field more
// into each event, record, message and description of itself that readers must
// skip fields in, and events of a namespace that they must skip as a whole.
// messages/FORMAT.md says where that is; where it says that a reader is strict
// (what clients send), nothing is added. Such a program is for tests of fleets
// with both kinds of nodes.
package release
