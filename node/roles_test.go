package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// login is a connected user with the server's errors and its inbox.
type login struct {
	nc      *nats.Conn
	inbox   *nats.Subscription
	refused chan error
}

func logIn(t *testing.T, url string, with nats.Option) *login {
	t.Helper()
	l := &login{refused: make(chan error, 8)}
	var err error
	l.nc, err = nats.Connect(url, with, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		l.refused <- err
	}))
	must.Do(t, err)
	t.Cleanup(l.nc.Close)
	if l.inbox, err = l.nc.SubscribeSync(nats.NewInbox()); err != nil {
		t.Fatal(err)
	}
	return l
}

// asks reports whether a request is answered, rather than rejected by the server.
func (l *login) asks(t *testing.T, subject string) bool {
	t.Helper()
	must.Do(t, l.nc.PublishRequest(subject, l.inbox.Subject, []byte(`{}`)))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := l.inbox.NextMsgWithContext(ctx)
		answered <- err
	}()
	select {
	case err := <-l.refused:
		if cancel(); !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), `"`+subject+`"`) {
			t.Errorf("%s: %v", subject, err)
		}
		<-answered
		return false
	case err := <-answered:
		if err != nil {
			t.Errorf("%s is neither answered nor refused: %v", subject, err)
		}
		return true
	}
}

// section is a part of FORMAT.md.
func section(name string) string {
	_, text, _ := strings.Cut(messages.Format(), "\n"+name+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// site is a server with a node, and the logins of its users.
type site struct {
	url    string
	option func(t *testing.T, user string) nats.Option
	client func(user string) client.Options
}

// sites start a server with users of the default tenant, for each way to log in: a
// configuration of passwords, one of keys, and JWTs, made by the commands printed for
// nsc.
var sites = map[string]func(t *testing.T, users []permission.User) site{
	"password": func(t *testing.T, users []permission.User) site {
		users = slices.Clone(users)
		for i := range users {
			users[i].Secret = "secret-of-" + users[i].Name
		}
		srv := natstest.Start(t, &natsserver.Options{Port: -1, Users: users})
		member(t, srv, Options{Models: Models{Source: scriptOf(t, "tools.txtar", nil)}, Workflows: []flow.Registration{asks()}})
		return site{
			srv.URL(), func(_ *testing.T, user string) nats.Option { return nats.UserInfo(user, "secret-of-"+user) },
			func(user string) client.Options { return client.Options{User: user, Password: "secret-of-" + user} },
		}
	},
	"nkey": func(t *testing.T, users []permission.User) site {
		seeds := map[string]string{}
		a := permission.Accounts{Tenants: []session.Tenant{session.DefaultTenant}, Place: permission.Place{Partitions: 1}, Users: []permission.User{
			{Role: permission.RoleNode, Name: "node", Secret: "password: secret"}, {Role: permission.RoleOperator, Name: "operator", Secret: "password: secret"},
		}}
		for _, u := range users {
			public, seed := natstest.NewKey(t)
			seeds[u.Name], u.Secret = seed, "nkey: "+public
			a.Users = append(a.Users, u)
		}
		srv := natstest.StartConfigured(t, a.Config())
		atServer(t, srv.URL(), &Options{NATS: NATS{User: "operator", Password: "secret"}}, &Options{NATS: NATS{User: "node", Password: "secret"}}, 1)
		return site{srv.URL(), func(t *testing.T, user string) nats.Option {
			t.Helper()
			o := must.Get(nats.NkeyOptionFromSeed(seeds[user]))(t)
			return o
		}, func(user string) client.Options { return client.Options{NKeyFile: seeds[user]} }}
	},
	"JWT": func(t *testing.T, users []permission.User) site {
		nsc := natstest.NewNSC(t)
		a := permission.Accounts{Tenants: []session.Tenant{session.DefaultTenant}, Place: permission.Place{Partitions: 1}, Users: append([]permission.User{
			{Role: permission.RoleNode, Name: "node"}, {Role: permission.RoleOperator, Name: "operator"},
		}, users...)}
		nsc.Run(a.Commands())
		srv := natstest.StartConfigured(t, nsc.Config())
		atServer(t, srv.URL(), &Options{NATS: NATS{CredsFile: nsc.Creds("operator")}}, &Options{NATS: NATS{CredsFile: nsc.Creds("node")}}, 1)
		return site{
			srv.URL(), func(_ *testing.T, user string) nats.Option { return nats.UserCredentials(nsc.Creds(user)) },
			func(user string) client.Options { return client.Options{CredsFile: nsc.Creds(user)} },
		}
	},
}

// TestRoles has a user of each role use every verb of control and every query, and
// submit, with each way to log in: the server allows exactly the requests of the table
// of the verbs. TestHostileBoundNode covers bound nodes.
func TestRoles(t *testing.T) {
	const tenant = session.DefaultTenant
	var users []permission.User
	for _, r := range permission.Roles() {
		if r.OfTenant() && r != permission.RoleHost {
			users = append(users, permission.User{Role: r, Tenant: tenant, Name: "one-of-" + string(r)})
		}
	}
	var queries []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\|").FindAllStringSubmatch(section("## Queries"), -1) {
		queries = append(queries, m[1])
	}
	if len(queries) < 16 || !slices.Contains(queries, messages.QueryCommits) {
		t.Fatalf("FORMAT.md has the queries %v", queries)
	}
	known := map[string]bool{}
	for _, v := range permission.Verbs() {
		known[v.Name] = true
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\|").FindAllStringSubmatch(section("## Control"), -1) {
		if !known[m[1]] {
			t.Errorf("no role is said to have the verb %s", m[1])
		}
	}
	for way, start := range sites {
		t.Run(way, func(t *testing.T) {
			s, tried := start(t, users), 0
			for _, u := range users {
				l := logIn(t, s.url, s.option(t, u.Name))
				names := u.Role == permission.RoleGateway // it names its users
				for _, query := range queries {
					if tried++; !l.asks(t, messages.QuerySubject(tenant, query)) {
						t.Errorf("%s may not ask %s", u.Role, query)
					}
				}
				for _, v := range permission.Verbs() {
					may := v.For(u.Role)
					if tried++; l.asks(t, strings.ReplaceAll(v.Subject(tenant, u.Name), "*", "1")) != may {
						t.Errorf("%s uses %s: want %t", u.Role, v.Name, may)
					}
					if tried++; l.asks(t, strings.ReplaceAll(v.Subject(tenant, "another"), "*", "1")) != (may && names) {
						t.Errorf("%s uses %s in the name of another: want %t", u.Role, v.Name, may && names)
					}
					if tried++; l.asks(t, strings.ReplaceAll(v.Subject(tenant, messages.UserOperator), "*", "1")) {
						t.Errorf("%s uses %s in the name of the operator", u.Role, v.Name)
					}
				}
				may := u.Role == permission.RoleSubmit || u.Role == permission.RoleClient || u.Role == permission.RoleTool || names
				if tried++; l.asks(t, messages.TaskSubject(tenant, u.Name, "agent")) != may {
					t.Errorf("%s submits: want %t", u.Role, may)
				}
				for _, from := range []messages.Submitter{{By: "another"}, {By: "another", Via: u.Name}, {By: u.Name, Via: "another"}} {
					if tried++; l.asks(t, messages.TaskSubject(tenant, from.Token(), "agent")) != names {
						t.Errorf("%s submits in the name of %s: want %t", u.Role, from.Token(), names)
					}
				}
				for _, subject := range []string{"rath.run.default.>", "rath.tail.default.>"} {
					must.Get(l.nc.SubscribeSync(subject))(t)
				}
				if !l.asks(t, messages.QuerySubject(tenant, messages.QueryNodes)) { // after the server's answers about the two
					t.Errorf("%s may not watch", u.Role)
				}
			}
			t.Logf("%d requests of %d roles", tried, len(users))
		})
	}
}

// TestUserOfEachLogin has a run approved by a user who claims to be another, with each
// way to log in: the record names the user that the server checked.
func TestUserOfEachLogin(t *testing.T) {
	for way, start := range sites {
		t.Run(way, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
			defer cancel()
			s := start(t, []permission.User{
				{Role: permission.RoleSubmit, Tenant: session.DefaultTenant, Name: "ana"},
				{Role: permission.RoleApprove, Tenant: session.DefaultTenant, Name: "bob"},
				{Role: permission.RoleSubmit, Tenant: session.DefaultTenant, Name: "carl"},
			})
			as := func(user, name string) *client.Client {
				o := s.client(user)
				o.As = name
				c := must.Get(client.Connect(ctx, s.url, &o))(t)
				t.Cleanup(func() { must.Report(t, c.Close()) })
				return c
			}
			ana, bob := as("ana", ""), as("bob", "")
			must.Get(ana.Submit(ctx, "ask", messages.Task{ID: "one", Input: json.RawMessage(`"x"`)}))(t)
			must.Do(t, waiting(ctx, ana, "one"))
			for who, c := range map[string]*client.Client{"ana": ana, "ana as bob": as("ana", "bob")} {
				if err := c.Questions.Approve(ctx, "one", messages.Control{By: "bob"}); !errors.Is(err, client.ErrDenied) {
					t.Errorf("%s approves: %v", who, err)
				}
			}
			must.Do(t, bob.Questions.Approve(ctx, "one", messages.Control{By: "chief-executive"}))
			if r, err := ana.Wait(ctx, "one"); err != nil || r.Output != "bob says to be chief-executive" {
				t.Errorf("the workflow is told %q, %v", r.Output, err)
			}
			submitters(ctx, t, ana, as("carl", ""))
		})
	}
}

// submitters has carl submit the task of ana's run "one", and rerun it: the run is
// ana's, and so is the rerun, by way of carl.
func submitters(ctx context.Context, t *testing.T, ana, carl *client.Client) {
	t.Helper()
	if _, err := carl.Submit(ctx, "ask", messages.Task{ID: "one", Input: json.RawMessage(`"x"`)}); err != nil {
		t.Errorf("carl submits the same task: %v", err)
	}
	again := must.Get(carl.Runs.Rerun(ctx, "one", messages.Control{}))(t)
	must.Do(t, waiting(ctx, ana, again))
	must.Get(carl.Submit(ctx, "ask", messages.Task{ID: "two", Input: json.RawMessage(`"x"`)}))(t)
	must.Do(t, waiting(ctx, ana, "two"))
	for by, want := range map[string]string{
		"ana": string(again) + ": ana by way of carl\none: ana by way of \n", "carl": string(again) + ": ana by way of carl\ntwo: carl by way of \n", "bob": "",
	} {
		runs := must.Get(ana.Runs.List(ctx, &client.RunsOptions{By: by}))(t)
		var lines []string
		for _, r := range runs {
			lines = append(lines, fmt.Sprintf("%s: %s by way of %s\n", r.Run, r.By, r.Via))
		}
		slices.Sort(lines)
		if got := strings.Join(lines, ""); got != want {
			t.Errorf("the runs of %s are\n%swant\n%s", by, got, want)
		}
	}
}

// TestRoleNeeded: a command that a role may not use names the role that may.
func TestRoleNeeded(t *testing.T) {
	var users []permission.User
	for _, r := range []permission.Role{permission.RoleObserve, permission.RoleSubmit, permission.RoleApprove} {
		users = append(users, permission.User{Role: r, Tenant: session.DefaultTenant, Name: string(r), Secret: "secret"})
	}
	srv := natstest.Start(t, &natsserver.Options{Port: -1, Users: users})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	as := func(r permission.Role) *client.Client {
		return clientWith(t, &client.Options{Dialer: srv.Dial, User: string(r), Password: "secret"})
	}
	for _, tc := range []struct {
		what, role string
		err        error
	}{
		{"a submitter approves", "approve", as(permission.RoleSubmit).Questions.Approve(ctx, "r1", messages.Control{Step: "1"})},
		{"an observer cancels", "submit or operate", as(permission.RoleObserve).Runs.Cancel(ctx, "r1", messages.Control{})},
		{"an approver gives a budget", "operate", as(permission.RoleApprove).Runs.Rebudget(ctx, "r1", messages.Control{Budget: &messages.Budget{}})},
		{"an approver submits", "submit", submitted(ctx, as(permission.RoleApprove))},
		{"a submitter takes a tool away", "tool", as(permission.RoleSubmit).Tools.Withdraw(ctx, "weather")},
	} {
		if !errors.Is(tc.err, client.ErrDenied) || !strings.Contains(tc.err.Error(), ": this needs the role "+tc.role+":") {
			t.Errorf("%s: %v", tc.what, tc.err)
		}
	}
}

// TestTenantNeeded has requests about another tenant rejected for that reason, not for
// a role.
func TestTenantNeeded(t *testing.T) {
	users := []permission.User{{Role: permission.RoleClient, Tenant: session.DefaultTenant, Name: "ana", Secret: "secret"}}
	srv := natstest.Start(t, &natsserver.Options{Port: -1, Users: users})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	c := clientWith(t, &client.Options{Dialer: srv.Dial, User: "ana", Password: "secret", Tenant: "globex"})
	_, runs := c.Runs.List(ctx, nil)
	var tail error
	for _, err := range c.Lineage.Tail(ctx, "s1", "") {
		tail = err
		break
	}
	for what, err := range map[string]error{
		"runs": runs, "a task": submitted(ctx, c), "a cancel": c.Runs.Cancel(ctx, "r1", messages.Control{}), "the lineage": tail,
	} {
		if !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), ": these credentials belong to tenant default: act for it (--tenant default), or use credentials of tenant globex") {
			t.Errorf("%s: %v", what, err)
		}
	}
	op, password := srv.Operator()
	if _, err := clientWith(t, &client.Options{Dialer: srv.Dial, User: op, Password: password, Tenant: "globex"}).Runs.List(ctx, nil); errors.Is(err, client.ErrDenied) {
		t.Errorf("an operator, who is of no tenant: %v", err)
	}
}

func submitted(ctx context.Context, c *client.Client) error {
	_, err := c.Submit(ctx, "agent", messages.Task{ID: "r1"})
	return err
}
