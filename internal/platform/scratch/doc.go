// Package scratch places the temporary directories of tests in memory. Stores and sandboxes
// of tests create and remove hundreds of thousands of small files, and sync most of them.
// On a disk, that takes several times the CPU time of the rest of a package, and the
// duration of a sync depends on other work of the machine.
//
// A test cannot detect whether a sync reached a disk, so coverage is the same; tests that
// cut the power have disks of their own (package e2e). If TMPDIR is set, all files are on
// the file system that it names.
package scratch
