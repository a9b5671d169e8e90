package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// announced returns tools of other processes by their names, for the run of ctx. Their
// descriptions are recorded when the run starts, and do not change with later
// announcements.
func (n *Instance) announced(ctx context.Context, names []string) ([]tool.Tool, error) {
	info, ok := flow.RunInfo(ctx)
	if !ok {
		return nil, errors.New("node: tools of other processes are for the context of a run")
	}
	specs, err := flow.Do(ctx, "tool look-up", func(ctx context.Context) ([]messages.Tool, error) {
		return n.toolsNamed(ctx, info.Tenant, names)
	}, tool.ReadOnly)
	if err != nil {
		return nil, err
	}
	all := make([]tool.Tool, len(specs))
	for i, v := range specs {
		all[i] = n.conn.ToolOf(info.Tenant, v)
	}
	return all, nil
}

// toolsNamed reads the registry's entries for tools.
func (n *Instance) toolsNamed(ctx context.Context, t session.Tenant, names []string) ([]messages.Tool, error) {
	all, err := n.home.tools(ctx, t, names...)
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
			for _, t := range append(tool.Builtins(), n.o.Tools...) {
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
