// Command 04-builtin-tools lets an agent work on files with the tools that every node has.
//
//	go run ./examples/04-builtin-tools
//
// The workflow is in builtin/builtin.go. The model is a script, builtin/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/04-builtin-tools/builtin"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(builtin.Rung()) }
