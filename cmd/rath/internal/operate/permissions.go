package operate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// printPermissions prints the permissions of each role's user.
func printPermissions(a *app.App, f *provisionFlags) error {
	users, err := usersOf(a, f)
	if err != nil {
		return err
	}
	at := permission.Place{Tenant: a.Tenant(), Generation: streams.DefaultGeneration, Partitions: cmp.Or(f.partitions, streams.DefaultPartitions)}
	var grants []permission.Grant
	for _, u := range users {
		at.User = u.Name
		grants = append(grants, permission.GrantOf(u.Role, at))
	}
	switch f.as {
	case "table":
		if done, err := app.Emit(a, grants); done {
			return err
		}
		permissionTable(a, grants)
	case "nats":
		if f.role != "" {
			return app.Fail(app.ExitUsage, "--as nats writes all accounts with their users: leave --role out, and name users as in --user ana=submit")
		}
		a.Out.Println(strings.TrimRight(natsAccounts(at, users), "\n"))
	case "nsc":
		if f.role != "" {
			a.Out.Println(grants[0].Command(at.Tenant))
			break
		}
		acc := permission.Accounts{Tenants: []session.Tenant{at.Tenant}, Place: at, Users: users}
		a.Remark("for another tenant omit the first two lines and the existing users")
		for _, command := range acc.Commands() {
			a.Out.Println(command)
		}
	default:
		return app.Fail(app.ExitUsage, "--as %q: want table, nats or nsc", f.as)
	}
	return nil
}

// usersOf returns the users that the flags select: one of --role, or else the users of
// the installation, and as users of the tenant those of --user, or one client and one
// program with tools.
func usersOf(a *app.App, f *provisionFlags) ([]permission.User, error) {
	var all []permission.User
	add := func(role, name string) error {
		r, err := permission.ParseRole(role)
		if err != nil {
			return app.Fail(app.ExitUsage, "%w", err)
		}
		u := permission.User{Role: r, Name: cmp.Or(name, permission.UserOf(r, a.Tenant()))}
		if err := permission.CheckUser(r, u.Name); err != nil {
			if name == "" {
				err = fmt.Errorf("%w; name the user with --user", err)
			}
			return app.WithCode(app.ExitUsage, err)
		}
		if slices.ContainsFunc(all, func(o permission.User) bool { return o.Name == u.Name }) {
			return app.Fail(app.ExitUsage, "two users are named %q", u.Name)
		}
		if r.OfTenant() {
			u.Tenant = a.Tenant()
		}
		all = append(all, u)
		return nil
	}
	if f.role != "" {
		if len(f.users) > 1 {
			return nil, app.Fail(app.ExitUsage, "--role goes with one --user")
		}
		return all, add(f.role, strings.Join(f.users, ""))
	}
	want := permission.Roles()
	if f.as != "table" { // routers may log in as nodes, and who needs less than a client has a name
		want = []permission.Role{permission.RoleNode, permission.RoleOperator, permission.RoleClient, permission.RoleTool}
	}
	if len(f.users) > 0 {
		want = []permission.Role{permission.RoleNode, permission.RoleOperator}
	}
	for _, r := range want {
		if err := add(string(r), ""); err != nil {
			return nil, err
		}
	}
	for _, u := range f.users {
		name, role, ok := strings.Cut(u, "=")
		if !ok {
			return nil, app.Fail(app.ExitUsage, "--user %s: want NAME=ROLE, such as ana=submit, or the role in --role", u)
		}
		if err := add(role, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func permissionTable(a *app.App, grants []permission.Grant) {
	var rows [][]string
	for _, g := range grants {
		role := string(g.Role)
		add := func(op, subject, why string) {
			rows = append(rows, []string{role, op, subject, why})
			role = ""
		}
		for _, p := range g.Allow {
			add(p.Op, p.Subject, p.Why)
		}
		for _, p := range g.Deny {
			add("deny "+p.Op, p.Subject, p.Why)
		}
		if g.Responses {
			add("respond", "once to each request, for "+permission.ResponsesFor, "answers to calls")
		}
	}
	a.Out.Rows([]string{"ROLE", "MAY", "SUBJECT", "FOR"}, rows)
}

// natsAccounts returns the configuration of accounts; the operator who installs it sets
// the passwords.
func natsAccounts(at permission.Place, users []permission.User) string {
	acc := permission.Accounts{Tenants: []session.Tenant{at.Tenant}, Place: at, Users: users}
	for i := range acc.Users {
		u := &acc.Users[i]
		u.Secret = "password: $" + strings.ToUpper(strings.ReplaceAll(u.Name, "-", "_")) + "_PASSWORD"
	}
	return "// Include this in the configuration of each NATS server. Passwords come from its\n" +
		"// environment; hashes of `nats server passwd` do as well, and in place of user and\n" +
		"// password `nkey: U…`, a public key. Routers log in as nodes, and to serve the web as routers.\n" + acc.Config()
}
