package permission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Role is what a NATS user is for.
type Role string

// The roles.
const (
	// RoleNode runs workflows.
	RoleNode Role = "node"
	// RoleRouter chooses and waits for others; it is a node of another pool and
	// needs the same.
	RoleRouter Role = "router"
	// RoleClient is a program of a tenant that submits, asks and watches.
	RoleClient Role = "client"
	// RoleTool is a client that also has tools.
	RoleTool Role = "tool"
	// RoleOperator provisions, audits, prunes and drains.
	RoleOperator Role = "operator"
)

// Roles returns all roles.
func Roles() []Role { return []Role{RoleNode, RoleRouter, RoleClient, RoleTool, RoleOperator} }

// ParseRole reads a role's name.
func ParseRole(s string) (Role, error) {
	if r := Role(s); slices.Contains(Roles(), r) {
		return r, nil
	}
	return "", fmt.Errorf("role %q: want node, router, client, tool or operator", s)
}

// Doc says in a few words what a role is for.
func (r Role) Doc() string {
	switch r {
	case RoleNode:
		return "runs workflows"
	case RoleRouter:
		return "runs the workflows auto and fanout; the same as a node"
	case RoleClient:
		return "submits tasks of one tenant, asks and watches"
	case RoleTool:
		return "a client that also answers calls of its tools"
	case RoleOperator:
		return "provisions, audits, prunes, drains"
	}
	return ""
}

// OfTenant reports whether users of a role belong to one tenant.
func (r Role) OfTenant() bool { return r == RoleClient || r == RoleTool }

// UserOf is the name of a role's user where none is given: of a tenant's with its name.
func UserOf(r Role, t session.Tenant) string {
	if r.OfTenant() {
		return string(r) + "-" + string(t)
	}
	return string(r)
}

// CheckUser refuses a name that a user of a role cannot have.
func CheckUser(r Role, name string) error {
	if err := messages.ValidUser(name); err != nil {
		return err
	}
	if r.OfTenant() && name == messages.UserOperator {
		return fmt.Errorf("user %q: %w: it stands for who works on the store; give a user of a tenant another name", name, run.ErrMalformed)
	}
	return nil
}

// What a permission is about.
const (
	OpPublish   = "publish"
	OpSubscribe = "subscribe"
)

// SubjectUserInfo is where a user asks the server what it may do.
const SubjectUserInfo = "$SYS.REQ.USER.INFO"

// Inboxes of answers, as subject prefixes: of clients, of nodes and operators,
// and the one that answers to another account have.
const (
	InboxClient  = "_INBOX"
	InboxNode    = "_RATH"
	inboxAccount = "_R_"
)

// Permission lets a user publish or subscribe to what a subject matches.
type Permission struct {
	Op      string `json:"op"` // OpPublish or OpSubscribe
	Subject string `json:"subject"`
	Why     string `json:"why"`
	// Answer marks inboxes of others: permission to respond does instead.
	Answer bool `json:"answer,omitempty"`
	// Repair marks what only a repair needs: a user without it works, and the
	// repair fails with an error that names it.
	Repair bool `json:"repair,omitempty"`
}

// String is "publish to rath.task.acme.*".
func (p Permission) String() string { return p.Op + " to " + p.Subject }

// Place is what the subjects of a role depend on. Its zero value is tenant
// "default", the user that UserOf names and the first generation with no event streams.
type Place struct {
	Tenant                 session.Tenant
	User                   string // a token of the subjects that it controls runs on
	Generation, Partitions uint32
}

// Grant is exactly what a user of a role needs.
type Grant struct {
	Role  Role         `json:"role"`
	User  string       `json:"user"`
	Allow []Permission `json:"allow"`
	// Deny is taken away from what Allow matches.
	Deny []Permission `json:"deny,omitempty"`
	// Responses lets the user answer requests, once each.
	Responses bool `json:"responses,omitempty"`
}

// ResponsesFor is how long a request may be answered under Grant.Responses: as
// long as the longest call of a tool, in the notation of the server.
const ResponsesFor = "10m"

// GrantOf lists what a role needs.
func GrantOf(r Role, at Place) Grant {
	if at.Tenant == "" {
		at.Tenant = session.DefaultTenant
	}
	if at.Generation == 0 {
		at.Generation = 1
	}
	if at.User == "" {
		at.User = UserOf(r, at.Tenant)
	}
	g := Grant{Role: r, User: at.User}
	switch r {
	case RoleNode, RoleRouter:
		g.Allow = nodeNeeds(at)
	case RoleClient:
		g.Allow, g.Deny = clientNeeds(at), []Permission{toolControl(at)}
	case RoleTool:
		g.Allow = append(clientNeeds(at), toolControl(at), subscribe(messages.ToolPrefix+string(at.Tenant)+".*", "calls of its tools"))
		g.Responses = true
	case RoleOperator:
		g.Allow = operatorNeeds(at.User)
	}
	return g
}

func publish(subject, why string) Permission {
	return Permission{Op: OpPublish, Subject: subject, Why: why}
}

func repair(subject string) Permission {
	return Permission{Op: OpPublish, Subject: subject, Why: "recreating a stream in memory that its servers lost", Repair: true}
}

func subscribe(subject, why string) Permission {
	return Permission{Op: OpSubscribe, Subject: subject, Why: why}
}

func toolControl(at Place) Permission {
	return publish(messages.ControlPrefix+string(at.Tenant)+"."+at.User+".tool.>", "announcing tools")
}

func clientNeeds(at Place) []Permission {
	t := at.Tenant
	return []Permission{
		publish(messages.TaskPrefix+string(t)+".*", "tasks"),
		publish(messages.ControlPrefix+string(t)+"."+at.User+".>", "cancels, approvals, messages"),
		publish(messages.QueryPrefix+string(t)+".>", "questions"),
		subscribe(messages.RunPrefix+string(t)+".>", "deltas, events and results of its runs"),
		subscribe("rath.tail."+string(t)+".>", "lineage as it happens"),
		subscribe(InboxClient+".>", "answers"),
		publish(SubjectUserInfo, "asking for the name that control requests take"),
	}
}

// UsersOf are the users that permissions to publish allow control requests of a tenant
// to name.
func UsersOf(publish []string, t session.Tenant) []string {
	var users []string
	for _, subject := range publish {
		rest, ok := strings.CutPrefix(subject, messages.ControlPrefix)
		p := strings.Split(rest, ".")
		if ok && len(p) > 2 && (p[0] == string(t) || p[0] == "*") && p[1] != "*" && !slices.Contains(users, p[1]) {
			users = append(users, p[1])
		}
	}
	return users
}

// nodeNeeds has no permission to respond: the server notes the reply subject of
// each message that it delivers to a user with it, and to a node it delivers
// every commit.
func nodeNeeds(at Place) []Permission {
	answer := func(prefix, why string) Permission {
		return Permission{Op: OpPublish, Subject: prefix + ".>", Why: why, Answer: true}
	}
	all := []Permission{
		publish(fmt.Sprintf("rath.ev.%d.>", at.Generation), "commits of sessions"),
		publish("rath.snap.>", "snapshots"),
		publish("rath.page.>", "pages of snapshots"),
		publish("rath.blob.>", "blobs"),
		publish(messages.TaskPrefix+">", "tasks that are submitted again"),
		publish("rath.lineage.>", "lineage"),
		publish("rath.tail.>", "lineage as it happens"),
		publish(messages.RunPrefix+">", "deltas, events and results"),
		publish(messages.DeadLetterPrefix+">", "tasks that were refused"),
		publish(messages.NodePrefix+">", "what nodes send and ask each other"),
		publish(messages.ToolPrefix+">", "calls of tools of other programs"),
		publish("$KV."+messages.BucketNode+".>", "which nodes live"),
		publish("$KV."+messages.BucketRegistry+".>", "workflows and tools on offer"),
		publish("$KV."+messages.BucketAlias+".>", "names of runs and sessions"),
		publish("$JS.API.STREAM.INFO.*", "how streams are set up, and how full"),
		publish("$JS.API.STREAM.MSG.GET.*", "reading from the leader of a stream"),
		publish("$JS.API.DIRECT.GET.>", "reading from any replica"),
		publish("$JS.API.CONSUMER.INFO.*.*", "how the queue of tasks is set up"),
		publish("$JS.API.CONSUMER.MSG.NEXT.*.*", "taking tasks, reading commits in order"),
	}
	for p := range at.Partitions {
		all = append(all, publish("$JS.API.CONSUMER.CREATE."+messages.EventStream(at.Generation, p)+".>", "reading commits in order"))
	}
	return append(all,
		publish("$JS.API.CONSUMER.CREATE."+messages.StreamLineage+".>", "reading lineage in order"),
		publish("$JS.API.CONSUMER.CREATE."+messages.StreamTasks+".>", "the queue of tasks, and one that lost count of its stream"),
		publish("$JS.API.CONSUMER.DELETE."+messages.StreamTasks+".*", "the queue of tasks, and one that lost count of its stream"),
		repair("$JS.API.STREAM.CREATE.KV_"+messages.BucketNode),
		repair("$JS.API.STREAM.DELETE.KV_"+messages.BucketNode),
		publish("$JS.ACK.>", "acknowledging tasks"),
		publish(SubjectUserInfo, "asking at the start what these credentials may do"),
		answer(InboxClient, "answers to clients of the same account"),
		answer(InboxNode, "answers to nodes and operators"),
		answer(inboxAccount, "answers to clients of other accounts"),
		subscribe(messages.ControlPrefix+">", "cancels, approvals, messages"),
		subscribe(messages.QueryPrefix+">", "questions"),
		subscribe(messages.NodePrefix+">", "what nodes send and ask each other"),
		subscribe("$SRV.>", "being listed by `nats micro ls`"),
		subscribe(InboxNode+".>", "answers"),
	)
}

func operatorNeeds(user string) []Permission {
	return []Permission{
		publish("$JS.API.STREAM.CREATE.*", "provisioning"),
		publish("$JS.API.STREAM.UPDATE.*", "provisioning"),
		repair("$JS.API.STREAM.DELETE.KV_" + messages.BucketNode),
		publish("$JS.API.STREAM.DELETE.WORK", "provisioning: a stream that former releases left"),
		publish("$JS.API.CONSUMER.CREATE.>", "provisioning the queue of tasks; reading streams in order"),
		publish("$JS.API.CONSUMER.DELETE.*.*", "provisioning: a queue of tasks that no server leads"),
		publish("$JS.API.STREAM.INFO.*", "how streams are set up, and how full"),
		publish("$JS.API.STREAM.NAMES", "which event streams there are"),
		publish("$JS.API.STREAM.MSG.GET.*", "reading from the leader of a stream"),
		publish("$JS.API.STREAM.PURGE.*", "retention: archived sessions"),
		publish("$JS.API.STREAM.MSG.DELETE.*", "retention: what is archived"),
		publish("$JS.API.DIRECT.GET.>", "reading from any replica"),
		publish("$JS.API.CONSUMER.INFO.*.*", "how the queue of tasks is set up"),
		publish("$JS.API.CONSUMER.LIST.*", "how far nodes are behind"),
		publish("$JS.API.CONSUMER.MSG.NEXT.*.*", "reading streams in order"),
		publish(SubjectUserInfo, "asking what these credentials may do"),
		publish("rath.ev.>", "retention: archiving sessions in their logs"),
		publish(messages.TaskPrefix+">", "tasks of any tenant"),
		publish(messages.ControlPrefix+"*."+user+".>", "cancels, approvals, messages"),
		publish(messages.QueryPrefix+">", "questions"),
		publish(messages.NodePrefix+">", "draining nodes"),
		subscribe(messages.RunPrefix+">", "deltas, events and results"),
		subscribe("rath.tail.>", "lineage as it happens"),
		subscribe(InboxClient+".>", "answers to what clients ask, too"),
		subscribe(InboxNode+".>", "answers"),
	}
}

// Needed returns the permission that a refused subject falls under, of any role;
// it is the subject itself if none names it.
func Needed(op, subject string) Permission {
	at := Place{Tenant: "*", User: "*", Partitions: 0}
	p := strings.Split(subject, ".")
	if len(p) > 2 && p[0] == "rath" && session.ValidID("tenant", p[2]) == nil {
		at.Tenant = session.Tenant(p[2])
	}
	if len(p) > 3 && strings.HasPrefix(subject, messages.ControlPrefix) && messages.ValidUser(p[3]) == nil {
		at.User = p[3]
	}
	roles := []Role{RoleClient, RoleTool, RoleNode, RoleOperator}
	if at.User == messages.UserOperator {
		roles = []Role{RoleOperator}
	}
	for _, r := range roles {
		var best Permission
		for _, p := range GrantOf(r, at).Allow {
			if p.Op == op && Covers(p.Subject, subject) && len(p.Subject) > len(best.Subject) {
				best = p
			}
		}
		if best.Subject != "" {
			return best
		}
	}
	return Permission{Op: op, Subject: subject}
}

// Covers reports whether everything that a subject matches, which may have
// wildcards itself, is matched by a pattern.
func Covers(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range p {
		switch {
		case token == ">":
			return len(s) > i
		case i >= len(s), s[i] == ">":
			return false
		case token == "*":
		case token != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}

// Overlap reports whether there is a subject that both patterns match.
func Overlap(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; ; i++ {
		switch {
		case i == len(x) || i == len(y):
			return len(x) == len(y)
		case x[i] == ">" || y[i] == ">":
			return true
		case x[i] != y[i] && x[i] != "*" && y[i] != "*":
			return false
		}
	}
}

// Held is what a server says that a user may do. An empty list allows every
// subject; an entry of a queue is "subject queue".
type Held struct {
	Publish, Subscribe struct {
		Allow []string `json:"allow"`
		Deny  []string `json:"deny"`
	}
	// Responses: the user may answer requests.
	Responses bool
}

// Missing returns what a user with these permissions lacks for a grant.
func (g *Grant) Missing(h *Held) []Permission {
	var out []Permission
	for _, p := range g.Allow {
		if p.Repair {
			continue
		}
		has := &h.Publish
		if p.Op == OpSubscribe {
			has = &h.Subscribe
		}
		covers := func(pattern string) bool { return Covers(pattern, p.Subject) }
		allowed := len(has.Allow) == 0 || slices.ContainsFunc(has.Allow, covers) || p.Answer && h.Responses
		denied := slices.ContainsFunc(has.Deny, func(pattern string) bool {
			pattern, _, _ = strings.Cut(pattern, " ")
			return Overlap(pattern, p.Subject)
		})
		if !allowed || denied {
			out = append(out, p)
		}
	}
	return out
}
