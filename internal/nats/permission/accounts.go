package permission

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Accounts is the part of a NATS server's configuration that states the users and their
// permissions. The clients of each tenant have an account of their own. They reach the
// account that holds the streams only through its exported services, and see only its
// exported messages. Permissions alone would not suffice: a request names the subject of
// its answer, so a client could make a node, or JetStream itself, publish an answer into an
// event stream. Across accounts an answer arrives only in the account that asked.
//
// A tool is a client that may also announce tools and answer their calls: a service in the
// other direction, exported by the clients' account. Without a permission of its own any
// client could take the place of any tool. A node bound to the tenant is in that account
// too, for the same reason as clients are: it receives requests of relays as a tool
// receives calls.
type Accounts struct {
	// Tenants each get an account of clients.
	Tenants []session.Tenant
	// Place determines the event streams; its tenant is not used.
	Place Place
	// Users of all accounts.
	Users []User
	// Grant returns the permissions of a role; nil means GrantOf. A nil *Grant permits
	// everything.
	Grant func(r Role, at Place) *Grant
	// Anonymous is the name of the user of clients without credentials; "" refuses them.
	Anonymous string
}

// User is a login.
type User struct {
	Role Role
	// Tenant is empty for nodes and operators.
	Tenant session.Tenant
	// Name is unique. The name of a user who controls runs is one token of subjects.
	Name string
	// Secret is the user's login in the notation of the configuration, such as `password:
	// "…"`; with `nkey: U…` the server identifies the user by its key, and the name is in
	// permissions alone.
	Secret string
}

// login returns the user's login in the notation of the configuration.
func (u *User) login() string {
	if strings.HasPrefix(u.Secret, "nkey:") {
		return u.Secret
	}
	return "user: " + quoted(u.Name) + ", " + u.Secret
}

// AccountOf is the name of the account of a tenant's clients.
func AccountOf(t session.Tenant) string { return "CLIENTS_" + string(t) }

// AccountMain is the name of the account that holds the streams.
const AccountMain = "RATH"

// Config writes the configuration.
func (a *Accounts) Config() string {
	var b strings.Builder
	b.WriteString("accounts {\n")
	fmt.Fprintf(&b, "  %s {\n    jetstream: enabled\n    users: [\n", AccountMain)
	a.users(&b, "")
	b.WriteString("    ]\n    exports: [\n")
	for _, t := range a.Tenants {
		for _, s := range served(t) {
			fmt.Fprintf(&b, "      {service: %s%s}\n", quoted(s.subject), s.response())
		}
		for _, s := range published(t) {
			fmt.Fprintf(&b, "      {stream: %s}\n", quoted(s))
		}
	}
	b.WriteString("    ]\n    imports: [\n")
	for _, t := range a.Tenants {
		for _, s := range answered(t) {
			fmt.Fprintf(&b, "      {service: {account: %s, subject: %s}}\n", AccountOf(t), quoted(s.subject))
		}
	}
	b.WriteString("    ]\n  }\n")
	for _, t := range a.Tenants {
		fmt.Fprintf(&b, "  %s {\n    users: [\n", AccountOf(t))
		a.users(&b, t)
		b.WriteString("    ]\n    exports: [\n")
		for _, s := range answered(t) {
			fmt.Fprintf(&b, "      {service: %s%s}\n", quoted(s.subject), s.response())
		}
		b.WriteString("    ]\n    imports: [\n")
		for _, s := range served(t) {
			fmt.Fprintf(&b, "      {service: {account: %s, subject: %s}}\n", AccountMain, quoted(s.subject))
		}
		for _, s := range published(t) {
			fmt.Fprintf(&b, "      {stream: {account: %s, subject: %s}}\n", AccountMain, quoted(s))
		}
		b.WriteString("    ]\n  }\n")
	}
	b.WriteString("}\n")
	if a.Anonymous != "" {
		fmt.Fprintf(&b, "no_auth_user: %s\n", a.Anonymous)
	}
	return b.String()
}

// service is a service that an account exports to another one.
type service struct {
	subject string
	stream  bool // answers in several messages
	long    bool // answers within ResponsesFor: servers forget the requester after two minutes
}

func (s service) response() string {
	switch {
	case s.stream:
		return ", response_type: stream"
	case s.long:
		return `, threshold: "` + ResponsesFor + `"`
	}
	return ""
}

func served(t session.Tenant) []service {
	return []service{
		{subject: messages.TaskPrefix + string(t) + ".*.*"},
		{subject: messages.ControlPrefix + string(t) + ".>"},
		{subject: messages.QueryPrefix + string(t) + ".>", stream: true},
		{subject: messages.StorePrefix + string(t) + ".*"},
	}
}

// answered returns the services of a tenant's clients for the account of the streams: the
// tools, and the nodes bound to the tenant.
func answered(t session.Tenant) []service {
	return []service{{subject: messages.ToolPrefix + string(t) + ".*", long: true}, {subject: messages.HostPrefix + string(t) + ".*.*"}}
}

func published(t session.Tenant) []string {
	return []string{messages.RunPrefix + string(t) + ".>", "rath.tail." + string(t) + ".>"}
}

// users writes the users of an account.
func (a *Accounts) users(b *strings.Builder, t session.Tenant) {
	grant := a.Grant
	if grant == nil {
		grant = func(r Role, at Place) *Grant { return new(GrantOf(r, at)) }
	}
	for _, u := range a.Users {
		if u.Tenant != t {
			continue
		}
		at := a.Place
		at.Tenant, at.User = t, u.Name
		g := grant(u.Role, at)
		if g == nil {
			fmt.Fprintf(b, "      {%s}\n", u.login())
			continue
		}
		fmt.Fprintf(b, "      {%s, permissions: {\n%s      }}\n", u.login(), g.config("        "))
	}
}

// config writes the permissions of a user.
func (g *Grant) config(indent string) string {
	var b strings.Builder
	for _, op := range []string{OpPublish, OpSubscribe} {
		allow, deny := subjectsOf(g.Allow, op), subjectsOf(g.Deny, op)
		if len(allow)+len(deny) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s%s: {\n", indent, op)
		for _, l := range []struct {
			name     string
			subjects []string
		}{{"allow", allow}, {"deny", deny}} {
			if len(l.subjects) == 0 {
				continue
			}
			fmt.Fprintf(&b, "%s  %s: [\n", indent, l.name)
			for _, s := range l.subjects {
				fmt.Fprintf(&b, "%s    %s\n", indent, quoted(s))
			}
			fmt.Fprintf(&b, "%s  ]\n", indent)
		}
		fmt.Fprintf(&b, "%s}\n", indent)
	}
	if g.Responses {
		fmt.Fprintf(&b, "%sallow_responses: {max: 1, expires: %q}\n", indent, ResponsesFor)
	}
	return b.String()
}

func subjectsOf(all []Permission, op string) []string {
	var out []string
	for _, p := range all {
		if p.Op == op {
			out = append(out, p.Subject)
		}
	}
	return out
}

func quoted(s string) string { return `"` + s + `"` }
