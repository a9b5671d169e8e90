package api

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestNewerEntryStays writes to the registry concurrently with another process: a retry of
// the overtaken writer does not undo a later, acknowledged entry. Either the server's
// acknowledgement is lost, or the writer freezes before it sends.
func TestNewerEntryStays(t *testing.T) {
	const tenant = session.DefaultTenant
	announce := func(ctx context.Context, c *Conn, description string) error {
		data, err := messages.Encode(messages.Tool{Name: "weather", Description: description})
		if err == nil {
			err = c.controls.controlTool(ctx, tenant, "weather", messages.VerbToolAnnounce, data)
		}
		return err
	}
	withdraw := func(ctx context.Context, c *Conn) error {
		return c.controls.controlTool(ctx, tenant, "weather", messages.VerbToolWithdraw, nil)
	}
	register := func(ctx context.Context, c *Conn, revision string) error {
		return c.Dispatch.Registry.Register(ctx, "gpu", []messages.Workflow{{Name: "w", Revision: revision}})
	}
	for _, tt := range []struct {
		name               string
		before, mine, then func(ctx context.Context, c *Conn) error
		tool, workflow     string // on offer in the end
	}{
		{
			name: "two announce",
			mine: func(ctx context.Context, c *Conn) error { return announce(ctx, c, "mine") },
			then: func(ctx context.Context, c *Conn) error { return announce(ctx, c, "newer") },
			tool: "newer",
		},
		{
			name:   "one withdraws, one announces",
			before: func(ctx context.Context, c *Conn) error { return announce(ctx, c, "old") },
			mine:   withdraw,
			then:   func(ctx context.Context, c *Conn) error { return announce(ctx, c, "newer") },
			tool:   "newer",
		},
		{
			name:     "two register",
			before:   func(ctx context.Context, c *Conn) error { return register(ctx, c, "1") },
			mine:     func(ctx context.Context, c *Conn) error { return register(ctx, c, "2") },
			then:     func(ctx context.Context, c *Conn) error { return register(ctx, c, "3") },
			workflow: "3",
		},
	} {
		for _, lost := range []bool{true, false} {
			t.Run(tt.name+map[bool]string{true: ", lost", false: ", late"}[lost], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o, w := streamstest.NodeOptions(natstest.Start(t, nil)), &natstest.Wire{}
					newer := layer.Dial(t, o)
					must.Do(t, newer.Streams.Provision(t.Context()))
					if tt.before != nil {
						must.Do(t, tt.before(t.Context(), newer))
					}
					mine := layer.DialThrough(t, w, o)
					meanwhile := func([]byte) bool {
						must.Report(t, tt.then(t.Context(), newer))
						return !lost
					}
					var fired func() bool
					if lost {
						hook, did := natstest.Once(`"stream":"KV_REGISTRY"`, meanwhile)
						w.Set(hook, nil)
						fired = did
					} else {
						hook, did := natstest.Once("PUB $KV.REGISTRY.", meanwhile)
						w.Set(nil, hook)
						fired = did
					}
					must.Report(t, tt.mine(t.Context(), mine))
					w.Set(nil, nil)
					if !fired() {
						t.Fatal("nobody was overtaken")
					}
					tools := must.Get(newer.Tools(t.Context(), tenant))(t)
					workflows := must.Get(newer.Dispatch.Registry.Workflows(t.Context()))(t)
					tool, workflow := "", ""
					for _, v := range tools {
						tool += v.Description
					}
					for _, v := range workflows {
						workflow += v.Revision
					}
					if tool != tt.tool || workflow != tt.workflow {
						t.Errorf("on offer are the tool %q and revision %q of the workflow, want %q and %q", tool, workflow, tt.tool, tt.workflow)
					}
				})
			})
		}
	}
}

// TestAnnouncedAgain announces a tool that is withdrawn at the same moment: a program that
// replaces another one is there in the end.
func TestAnnouncedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, w := streamstest.NodeOptions(natstest.Start(t, nil)), &natstest.Wire{}
		old := layer.Dial(t, o)
		must.Do(t, old.Streams.Provision(t.Context()))
		data := json.RawMessage(`{"name":"weather","description":"Weather."}`)
		must.Do(t, old.controls.controlTool(t.Context(), session.DefaultTenant, "weather", messages.VerbToolAnnounce, data))
		next := layer.DialThrough(t, w, o)
		hook, fired := natstest.Once("PUB $KV.REGISTRY.", func([]byte) bool {
			must.Report(t, old.controls.controlTool(t.Context(), session.DefaultTenant, "weather", messages.VerbToolWithdraw, nil))
			return true
		})
		w.Set(nil, hook)
		data = json.RawMessage(`{"name":"weather","description":"Better weather."}`)
		must.Do(t, next.controls.controlTool(t.Context(), session.DefaultTenant, "weather", messages.VerbToolAnnounce, data))
		all, err := next.Tools(t.Context(), session.DefaultTenant)
		if err != nil || len(all) != 1 || all[0].Description != "Better weather." || !fired() {
			t.Errorf("on offer: %+v, %v (overtaken: %v)", all, err, fired())
		}
	})
}

// TestLaggingReplica lists the offers while the answering replica lacks one, or has an
// earlier version of it. Named offers have their last stored version.
func TestLaggingReplica(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		data := json.RawMessage(`{"name":"weather","description":"Better weather."}`)
		must.Do(t, c.controls.controlTool(t.Context(), session.DefaultTenant, "weather", messages.VerbToolAnnounce, data))
		must.Do(t, c.Dispatch.Registry.Register(t.Context(), "gpu", []messages.Workflow{{Name: "w", Revision: "1"}}))
		tool := func(what string) {
			t.Helper()
			all, err := c.Tools(t.Context(), session.DefaultTenant, "weather", "nothing", "*")
			if err != nil || len(all) != 1 || all[0].Description != "Better weather." {
				t.Errorf("the replica %s: %+v, %v", what, all, err)
			}
		}
		hook, fired := natstest.Once(`REGISTRY.tool.default.*`, natstest.Replace(`REGISTRY.tool`, `REGISTRY.fool`))
		w.Set(nil, hook)
		tool("does not have the tool")
		late, alsoFired := natstest.Once("Better weather.", natstest.Replace("Better weather.", "Older weather. "))
		w.Set(late, nil)
		tool("has an older tool")
		last, firedLast := natstest.Once(`REGISTRY.workflow.\u003e`, natstest.Replace(`workflow.`, `workfloo.`))
		w.Set(nil, last)
		all, err := c.Dispatch.Registry.Workflows(t.Context(), "w", "nothing", "*")
		if err != nil || len(all) != 1 || all[0].Pool != "gpu" {
			t.Errorf("the replica does not have the workflow: %+v, %v", all, err)
		}
		if !fired() || !alsoFired() || !firedLast() {
			t.Errorf("the replica was asked: %v, %v, %v", fired(), alsoFired(), firedLast())
		}
	})
}
