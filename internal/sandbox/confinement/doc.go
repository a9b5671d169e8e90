// Package confinement runs the commands of a sandbox on Linux, in a supervisor: the program
// that opened the sandbox, started again under another name. The supervisor confines a
// command with Landlock and seccomp, waits for it, makes the calls that the command may not
// make itself, enforces its limits, and kills its remaining processes.
//
// A program that imports this package becomes a supervisor if it was started under [Name],
// and then does not get past the initialization of this package. So this package and its
// imports stay small: no net, no regexp, no path/filepath, all of which are initialized
// late. Package local opens sandboxes.
package confinement

// MaxTasks is the maximum number of processes and threads of a command whose sandbox has no
// limit.
const MaxTasks = 2048
