package helm

import (
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	corev1 "k8s.io/api/core/v1"
)

// TestAccounts compares the rendered chart of accounts, and its notes, with the golden file
// of each case. Package node reads the same files, compares them with the accounts of
// internal/nats/permission, and starts servers with them.
func TestAccounts(t *testing.T) {
	for name, v := range casesOf(t, accountsDir) {
		all := renderOf(t, accountsDir, v)
		m := one[*corev1.ConfigMap](t, all)
		if m.Name != releaseName || m.Namespace != namespace || len(m.Data) != 1 || m.Data["accounts.conf"] == "" {
			t.Errorf("%s: config map %s/%s with %d files", name, m.Namespace, m.Name, len(m.Data))
		}
		compare(t, filepath.Join("testdata", "accounts", name+".yaml"), all[0].yaml+"\n")
		out, err := filesOf(t, accountsDir, v)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, filepath.Join("testdata", "accounts", name+".txt"), out["rath-accounts/templates/NOTES.txt"])
		for _, m := range lint.RunAll(accountsDir, clone(t, v), namespace).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// TestAccountsRefuse lists mistakes and their error messages.
func TestAccountsRefuse(t *testing.T) {
	user := func(pairs ...string) values {
		u := values{"name": "ana", "role": "submit", "passwordKey": "ANA"}
		for i := 0; i < len(pairs); i += 2 {
			if u[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
				delete(u, pairs[i])
			}
		}
		return u
	}
	tenant := func(name string, users ...any) values {
		return values{"name": name, "users": append([]any{}, users...)}
	}
	hash := "$2a$04$mbJCMGtkW.Pz73MzgJg3tul2rjtrNSbs58G.f.nHY1xJdwEx4A8nq"
	for what, tc := range map[string]struct {
		tenants []any
		users   []any
		want    string
	}{
		"an unknown role":          {tenants: []any{tenant("acme", user("role", "chief"))}, want: `user "ana" of tenant acme: role "chief": want one of approve, client, `},
		"a role of the fleet":      {tenants: []any{tenant("acme", user("role", "operator"))}, want: `user "ana" of tenant acme: role "operator": want one of approve`},
		"a role of tenants":        {users: []any{user()}, want: `user "ana" of the fleet: role "submit": want one of node, operator, router`},
		"a dot in a tenant":        {tenants: []any{tenant("acme.eu")}, want: `tenant "acme.eu": a tenant's name is 1 to 64 of A-Z a-z 0-9 _ -`},
		"no name of a tenant":      {tenants: []any{tenant("")}, want: `tenant "": a tenant's name`},
		"a tenant twice":           {tenants: []any{tenant("acme"), tenant("acme")}, want: `tenant "acme" is there twice: name all of its users in one place`},
		"an address as a user":     {tenants: []any{tenant("acme", user("name", "ana@example.com"))}, want: `user "ana@example.com" of tenant acme: a user's name is 1 to 64 of A-Z a-z 0-9 _ -`},
		"a user named session":     {tenants: []any{tenant("acme", user("name", "session"))}, want: `user "session" of tenant acme: in subjects that stands for a session`},
		"a tenant's operator":      {tenants: []any{tenant("acme", user("name", "operator"))}, want: `user "operator" of tenant acme: it stands for who works on the store`},
		"a user twice":             {tenants: []any{tenant("acme", user(), user("role", "approve"))}, want: `user "ana" of tenant acme: tenant acme has a user of that name`},
		"a user in two tenants":    {tenants: []any{tenant("acme", user()), tenant("globex", user())}, want: `user "ana" of tenant globex: tenant acme has a user of that name: a server knows users by their names, give one of the two another`},
		"a user of fleet, tenant":  {tenants: []any{tenant("acme", user("name", "node"))}, want: `user "node" of tenant acme: the fleet has a user of that name`},
		"no login":                 {tenants: []any{tenant("acme", user("passwordKey", ""))}, want: `user "ana" of tenant acme has no way to log in: give it passwordKey (a key of the secret with passwords), bcrypt (a hash) or nkey (a public key)`},
		"two logins":               {tenants: []any{tenant("acme", user("bcrypt", hash))}, want: `user "ana" of tenant acme has 2 ways to log in`},
		"a password as the key":    {tenants: []any{tenant("acme", user("passwordKey", "s3cr3t!"))}, want: `passwordKey "s3cr3t!": the servers read it from their environment`},
		"a password as the hash":   {tenants: []any{tenant("acme", user("passwordKey", "", "bcrypt", "secret"))}, want: `user "ana" of tenant acme: bcrypt is no hash`},
		"a seed as the public key": {tenants: []any{tenant("acme", user("passwordKey", "", "nkey", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"))}, want: `user "ana" of tenant acme: nkey is no public key of a user`},
		"a password in values":     {tenants: []any{tenant("acme", user("password", "secret"))}, want: "password"},
		"no users":                 {tenants: []any{values{"name": "acme"}}, want: "/tenants/0"},
	} {
		v := values{}
		if tc.tenants != nil {
			v["tenants"] = tc.tenants
		}
		if tc.users != nil {
			v["users"] = tc.users
		}
		if _, err := filesOf(t, accountsDir, v); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", what, err, tc.want)
		}
	}
}
