package permission

import (
	"strings"

	"github.com/rathcluster/rath/session"
)

// Commands returns the nsc commands that make the accounts and users where both are JWTs,
// for a shell, in this order. They do not use Grant, Anonymous and the secrets of users.
func (a *Accounts) Commands() []string {
	all := []string{
		"nsc add account --name " + AccountMain,
		"nsc edit account --name " + AccountMain + " --js-enable 0",
		key(AccountMain, AccountMain),
	}
	for _, t := range a.Tenants {
		clients := AccountOf(t)
		all = append(all, "nsc add account --name "+clients, key("CLIENTS", clients))
		for _, s := range served(t) {
			export := "nsc add export --account " + AccountMain + " --service --subject '" + s.subject + "'"
			if s.stream {
				export += " --response-type Stream"
			}
			all = append(all, export, "nsc add import --account "+clients+" \\\n  --src-account $"+AccountMain+" --service --remote-subject '"+s.subject+"'")
		}
		for _, s := range published(t) {
			all = append(all,
				"nsc add export --account "+AccountMain+" --subject '"+s+"'",
				"nsc add import --account "+clients+" \\\n  --src-account $"+AccountMain+" --remote-subject '"+s+"'")
		}
		for _, s := range answered(t) {
			all = append(all,
				"nsc add export --account "+clients+" --service --subject '"+s.subject+"'",
				"nsc add import --account "+AccountMain+" \\\n  --src-account $CLIENTS --service --remote-subject '"+s.subject+"'")
		}
	}
	for _, u := range a.Users {
		at := a.Place
		at.Tenant, at.User = u.Tenant, u.Name
		g := GrantOf(u.Role, at)
		all = append(all, g.Command(u.Tenant))
	}
	return all
}

// key stores the public key of an account in a variable of the shell.
func key(variable, account string) string {
	return variable + "=$(nsc describe account --name " + account + ` --field sub | tr -d '"')`
}

// Command returns the nsc command that makes the user of a role in the account of its
// tenant.
func (g *Grant) Command(t session.Tenant) string {
	account := AccountMain
	if g.Role.OfTenant() {
		account = AccountOf(t)
	}
	words := []string{"nsc add user --account " + account + " --name " + g.User}
	add := func(flag, op string, all []Permission) {
		for _, s := range subjectsOf(all, op) {
			words = append(words, "--"+flag+" '"+s+"'")
		}
	}
	add("allow-pub", OpPublish, g.Allow)
	add("deny-pub", OpPublish, g.Deny)
	add("allow-sub", OpSubscribe, g.Allow)
	if g.Responses {
		words = append(words, "--allow-pub-response=1 --response-ttl "+ResponsesFor)
	}
	return strings.Join(words, " \\\n  ")
}
