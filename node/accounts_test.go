package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// accountValues are the values of the chart helm/accounts.
type accountValues struct {
	Generation, Partitions uint32
	Users                  []accountUser
	Tenants                []struct {
		Name  session.Tenant
		Users []accountUser
	}
}

type accountUser struct {
	Name, Bcrypt, Nkey string
	Role               permission.Role
	PasswordKey        string `yaml:"passwordKey"`
}

func readYAML(t *testing.T, into any, path ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"..", "helm"}, path...)...))
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	must.Do(t, err)
}

// accounts returns the accounts of a chart test case's values.
func (v *accountValues) accounts() *permission.Accounts {
	a := &permission.Accounts{Place: permission.Place{Generation: v.Generation, Partitions: v.Partitions}}
	add := func(tenant session.Tenant, users []accountUser) {
		for _, u := range users {
			secret := "password: $" + u.PasswordKey
			if u.Bcrypt != "" {
				secret = `password: "` + u.Bcrypt + `"`
			} else if u.Nkey != "" {
				secret = "nkey: " + u.Nkey
			}
			a.Users = append(a.Users, permission.User{Role: u.Role, Tenant: tenant, Name: u.Name, Secret: secret})
		}
	}
	add("", v.Users)
	for _, t := range v.Tenants {
		a.Tenants = append(a.Tenants, t.Name)
		add(t.Name, t.Users)
	}
	return a
}

// rendered returns the rendered configuration of a case of the chart; the chart's own
// tests check that it is up to date.
func rendered(t *testing.T, name string) string {
	t.Helper()
	var m struct{ Data map[string]string }
	readYAML(t, &m, "testdata", "accounts", name+".yaml")
	return m.Data["accounts.conf"]
}

// TestChartAccounts checks that the chart writes the same accounts as package
// permission, byte for byte, and that a server accepts them.
func TestChartAccounts(t *testing.T) {
	cases, err := filepath.Glob(filepath.Join("..", "helm", "accounts", "ci", "*-values.yaml"))
	if err != nil || len(cases) < 2 {
		t.Fatalf("%q, %v", cases, err)
	}
	for _, file := range cases {
		name := strings.TrimSuffix(filepath.Base(file), "-values.yaml")
		var v accountValues
		readYAML(t, &v, "accounts", "values.yaml")
		readYAML(t, &v, "accounts", "ci", filepath.Base(file))
		want, got := v.accounts().Config(), rendered(t, name)
		if got != want {
			t.Errorf("%s: the chart writes\n%s\nwant\n%s", name, got, want)
		}
		for _, u := range v.accounts().Users {
			if variable, ok := strings.CutPrefix(u.Secret, "password: $"); ok {
				t.Setenv(variable, "secret")
			}
		}
		if err := natstest.CheckConfig(got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// atServer starts a node at a server with accounts, whose streams an operator has set up.
func atServer(t *testing.T, url string, operator, node *Options, partitions uint32) *Instance {
	t.Helper()
	c := connection(t, &streams.Options{Options: conn.Options{
		URL: url, User: operator.NATS.User, Password: operator.NATS.Password, CredsFile: operator.NATS.CredsFile, Inbox: conn.NodeInbox,
	}, Client: true, Level: streams.Lazy})
	plan, err := c.Streams.Plan(t.Context(), &streams.Provisioning{Replicas: 1, Partitions: partitions})
	if err == nil {
		err = c.Streams.Apply(t.Context(), plan)
	}
	must.Do(t, err)
	o := *node
	o.NATS.URL, o.NATS.Level, o.Store = url, "lazy", t.TempDir()
	o.Models.Source, o.Workflows = scriptOf(t, "tools.txtar", nil), []flow.Registration{asks()}
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return begin(t, &o).started(t)
}

// TestChartRoles plays the install of the chart's README: a server with the accounts of
// its values, an operator, a node, and users of two tenants with the permissions of
// their roles. Then a tenant is added while all of them are connected.
func TestChartRoles(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	for _, variable := range []string{"NODE_PASSWORD", "OPERATOR_PASSWORD", "ANA_PASSWORD", "BOB_PASSWORD"} {
		t.Setenv(variable, "secret-of-"+variable)
	}
	srv := natstest.StartConfigured(t, rendered(t, "fleet"))
	atServer(t, srv.URL(), &Options{NATS: NATS{User: "operator", Password: "secret-of-OPERATOR_PASSWORD"}}, &Options{NATS: NATS{User: "node", Password: "secret-of-NODE_PASSWORD"}}, 4)
	as := func(o client.Options) *client.Client {
		t.Helper()
		o.Logger = slog.New(slog.DiscardHandler)
		c := must.Get(client.Connect(t.Context(), srv.URL(), &o))(t)
		t.Cleanup(func() { must.Report(t, c.Close()) })
		return c
	}
	ana := as(client.Options{User: "ana", Password: "secret-of-ANA_PASSWORD"})
	bob := as(client.Options{User: "bob", Password: "secret-of-BOB_PASSWORD"})
	must.Get(ana.Submit(ctx, "ask", messages.Task{ID: "one", Input: json.RawMessage(`"x"`)}))(t)
	must.Do(t, waiting(ctx, ana, "one"))
	if err := ana.Questions.Approve(ctx, "one", messages.Control{}); !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), "the role approve") {
		t.Errorf("ana, who may submit, approves: %v", err)
	}
	if err := submitted(ctx, bob); !errors.Is(err, client.ErrDenied) {
		t.Errorf("bob, who may approve, submits: %v", err)
	}
	must.Do(t, bob.Questions.Approve(ctx, "one", messages.Control{}))
	if r, err := ana.Wait(ctx, "one"); err != nil || !strings.HasPrefix(r.Output, "bob ") {
		t.Errorf("the approval is by %q, %v", r.Output, err)
	}

	// An upgrade of the chart: a user whose password is not on the server is rejected,
	// and everything else continues; a user with a hash, or a key, can log in at once.
	var v accountValues
	readYAML(t, &v, "accounts", "values.yaml")
	readYAML(t, &v, "accounts", "ci", "fleet-values.yaml")
	a := v.accounts()
	users := a.Users
	a.Users = append(users, permission.User{Role: permission.RoleClient, Tenant: "default", Name: "cal", Secret: "password: $CAL_PASSWORD"})
	if err := srv.Reload(a.Config()); err == nil || !strings.Contains(err.Error(), "CAL_PASSWORD") {
		t.Errorf("the server takes a password that it does not have: %v", err)
	}
	public, seed := natstest.NewKey(t)
	a.Users = append(users, permission.User{Role: permission.RoleClient, Tenant: "default", Name: "cal", Secret: "nkey: " + public})
	must.Do(t, srv.Reload(a.Config()))
	if _, err := as(client.Options{NKeyFile: seed}).Submit(ctx, "ask", messages.Task{ID: "two", Input: json.RawMessage(`"x"`)}); err != nil {
		t.Errorf("the new user submits: %v", err)
	}
	if err := waiting(ctx, ana, "two"); err != nil {
		t.Errorf("ana, whose connection the reload left alone: %v", err)
	}
	// A tenant works after a restart: a server that only loads a new account does not
	// import services into it (nats-server 2.15).
	a.Tenants = append(a.Tenants, "globex")
	a.Users = append(a.Users, permission.User{Role: permission.RoleClient, Tenant: "globex", Name: "max", Secret: `password: "$2a$04$mbJCMGtkW.Pz73MzgJg3tul2rjtrNSbs58G.f.nHY1xJdwEx4A8nq"`})
	must.Do(t, srv.Reload(a.Config()))
	srv.Restart(t)
	another := as(client.Options{User: "max", Password: chartPassword, Tenant: "globex"})
	for _, c := range []*client.Client{another, bob} { // the node and they connect again
		for {
			_, err := c.Runs.List(ctx, nil)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	if _, err := another.Submit(ctx, "ask", messages.Task{ID: "two", Input: json.RawMessage(`"x"`)}); err != nil {
		t.Errorf("the new tenant submits: %v", err)
	}
	must.Report(t, waiting(ctx, another, "two"))
	if err := bob.Questions.Approve(ctx, "two", messages.Control{}); err != nil {
		t.Errorf("bob, who connects again: %v", err)
	}
	if r, err := another.Runs.Get(ctx, "two"); err != nil || r.State != run.Waiting {
		t.Errorf("the run of the same name of another tenant is %s, %v", r.State, err)
	}

	// Neither tenant reaches the other, by another's name or its subjects.
	if _, err := as(client.Options{User: "max", Password: chartPassword}).Runs.Get(ctx, "one"); !errors.Is(err, client.ErrDenied) {
		t.Errorf("max reads a run of another tenant: %v", err)
	}
	refused := make(chan error, 8)
	nc := must.Get(nats.Connect(srv.URL(), nats.UserInfo("max", chartPassword), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })))(t)
	defer nc.Close()
	for _, subject := range []string{"rath.tail.default.>", "rath.run.default.>", "rath.tail.>", "rath.ev.>"} {
		must.Get(nc.SubscribeSync(subject))(t)
		if err := <-refused; !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
			t.Errorf("max watches %s: %v", subject, err)
		}
	}
}

// chartPassword is the password of the hash in the chart's test cases.
const chartPassword = "secret of the chart"
