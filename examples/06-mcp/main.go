// Command 06-mcp gives an agent the tools of an MCP server, which is this program again.
//
//	go run ./examples/06-mcp
//
// The workflow is in parrot/parrot.go. The model is a script, parrot/model.txtar,
// so it runs without a key and always gives the same output.
package main

import (
	"github.com/rathcluster/rath/examples/06-mcp/parrot"
	"github.com/rathcluster/rath/examples/ladder"
)

func main() { ladder.Main(parrot.Rung()) }
