package node

import (
	"context"
	"errors"

	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/engine/toolserver"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/tool"
)

// readServers reads the node's list of MCP servers.
func (n *Instance) readServers() (err error) {
	if n.o.MCPList != "" {
		n.servers, err = mcp.Read(n.o.MCPList)
	}
	return err
}

// toolServer returns the MCP server of a name.
func (n *Instance) toolServer(name string) (toolserver.Server, error) {
	s, err := n.servers.Lookup(name)
	if err != nil {
		return nil, &tool.Failure{Kind: tool.Unavailable, Detail: name, Message: err.Error(), Err: errors.ErrUnsupported}
	}
	return toolServer{s, n.o.Env}, nil
}

type toolServer struct {
	s   *mcp.Server
	env func(string) string
}

func (t toolServer) Sandboxed() bool { return t.s.Where == mcp.InSandbox }

func (t toolServer) Connect(ctx context.Context, box sandbox.Sandbox) (toolserver.Conn, error) {
	c, err := t.s.Connect(ctx, t.env, box)
	if err != nil {
		return nil, err
	}
	return c, nil
}
