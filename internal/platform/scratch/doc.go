// Package scratch has the temporary directories of tests lie in memory. Stores and
// sandboxes of tests make and remove hundreds of thousands of small files, and sync most of
// them: on a disk that takes several times the processor's time of all else in a package,
// and how long a sync takes depends on what else the machine does.
//
// A test cannot tell a sync from none, so nothing is shown less; those that cut the power
// have disks of their own (package e2e). With TMPDIR set, everything is on the file system
// that it names.
package scratch
