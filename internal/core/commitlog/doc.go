// Package commitlog is the log of a session: commits of events, one writer at a time,
// each commit naming the hash of the one before. Package session defines the events and
// the value that they fold to. This package defines their storage, and the events that
// change no content of a session: of branches that were not joined, and of archives.
// Programs outside of this module need neither.
//
// A [Log] keeps commits, a [Snapshotter] states that shorten their reading; [Memory] is
// both, in memory. internal/testkit/sessiontest is the suite that every log passes.
package commitlog
