package node

import (
	"testing"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestWaiting counts the tasks of a tenant that no node has taken.
func TestWaiting(t *testing.T) {
	host, err := Start(t.Context(), &Options{Store: t.TempDir(), Level: "lazy", Port: -1, Idle: true, Name: "host"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	}()
	of := func(tenant session.Tenant) *client.Client {
		c, err := host.ClientOf(tenant)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c, acme := of(session.DefaultTenant), of("acme")
	wait := func(c *client.Client, want uint64) {
		t.Helper()
		if n, err := c.Waiting(t.Context()); err != nil || n != want {
			t.Errorf("%d tasks of %s wait, %v; want %d", n, c.Tenant(), err, want)
		}
	}
	wait(c, 0)
	ids := []run.ID{"one", "two"}
	for _, id := range ids {
		if _, err := c.Submit(t.Context(), "counts", messages.Task{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := acme.Submit(t.Context(), "counts", messages.Task{ID: "theirs"}); err != nil {
		t.Fatal(err)
	}
	wait(c, 2)
	wait(acme, 1)

	o := host.Member()
	o.Store, o.Name, o.Workflows = t.TempDir(), "other", []flow.Registration{counts("add")}
	n, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, id := range ids {
		if r, err := c.Wait(t.Context(), id); err != nil || r.State != run.Succeeded {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if r, err := acme.Wait(t.Context(), "theirs"); err != nil || r.State != run.Succeeded {
		t.Errorf("%+v, %v", r, err)
	}
	wait(c, 0)
	wait(acme, 0)
}
