package node

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestReplyIsNoRequest has a user with the role submit name a forbidden subject, the
// approval of another user, as the reply subject of each request that it may make. If
// the server or a node published an answer there, it would be one in that user's name.
func TestReplyIsNoRequest(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	user := func(r permission.Role, name string) permission.User {
		return permission.User{Role: r, Tenant: session.DefaultTenant, Name: name, Secret: "secret"}
	}
	srv := natstest.Start(t, &natsserver.Options{Port: -1, Users: []permission.User{user(permission.RoleSubmit, "ana"), user(permission.RoleApprove, "bob")}})
	member(t, srv, Options{Models: Models{Source: scriptOf(t, "tools.txtar", nil)}})
	operator, secret := srv.Node()
	nodes := must.Get(nats.Connect(srv.URL(), nats.UserInfo(operator, secret)))(t)
	defer nodes.Close()
	seen := must.Get(nodes.SubscribeSync(messages.ControlPrefix + ">"))(t)
	must.Do(t, nodes.Flush())

	ana := logIn(t, srv.URL(), nats.UserInfo("ana", "secret"))
	approval := messages.ControlSubject(session.DefaultTenant, "bob", "r1", messages.VerbApprove)
	cancelling := messages.ControlSubject(session.DefaultTenant, "ana", "r1", messages.VerbCancel)
	unheard := messages.QuerySubject(session.DefaultTenant, "unheard-of")
	requests := []string{
		messages.QuerySubject(session.DefaultTenant, messages.QueryRuns), messages.QuerySubject(session.DefaultTenant, messages.QueryBlob),
		unheard, messages.TaskSubject(session.DefaultTenant, "ana", "agent"),
		permission.SubjectUserInfo, cancelling,
	}
	for _, subject := range requests {
		for _, h := range []nats.Header{nil, {"Nats-Expected-Stream": {"x"}}} {
			must.Do(t, ana.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: approval, Header: h, Data: []byte("{}")}))
			// The same with an inbox of its own is answered afterwards, or about then.
			if subject != cancelling && subject != unheard && !ana.asks(t, subject) {
				t.Errorf("%s is refused", subject)
			}
		}
	}
	// ana's last request is seen after all effects of the others.
	last := messages.ControlSubject(session.DefaultTenant, "ana", "last", messages.VerbCancel)
	must.Do(t, ana.nc.PublishRequest(last, ana.inbox.Subject, []byte("{}")))
	for cancels := 0; ; {
		m, err := seen.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatalf("after %d requests of its own: %v", cancels, err)
		}
		switch m.Subject {
		case last:
			if cancels == 0 {
				t.Error("no request of its own was seen")
			}
			return
		case cancelling:
			cancels++
		default:
			t.Errorf("%s: %s", m.Subject, m.Data)
		}
	}
}
