// Command rath is the command line of Rath: it shows what the system does
// (demo), runs a node on this machine (dev), runs and submits tasks, follows
// them, answers where a line of a file comes from, and verifies the evidence of
// a run without a server.
//
// Data goes to standard output, everything else to standard error. On a
// terminal some commands redraw their last line; in a pipe all of them write
// plain lines. `rath help exit-codes` lists what the exit codes mean.
package main

import (
	"os"

	"github.com/rathcluster/rath/sandbox/local"
)

func main() {
	local.Reexec() // before anything else: sandboxes start this binary again
	os.Exit(execute(os.Args, os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}
