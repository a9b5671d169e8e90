package operate

import (
	"cmp"
	"strings"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// printPermissions prints what the user of each role may do.
func printPermissions(a *app.App, f *provisionFlags) error {
	roles := permission.Roles()
	if f.role != "" {
		r, err := permission.ParseRole(f.role)
		if err != nil {
			return app.Fail(app.ExitUsage, "--role: %w", err)
		}
		roles = []permission.Role{r}
	}
	at := permission.Place{Tenant: a.Tenant(), Generation: streams.DefaultGeneration, Partitions: cmp.Or(f.partitions, streams.DefaultPartitions)}
	var grants []permission.Grant
	for _, r := range roles {
		at.User = cmp.Or(f.user, permission.UserOf(r, at.Tenant))
		if err := permission.CheckUser(r, at.User); err != nil {
			return app.Fail(app.ExitUsage, "%w; name the role's user with --user", err)
		}
		grants = append(grants, permission.GrantOf(r, at))
	}
	switch f.as {
	case "table":
		if done, err := app.Emit(a, grants); done {
			return err
		}
		permissionTable(a, grants)
	case "nats":
		if f.role != "" {
			return app.Fail(app.ExitUsage, "--as nats writes all accounts with their users: leave --role out")
		}
		a.Out.Println(strings.TrimRight(natsAccounts(at), "\n"))
	case "nsc":
		for _, g := range grants {
			if g.Role != permission.RoleRouter || f.role != "" { // else it is the node's user
				a.Out.Println(nscUser(&g, at.Tenant))
			}
		}
	default:
		return app.Fail(app.ExitUsage, "--as %q: want table, nats or nsc", f.as)
	}
	return nil
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

// natsAccounts is the configuration of accounts; the operator that
// installs it sets the passwords.
func natsAccounts(at permission.Place) string {
	acc := permission.Accounts{Tenants: []session.Tenant{at.Tenant}, Place: at}
	for _, r := range permission.Roles() {
		if r == permission.RoleRouter {
			continue // it logs in as a node
		}
		u := permission.User{Role: r, Name: permission.UserOf(r, at.Tenant)}
		if r.OfTenant() {
			u.Tenant = at.Tenant
		}
		u.Secret = "password: $" + strings.ToUpper(strings.ReplaceAll(u.Name, "-", "_")) + "_PASSWORD"
		acc.Users = append(acc.Users, u)
	}
	return "// Include this in the configuration of each NATS server. Passwords come from its\n" +
		"// environment; hashes of `nats server passwd` do as well. Routers log in as nodes.\n" + acc.Config()
}

// nscUser is the command that makes the user of a role where accounts are JWTs.
func nscUser(g *permission.Grant, t session.Tenant) string {
	account := permission.AccountMain
	if g.Role.OfTenant() {
		account = permission.AccountOf(t)
	}
	words := []string{"nsc add user --account " + account + " --name " + g.User}
	add := func(flag, op string, all []permission.Permission) {
		for _, p := range all {
			if p.Op == op {
				words = append(words, "--"+flag+" '"+p.Subject+"'")
			}
		}
	}
	add("allow-pub", permission.OpPublish, g.Allow)
	add("deny-pub", permission.OpPublish, g.Deny)
	add("allow-sub", permission.OpSubscribe, g.Allow)
	if g.Responses {
		words = append(words, "--allow-pub-response=1 --response-ttl "+permission.ResponsesFor)
	}
	return strings.Join(words, " \\\n  ")
}
