// Command 03-sandbox sends a session to sandboxes with and without files.
//
//	go run ./examples/03-sandbox
//
// The workflow is in sandboxes/sandboxes.go. The model is a script, sandboxes/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/03-sandbox/sandboxes"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(sandboxes.Rung()) }
