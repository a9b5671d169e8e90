package node

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// asks waits for an approval and returns its author.
func asks() flow.Registration {
	return flow.Registration{Name: "ask", Description: "Asks.", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			a, err := flow.Approve(ctx, "pay", nil)
			if err != nil {
				return s, err
			}
			return s.With(session.AssistantText(a.By + " says to be " + a.Says)), nil
		})
	}}
}

// TestUserIsProved has two users and one without credentials decide, each in the name
// of somebody else: the record names the user that the server checked, and beside it
// the name that the body claims.
func TestUserIsProved(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	user := func(name string) permission.User {
		return permission.User{Role: permission.RoleClient, Tenant: session.DefaultTenant, Name: name, Secret: "secret-of-" + name}
	}
	srv := natstest.Start(t, &natsserver.Options{Port: -1, Users: []permission.User{user("ana"), user("bob")}})
	member(t, srv, Options{Models: Models{Source: scriptOf(t, "tools.txtar", nil)}, Workflows: []flow.Registration{asks()}})

	for by, o := range map[string]*client.Options{
		"ana": {User: "ana", Password: "secret-of-ana"}, "bob": {User: "bob", Password: "secret-of-bob"}, messages.UserAnonymous: {},
	} {
		o.Dialer = srv.Dial
		c := clientWith(t, o)
		id := run.ID("of-" + by)
		must.Get(c.Submit(ctx, "ask", messages.Task{ID: id, Input: json.RawMessage(`"x"`)}))(t)
		must.Do(t, waiting(ctx, c, id))
		if err := c.Questions.Approve(ctx, id, messages.Control{By: "chief-executive"}); err != nil {
			t.Fatalf("%s: %v", by, err)
		}
		r, err := c.Wait(ctx, id)
		if err != nil || r.Output != by+" says to be chief-executive" {
			t.Errorf("%s: the workflow is told %q, %v", by, r.Output, err)
		}
		answered := 0
		for _, rec := range records(t, c, string(r.Session), 1) {
			if rec.Kind != messages.KindAnswered {
				continue
			}
			answered++
			if rec.By != by || rec.Says != "chief-executive" || !strings.HasPrefix(rec.Summary, "approved by "+by+" (says to be chief-executive)") {
				t.Errorf("%s: the record is by %q, says %q: %s", by, rec.By, rec.Says, rec.Summary)
			}
		}
		if answered != 1 {
			t.Errorf("%s: %d answers in the lineage", by, answered)
		}
	}

	// The server rejects the subject of another user, also from a client that asks for
	// it.
	refused := make(chan error, 1)
	nc := must.Get(nats.Connect(srv.URL(), nats.UserInfo("ana", "secret-of-ana"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		refused <- err
	})))(t)
	defer nc.Close()
	for _, subject := range []string{
		messages.ControlSubject(session.DefaultTenant, "bob", "of-bob", messages.VerbCancel),
		messages.ControlSubject(session.DefaultTenant, messages.UserOperator, "of-bob", messages.VerbCancel),
		messages.SessionMessageSubject(session.Key{Tenant: session.DefaultTenant, ID: "s"}, "bob"),
		messages.LetterSubject(session.DefaultTenant, "bob", 1, messages.VerbDrop),
		"rath.ctl.default.of-bob.cancel",
	} {
		must.Do(t, nc.Publish(subject, nil))
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
				t.Errorf("%s: %v", subject, err)
			}
		case <-time.After(soon):
			t.Errorf("%s was allowed", subject)
		}
	}
	as := clientWith(t, &client.Options{Dialer: srv.Dial, User: "ana", Password: "secret-of-ana", As: "bob"})
	if err := as.Runs.Cancel(ctx, "of-bob", messages.Control{}); !errors.Is(err, client.ErrDenied) {
		t.Errorf("ana cancels as bob: %v", err)
	}
}

// waiting returns once a run asks.
func waiting(ctx context.Context, c *client.Client, id run.ID) error {
	for {
		qs, err := c.Questions.List(ctx)
		if err != nil || slices.ContainsFunc(qs, func(q client.Question) bool { return q.Run == id }) {
			return err
		}
	}
}

// TestUserOfOperator has a client with the node's rights act as the operator, and one
// with an invalid name rejected with a remedy.
func TestUserOfOperator(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	n := member(t, srv, Options{Models: Models{Source: scriptOf(t, "tools.txtar", nil)}, Workflows: []flow.Registration{asks()}})
	c := must.Get(n.Client(ctx))(t)
	defer c.Close()
	must.Get(c.Submit(ctx, "ask", messages.Task{ID: "r", Input: json.RawMessage(`"x"`)}))(t)
	must.Do(t, waiting(ctx, c, "r"))
	must.Do(t, c.Questions.Approve(ctx, "r", messages.Control{}))
	if r, err := c.Wait(ctx, "r"); err != nil || r.Output != "operator says to be " {
		t.Errorf("%q, %v", r.Output, err)
	}
	for _, as := range []string{"ana@example.com", "session"} {
		o := clientWith(t, &client.Options{Dialer: srv.Dial, As: as})
		if err := o.Runs.Cancel(ctx, "r", messages.Control{}); err == nil || errors.Is(err, client.ErrDenied) {
			t.Errorf("as %s: %v", as, err)
		}
	}
}
