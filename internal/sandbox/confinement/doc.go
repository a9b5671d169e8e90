// Package confinement is the process that runs the commands of a sandbox on Linux: the
// program that opened the sandbox, started again under another name. It confines a command
// with Landlock and seccomp, waits for it, makes the calls that the command may not make
// itself, holds it to its limits, and kills what it left.
//
// A program that imports this package is such a process if it was started under [Name], and
// then gets no further than the initialisation of this package. So this package, and what it
// imports, stays small: no net, no regexp, no path/filepath, all of which are initialised
// late. What opens sandboxes is package local.
package confinement

// MaxTasks is how many processes and threads a command may have where its sandbox names no
// limit.
const MaxTasks = 2048
