package fleet

import (
	"context"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/node"
)

// MaxNodes bounds the fleet of one machine.
const MaxNodes = 26

// Names returns "a", "b" and so on.
func Names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = string(rune('a' + i))
	}
	return names
}

// Host opens the store in this process as the server of a fleet, which executes no runs
// itself. deaths is the value of node.Fleet.Deaths, nil for none. web has
// the options of the pages and of the server, nil for none.
func Host(ctx context.Context, a *app.App, port int, deaths func(incarnation string) string, web *node.Options) (*app.System, error) {
	o := &node.Options{}
	if web != nil {
		o = web
	}
	o.Name, o.Idle, o.NATS.Port, o.Fleet = "server", true, port, node.Fleet{Gossip: node.DevGossip(), Deaths: deaths}
	return a.Host(ctx, o)
}
