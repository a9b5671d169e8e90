package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/internal/engine/toolserver"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// ToolServer implements [toolserver.Host].
func (u *toolServerUse) ToolServer(name string) (toolserver.Server, error) {
	rt := u.ex.rt
	if rt.Servers == nil {
		return nil, &tool.Failure{Kind: tool.Unavailable, Detail: name, Message: fmt.Sprintf("there is no MCP server %q: this process has no list of servers", name)}
	}
	return rt.Servers(name)
}

// ShareSandbox implements [toolserver.Host].
func (u *toolServerUse) ShareSandbox(k session.Key) {
	u.ex.boxes.lease(k).Shared(u.ex.boxes.owner())
}

// Warn implements [toolserver.Host].
func (u *toolServerUse) Warn(ctx context.Context, text string) { u.ex.log.warn(ctx, text) }

// equip executes the step that finds the tools of an agent's servers. Each later
// execution has the recorded tools.
func (a *agent) equip(ctx context.Context, s session.Session) (session.Session, []tool.Tool, error) {
	if len(a.MCP) == 0 {
		return s, nil, nil
	}
	o, err := openStep(ctx, a.p, journal.StepRequest{Kind: journal.StepDo, Name: "mcp " + strings.Join(a.MCP, ", ")}, s)
	if err != nil {
		return s, nil, err
	}
	defer o.release()
	ex, own, made := o.ex, o.s, o.made
	defer o.inside(&made)()
	made.Effect, made.Input = tool.ReadOnly.String(), ex.sessions.inputDigest(own, a.MCP)
	st, err := ex.substep(ctx, own.Key(), own, made)
	if err != nil {
		return own, nil, ex.failed(err)
	}
	st.fly(live.Works, "")
	defer st.flight.End()
	var all toolserver.Found
	err = st.make(func() error { return st.decode(&all) }, func() (d journal.StepCompleted, err error) {
		n := 0
		open := func(ctx context.Context) (sandbox.Sandbox, error) {
			if o.boxErr != nil {
				return nil, o.boxErr
			}
			return ex.boxes.lease(own.Key()).At(ctx, ex.boxes.owner(), own.Key(), own.Placement(), false)
		}
		for _, name := range a.MCP {
			one, err := ex.servers.Discover(st.context(ctx), own, name, open)
			if err != nil {
				return d, came(err)
			}
			all, n = append(all, one), n+len(one.Tools)
		}
		value, err := json.Marshal(all)
		d.Value, d.Summary = string(value), "finds "+excerpt.Counted(n, "tool")
		return d, err
	})
	if err != nil {
		return own, nil, err
	}
	return st.after, all.Tools(&ex.servers), nil
}
