package mcp_test

import (
	"fmt"

	"github.com/rathcluster/rath/internal/agents/mcp"
)

func ExampleParse() {
	l, err := mcp.Parse("mcp.yaml", []byte(`
servers:
  files: {command: [mcp-server-filesystem, .], state: workspace}
  search: {url: "https://mcp.example.com/mcp", token: "env:SEARCH_TOKEN"}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range l.All() {
		fmt.Println(s.Name, s.Where+s.URL)
	}
	_, err = l.Lookup("file")
	fmt.Println(err)
	// Output:
	// files sandbox
	// search https://mcp.example.com/mcp
	// there is no MCP server "file" in the list mcp.yaml; name one of files, search
}
