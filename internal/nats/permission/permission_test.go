package permission_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

func TestCovers(t *testing.T) {
	for _, tc := range []struct {
		pattern, subject string
		covers, overlap  bool
	}{
		{"a.b", "a.b", true, true},
		{"a.*", "a.b", true, true},
		{"a.>", "a.b.c", true, true},
		{">", "a", true, true},
		{"a.>", "a", false, false},
		{"a.*", "a.*", true, true},
		{"a.*", "a.>", false, true},
		{"a.b", "a.*", false, true},
		{"a.>", "a.*.c", true, true},
		{"*.b", "a.*", false, true},
		{"a.b", "a.c", false, false},
		{"a.b", "a.b.c", false, false},
		{"a.b.c", "a.b", false, false},
		{"a.*.c", "a.b.*", false, true},
	} {
		if got := permission.Covers(tc.pattern, tc.subject); got != tc.covers {
			t.Errorf("%s covers %s: %v", tc.pattern, tc.subject, got)
		}
		if a, b := permission.Overlap(tc.pattern, tc.subject), permission.Overlap(tc.subject, tc.pattern); a != tc.overlap || b != tc.overlap {
			t.Errorf("%s and %s overlap: %v, %v", tc.pattern, tc.subject, a, b)
		}
	}
}

func TestMissing(t *testing.T) {
	g := permission.GrantOf(permission.RoleNode, permission.Place{Partitions: 2})
	var exact permission.Held
	for _, p := range g.Allow {
		if p.Op == permission.OpPublish {
			exact.Publish.Allow = append(exact.Publish.Allow, p.Subject)
		} else {
			exact.Subscribe.Allow = append(exact.Subscribe.Allow, p.Subject)
		}
	}
	with := func(change func(h *permission.Held)) *permission.Held {
		h := exact
		change(&h)
		return &h
	}
	for name, tc := range map[string]struct {
		held *permission.Held
		want string
	}{
		"everything":     {&permission.Held{}, "[]"},
		"what is listed": {&exact, "[]"},
		"wider": {with(func(h *permission.Held) {
			h.Publish.Allow = []string{"rath.>", "$KV.>", "$JS.>", "$SYS.>", "_INBOX.>", "_RATH.>", "_R_.>"}
		}), "[]"},
		"may respond": {with(func(h *permission.Held) {
			h.Publish.Allow, h.Responses = []string{"rath.>", "$KV.>", "$JS.>", "$SYS.>"}, true
		}), "[]"},
		"may not read tokens": {with(func(h *permission.Held) {
			h.Publish.Deny = []string{"$JS.API.DIRECT.GET.KV_ACCESS.>", "$JS.API.STREAM.MSG.GET.KV_ACCESS"}
		}), "[]"},
		"may not delete":   {with(func(h *permission.Held) { h.Publish.Deny = []string{"$JS.API.STREAM.DELETE.>"} }), "[]"},
		"denied":           {with(func(h *permission.Held) { h.Publish.Deny = []string{"rath.ev.1.0.>"} }), "[publish to rath.ev.1.>]"},
		"denied in part":   {with(func(h *permission.Held) { h.Subscribe.Deny = []string{"rath.ctl.acme.> rath"} }), "[subscribe to rath.ctl.>]"},
		"subscribes a few": {with(func(h *permission.Held) { h.Subscribe.Allow = []string{"rath.>", "_RATH.>"} }), "[subscribe to $SRV.>]"},
		"only in a queue": {with(func(h *permission.Held) {
			h.Subscribe.Allow = []string{"rath.> rath", "rath.query.>", "rath.node.>", "rath.store.>", "$SRV.>", "_RATH.>"}
		}), "[subscribe to rath.ctl.>]"},
		"other generation": {with(func(h *permission.Held) {
			h.Publish.Allow = []string{"rath.ev.2.>", "rath.*.>", "$KV.>", "$JS.>", "$SYS.>", "_INBOX.>", "_RATH.>", "_R_.>"}
		}), "[]"},
	} {
		if got := fmt.Sprint(g.Missing(tc.held)); got != tc.want {
			t.Errorf("%s: lacks %s, want %s", name, got, tc.want)
		}
	}
}

// TestNeeded names the permission of a subject as its role has it.
func TestNeeded(t *testing.T) {
	for _, tc := range []struct{ op, subject, want string }{
		{permission.OpPublish, "rath.task.acme.ana.review", "rath.task.acme.ana.*"},
		{permission.OpPublish, "rath.task.acme.operator.review", "rath.task.*.operator.*"},
		{permission.OpPublish, "rath.ctl.acme.ana.tool.x.announce", "rath.ctl.acme.ana.tool.*.announce"},
		{permission.OpPublish, "rath.ctl.acme.ana.r1.approve", "rath.ctl.acme.ana.*.approve"},
		{permission.OpPublish, "rath.ctl.acme.operator.r1.approve", "rath.ctl.*.operator.>"},
		{permission.OpPublish, "rath.node.n1.drain", "rath.node.>"},
		{permission.OpSubscribe, "rath.tool.acme.x", "rath.tool.acme.*"},
		{permission.OpPublish, "$JS.API.STREAM.INFO.TASKS", "$JS.API.STREAM.INFO.*"},
		{permission.OpPublish, "$JS.API.STREAM.CREATE.TASKS", "$JS.API.STREAM.CREATE.*"},
		{permission.OpSubscribe, "_INBOX.x.y", "_INBOX.>"},
		{permission.OpPublish, "elsewhere", "elsewhere"},
	} {
		if got, _ := permission.Needed(tc.op, tc.subject); got.Subject != tc.want || got.Op != tc.op {
			t.Errorf("%s to %s needs %+v, want %s", tc.op, tc.subject, got, tc.want)
		}
	}
	if _, roles := permission.Needed(permission.OpPublish, "rath.node.n1.drain"); fmt.Sprint(roles) != "[operator]" {
		t.Errorf("a drain needs %v, want an operator, not the credentials of the nodes", roles)
	}
}

// TestGrants lists the permissions that must not be granted: a node removes nothing, and a
// client is kept to its tenant.
func TestGrants(t *testing.T) {
	for _, r := range permission.Roles() {
		if parsed, err := permission.ParseRole(string(r)); err != nil || parsed != r || r.Doc() == "" {
			t.Errorf("role %s: %v, %q", r, err, r.Doc())
		}
		g := permission.GrantOf(r, permission.Place{Tenant: "acme", Partitions: 3})
		seen := map[string]bool{}
		for _, p := range g.Allow {
			if seen[p.String()] || p.Why == "" {
				t.Errorf("%s: %s: twice, or nobody says why", r, p)
			}
			seen[p.String()] = true
			switch r {
			case permission.RoleNode, permission.RoleRouter:
				for _, remove := range []string{
					"$JS.API.STREAM.DELETE.x", "$JS.API.STREAM.PURGE.x", "$JS.API.STREAM.MSG.DELETE.x", "$JS.API.STREAM.CREATE.x",
					"$JS.API.STREAM.UPDATE.x", "$JS.API.CONSUMER.DELETE.EV_1_0.x", "$JS.API.CONSUMER.CREATE.RESULT.x",
				} {
					if permission.Covers(p.Subject, remove) {
						t.Errorf("%s: %s covers %s", r, p, remove)
					}
				}
			default:
				if !r.OfTenant() {
					continue
				}
				if !strings.Contains(p.Subject, ".acme.") && p.Subject != "_INBOX.>" && p.Subject != "_RATH.>" && p.Subject != permission.SubjectUserInfo {
					t.Errorf("%s: %s is not of its tenant", r, p)
				}
				if r == permission.RoleGateway {
					continue // it names its users
				}
				if strings.HasPrefix(p.Subject, messages.ControlPrefix) && !strings.HasPrefix(p.Subject, "rath.ctl.acme."+g.User+".") ||
					strings.HasPrefix(p.Subject, messages.TaskPrefix) && !strings.HasPrefix(p.Subject, "rath.task.acme."+g.User+".") {
					t.Errorf("%s: %s is not of its user", r, p)
				}
			}
		}
	}
	gateway := permission.GrantOf(permission.RoleGateway, permission.Place{Tenant: "acme"})
	for subject, may := range map[string]bool{
		"rath.ctl.acme.ana.r1.approve": true, "rath.task.acme.ana.review": true, "rath.query.acme.run": true, "rath.ctl.globex.ana.r1.approve": false,
		"rath.ctl.acme.operator.r1.approve": false, "rath.task.acme.operator.review": false, "rath.ctl.acme.anonymous.r1.cancel": false,
		"rath.ctl.acme.ana.tool.x.announce": false, "$JS.API.STREAM.INFO.TASKS": false, "$KV.ACCESS.token.x": false, "rath.store.acme.get": false,
	} {
		covers := func(p permission.Permission) bool {
			return p.Op == permission.OpPublish && permission.Covers(p.Subject, subject)
		}
		if got := slices.ContainsFunc(gateway.Allow, covers) && !slices.ContainsFunc(gateway.Deny, covers); got != may {
			t.Errorf("a gateway publishes %s: %v", subject, got)
		}
	}
	if _, err := permission.ParseRole("root"); err == nil {
		t.Error("there is a role root")
	}
}

func ExampleAccounts() {
	a := permission.Accounts{
		Tenants: []session.Tenant{"acme"},
		Users: []permission.User{
			{Role: permission.RoleNode, Name: "node", Secret: "password: secret"},
			{Role: permission.RoleOperator, Name: "operator", Secret: "password: secret"},
			{Role: permission.RoleSubmit, Tenant: "acme", Name: "ana", Secret: "password: secret"},
			{Role: permission.RoleTool, Tenant: "acme", Name: "tool-acme", Secret: "password: secret"},
		},
		Grant: func(r permission.Role, at permission.Place) *permission.Grant {
			if r != permission.RoleSubmit {
				return nil
			}
			g := permission.GrantOf(r, at)
			return &g
		},
	}
	fmt.Print(a.Config())
	// Output:
	// accounts {
	//   RATH {
	//     jetstream: enabled
	//     users: [
	//       {user: "node", password: secret}
	//       {user: "operator", password: secret}
	//     ]
	//     exports: [
	//       {service: "rath.task.acme.*.*"}
	//       {service: "rath.ctl.acme.>"}
	//       {service: "rath.query.acme.>", response_type: stream}
	//       {service: "rath.store.acme.*"}
	//       {stream: "rath.run.acme.>"}
	//       {stream: "rath.tail.acme.>"}
	//     ]
	//     imports: [
	//       {service: {account: CLIENTS_acme, subject: "rath.tool.acme.*"}}
	//       {service: {account: CLIENTS_acme, subject: "rath.host.acme.*.*"}}
	//     ]
	//   }
	//   CLIENTS_acme {
	//     users: [
	//       {user: "ana", password: secret, permissions: {
	//         publish: {
	//           allow: [
	//             "rath.task.acme.ana.*"
	//             "rath.ctl.acme.ana.*.cancel"
	//             "rath.ctl.acme.ana.*.message"
	//             "rath.ctl.acme.ana.session.*.message"
	//             "rath.ctl.acme.ana.*.publish"
	//             "rath.ctl.acme.ana.*.rerun"
	//             "rath.ctl.acme.ana.*.resume"
	//             "rath.ctl.acme.ana.blob.*.put"
	//             "rath.ctl.acme.ana.memory.*.write"
	//             "rath.query.acme.>"
	//             "$SYS.REQ.USER.INFO"
	//           ]
	//         }
	//         subscribe: {
	//           allow: [
	//             "rath.run.acme.>"
	//             "rath.tail.acme.>"
	//             "_INBOX.>"
	//           ]
	//         }
	//       }}
	//       {user: "tool-acme", password: secret}
	//     ]
	//     exports: [
	//       {service: "rath.tool.acme.*", threshold: "10m"}
	//       {service: "rath.host.acme.*.*"}
	//     ]
	//     imports: [
	//       {service: {account: RATH, subject: "rath.task.acme.*.*"}}
	//       {service: {account: RATH, subject: "rath.ctl.acme.>"}}
	//       {service: {account: RATH, subject: "rath.query.acme.>"}}
	//       {service: {account: RATH, subject: "rath.store.acme.*"}}
	//       {stream: {account: RATH, subject: "rath.run.acme.>"}}
	//       {stream: {account: RATH, subject: "rath.tail.acme.>"}}
	//     ]
	//   }
	// }
}

// TestCommands: accounts made by nsc have the same exports and imports as those of a
// configuration.
func TestCommands(t *testing.T) {
	a := permission.Accounts{Tenants: []session.Tenant{"acme", "globex"}}
	exchanged := regexp.MustCompile(`(?m)^ +\{(service|stream): (?:\{account: (\w+), subject: )?"([^"]+)"(, response_type: stream)?`)
	var want []string
	for _, m := range exchanged.FindAllStringSubmatch(a.Config(), -1) {
		want = append(want, fmt.Sprint(m[2] != "", m[1] == "service", m[3], m[4] != ""))
	}
	command := regexp.MustCompile(`(?s)^nsc add (export|import) .*?(--service )?--(?:remote-)?subject '([^']+)'( --response-type Stream)?$`)
	var got []string
	for _, c := range a.Commands() {
		if m := command.FindStringSubmatch(c); m != nil {
			got = append(got, fmt.Sprint(m[1] == "import", m[2] != "", m[3], m[4] != ""))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) != 4*8 || !slices.Equal(got, want) {
		t.Errorf("nsc is told %q\nthe configuration has %q", got, want)
	}
}

// TestFormatPermissions: FORMAT.md names each permission of each role, and no others.
func TestFormatPermissions(t *testing.T) {
	_, text, _ := strings.Cut(messages.Format(), "\n### Permissions\n")
	text, _, _ = strings.Cut(text, "\n## ")
	known := map[string]bool{permission.ResponsesFor: true, "anonymous": true, "allow_responses": true, "<user>": true, "operator": true, "session": true, "rath cluster provision --print-permissions": true}
	for _, r := range permission.Roles() {
		g := permission.GrantOf(r, permission.Place{Tenant: "<tenant>", User: "<user>", Partitions: 1})
		for _, p := range append(g.Allow, g.Deny...) {
			replaced := []string{"rath.ev.1.", "rath.ev.<generation>.", "EV_1_0", "EV_<generation>_<partition>"}
			if r == permission.RoleGateway {
				replaced = []string{"rath.ctl.<tenant>.*.", "rath.ctl.<tenant>.<user>.", "rath.task.<tenant>.*.", "rath.task.<tenant>.<user>."}
			}
			name := strings.NewReplacer(replaced...).Replace(p.Subject)
			known[name] = true
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("FORMAT.md does not name %s, which a %s needs", name, r)
			}
		}
	}
	var table strings.Builder
	table.WriteString("| publishes | submit | approve | operate |\n|---|---|---|---|\n")
	row := func(subject string, may func(permission.Role) bool) {
		table.WriteString("| `" + subject + "` |")
		for _, r := range []permission.Role{permission.RoleSubmit, permission.RoleApprove, permission.RoleOperate} {
			if may(r) {
				table.WriteString(" yes")
			}
			table.WriteString(" |")
		}
		table.WriteString("\n")
	}
	row("rath.task.<tenant>.<user>.*", func(r permission.Role) bool { return r == permission.RoleSubmit })
	for _, v := range permission.Verbs() {
		if v.Roles != nil {
			row(v.Subject("<tenant>", "<user>"), v.For)
		}
	}
	if !strings.Contains(text, "\n"+table.String()+"\n") {
		t.Errorf("FORMAT.md has another table than\n%s", table.String())
	}
	for _, m := range regexp.MustCompile("(?s)`([^`]*)`").FindAllStringSubmatch(text, -1) {
		if !known[m[1]] {
			t.Errorf("FORMAT.md has the permission %q, and no role does", m[1])
		}
	}
}
