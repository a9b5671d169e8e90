// Package parrot is the sixth example of the ladder: an agent with the tools of an MCP server.
package parrot

import (
	"context"
	_ "embed"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
)

//go:embed model.txtar
var script []byte

// name is the name of the server in the list, and of the workflow.
const name = "parrot"

// Rung is the example. A node, or an inprocess.Runner, has a list of servers:
//
//	servers:
//	  parrot:
//	    where: host
//	    command: ["./06-mcp", serve, parrot]
func Rung() ladder.Rung {
	return ladder.Rung{
		Dir: "06-mcp", Name: name, Does: "Lets an MCP server repeat a text.",
		New: newCaller, Input: "Have the server repeat: good morning", Script: script,
		Server: serveParrot,
	}
}

// newCaller names a server of the list, no command and no address. The tools that the server
// offers are recorded before the first model call, and are named SERVER__TOOL.
func newCaller(s flow.Info) (flow.Workflow, error) {
	return ladder.Prompted(s, &flow.Agent{
		Name: "caller", Prompt: "You are the caller.",
		Provider: llm.Provider{Model: s.Model}, MCP: []string{name},
	})
}

type text struct {
	Text string `json:"text" jsonschema:"what to repeat"`
}

// serveParrot is the server; any other program may be one. Its annotations of a tool are
// hints: a call of a read-only tool may be repeated after a crash. An interrupted call of
// any other tool waits for an operator.
func serveParrot(ctx context.Context) error {
	s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{
		Name: "repeat", Description: "Repeats a text.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}, func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	return s.Run(ctx, &mcp.StdioTransport{})
}
