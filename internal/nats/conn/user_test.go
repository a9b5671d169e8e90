package conn

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestUser has a server return its users: the name in their permissions, or their own name,
// or none.
func TestUser(t *testing.T) {
	const users = `
		accounts {
			MAIN {users: [
				{user: ana, password: p, permissions: {publish: ["rath.ctl.acme.ana.*.approve", "$SYS.REQ.USER.INFO"]}}
				{user: "ana@example.com", password: p, permissions: {publish: ["rath.ctl.acme.ana.>", "$SYS.REQ.USER.INFO"]}}
				{user: "bob@example.com", password: p}
				{user: eve, password: p, permissions: {publish: ["rath.ctl.*.operator.>", "$SYS.REQ.USER.INFO"]}}
				{user: gate, password: p, permissions: {publish: ["rath.ctl.acme.*.*.approve", "$SYS.REQ.USER.INFO"]}}
				{user: both, password: p, permissions: {publish: ["rath.ctl.acme.ana.>", "rath.ctl.acme.both.>", "$SYS.REQ.USER.INFO"]}}
				{user: away, password: p, permissions: {publish: ["rath.ctl.other.ann.>", "$SYS.REQ.USER.INFO"]}}
				{user: session, password: p}
				{user: mute, password: p, permissions: {publish: ["rath.ctl.acme.mute.>"]}}
			]}
		}
	`
	named := startWith(t, users)
	open := startWith(t, "max_pending: 64MB")
	for _, tc := range []struct{ url, user, as, want, err string }{
		{url: named, user: "ana", want: "ana"},
		{url: named, user: "ana@example.com", want: "ana"},
		{url: named, user: "bob@example.com", err: `the NATS user "bob@example.com" cannot control runs`},
		{url: named, user: "bob@example.com", as: "bob", want: "bob"},
		{url: named, user: "eve", want: "operator"},
		{url: named, user: "gate", want: "gate"},
		{url: named, user: "gate", as: "ann", want: "ann"},
		{url: named, user: "gate", as: "a.b", err: "only A-Z"},
		{url: named, user: "both", want: "both"},
		{url: named, user: "away", want: "away"},
		{url: named, user: "session", err: "take another name"},
		{url: named, user: "mute", err: "no permission to publish to $SYS.REQ.USER.INFO"},
		{url: open, want: "anonymous"},
	} {
		c, err := Connect(t.Context(), &Options{URL: tc.url, User: tc.user, Password: "p", As: tc.as})
		must.Do(t, err)
		got, err := c.User(t.Context(), "acme")
		if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) || tc.err == "" && (err != nil || got != tc.want) {
			t.Errorf("%s as %q: %q, %v; want %q %s", tc.user, tc.as, got, err, tc.want, tc.err)
		}
		must.Report(t, c.Close())
	}
}

// startWith starts a server with a configuration and returns its address.
func startWith(t *testing.T, config string) string {
	t.Helper()
	o := &server.Options{}
	must.Do(t, o.ProcessConfigString(config))
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", -1, true, true
	s := must.Get(server.NewServer(o))(t)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL()
}
