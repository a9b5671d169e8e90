package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/engine/toolserver"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// toolbox finds the tools of a node's runs.
type toolbox struct {
	o       *Options
	link    *link
	servers *mcp.List // MCP servers; nil has none
}

// announced returns tools of other processes by their names, for the run of ctx. Their
// descriptions are recorded when the run starts, and do not change with later
// announcements.
func (b *toolbox) announced(ctx context.Context, names []string) ([]tool.Tool, error) {
	info, ok := flow.RunInfo(ctx)
	if !ok {
		return nil, errors.New("node: tools of other processes are for the context of a run")
	}
	specs, err := flow.Do(ctx, "tool look-up", func(ctx context.Context) ([]messages.Tool, error) {
		return b.named(ctx, info.Tenant, names)
	}, tool.ReadOnly)
	if err != nil {
		return nil, err
	}
	all := make([]tool.Tool, len(specs))
	for i, v := range specs {
		all[i] = b.link.conn.ToolOf(info.Tenant, v)
	}
	return all, nil
}

// named reads the registry's entries for tools.
func (b *toolbox) named(ctx context.Context, t session.Tenant, names []string) ([]messages.Tool, error) {
	all, err := b.link.home.tools(ctx, t, names...)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, session.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", session.ErrUnavailable, err)
		}
		return nil, err
	}
	found := make([]messages.Tool, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(all, func(v messages.Tool) bool { return v.Name == name })
		if i < 0 {
			var have []string
			for _, t := range append(tool.Builtins(), b.o.Tools...) {
				have = append(have, t.Spec().Name)
			}
			for _, v := range all {
				have = append(have, v.Name)
			}
			slices.Sort(have)
			return nil, run.CodeNotFound.Err(fmt.Sprintf("agent: there is no tool %q: start the program that announces it, or name one of %s",
				name, clipList(slices.Compact(have), 40)))
		}
		found = append(found, all[i])
	}
	return found, nil
}

// clipList joins names, at most n of them.
func clipList(names []string, n int) string {
	if len(names) > n {
		return strings.Join(names[:n], ", ") + fmt.Sprintf(" and %d more", len(names)-n)
	}
	return strings.Join(names, ", ")
}

// readServers reads the node's list of MCP servers.
func (b *toolbox) readServers() (err error) {
	if b.o.MCPList != "" {
		b.servers, err = mcp.Read(b.o.MCPList)
	}
	return err
}

// server returns the MCP server of a name.
func (b *toolbox) server(name string) (toolserver.Server, error) {
	s, err := b.servers.Lookup(name)
	if err != nil {
		return nil, &tool.Failure{Kind: tool.Unavailable, Detail: name, Message: err.Error(), Err: errors.ErrUnsupported}
	}
	return toolServer{s, b.o.Env}, nil
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
