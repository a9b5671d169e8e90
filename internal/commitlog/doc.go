// Package commitlog is the log of a session: commits of events, one writer at a time,
// each commit naming the hash of the one before. Package session has the events and
// the value that they fold to; this package has how they are kept, which programs
// outside of this module need not know.
//
// A [Log] keeps commits, a [Snapshotter] states that shorten their reading; [Memory] is
// both, in memory. internal/sessiontest is the suite that every log passes.
package commitlog
