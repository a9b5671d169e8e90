package api

import (
	"testing"

	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestWorkflowsUnanswered: a query for the workflows asks again if the registry does not
// answer for the time of one request.
func TestWorkflowsUnanswered(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		must.Do(t, c.Dispatch.Registry.Register(t.Context(), dispatch.DefaultPool, []messages.Workflow{{Name: "w", Revision: "1"}}))
		hook, fired := natstest.Once("GET.KV_REGISTRY", natstest.Replace("GET.KV_REGISTRY", "GET.KV_REGISTER"))
		w.Set(nil, hook)
		all, err := answerer{c: c}.workflows(t.Context(), session.DefaultTenant, wire.Query{})
		if ws, _ := all.(wire.Workflows); !fired() || err != nil || len(ws.Workflows) != 1 {
			t.Errorf("the registry was asked: %v; %+v, %v", fired(), all, err)
		}
	})
}
