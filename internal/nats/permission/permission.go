package permission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// The operations of a permission.
const (
	OpPublish   = "publish"
	OpSubscribe = "subscribe"
)

// SubjectUserInfo is the subject on which a user asks the server for its permissions.
const SubjectUserInfo = "$SYS.REQ.USER.INFO"

// Inboxes of answers, as subject prefixes: of clients, of nodes and operators, and of
// services that answer to another account.
const (
	InboxClient  = "_INBOX"
	InboxNode    = "_RATH"
	inboxAccount = "_R_"
)

// Permission lets a user publish or subscribe to the subjects that Subject matches.
type Permission struct {
	Op      string `json:"op"` // OpPublish or OpSubscribe
	Subject string `json:"subject"`
	Why     string `json:"why"`
	// Answer marks inboxes of others: permission to respond does instead.
	Answer bool `json:"answer,omitempty"`
	// Repair marks a permission that only a repair needs: a user without it works, and the
	// repair fails with an error that names it.
	Repair bool `json:"repair,omitempty"`
}

// String is "publish to rath.task.acme.ana.*".
func (p Permission) String() string { return p.Op + " to " + p.Subject }

// Place holds the values on which the subjects of a role depend. Its zero value is tenant
// "default", the user that UserOf names and the first generation with no event streams.
type Place struct {
	Tenant                 session.Tenant
	User                   string // a token of the subjects that it controls runs on
	Generation, Partitions uint32
}

// Grant is the exact set of permissions that a user of a role needs.
type Grant struct {
	Role  Role         `json:"role"`
	User  string       `json:"user"`
	Allow []Permission `json:"allow"`
	// Deny is excluded from the matches of Allow.
	Deny []Permission `json:"deny,omitempty"`
	// Responses lets the user answer requests, once each.
	Responses bool `json:"responses,omitempty"`
}

// ResponsesFor is how long a request may be answered under Grant.Responses: as
// long as the longest call of a tool, in the notation of the server.
const ResponsesFor = "10m"

// GrantOf returns the permissions that a role needs.
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
	case RoleNode:
		g.Allow, g.Deny = nodeNeeds(at), accessDenied()
	case RoleRouter:
		g.Allow = append(nodeNeeds(at), publish("$KV."+messages.BucketAccess+".session.*", "page sessions"))
	case RoleGateway:
		at.User = "*"
		g.Allow, g.Deny = tenantNeeds(r, at), gatewayDenied(at.Tenant)
	case RoleOperator:
		g.Allow = operatorNeeds(at.User)
	case RoleHost:
		g.Allow, g.Responses = hostNeeds(at), true
	default:
		g.Allow = tenantNeeds(r, at)
	}
	if r == RoleTool {
		g.Allow = append(g.Allow, subscribe(messages.ToolPrefix+string(at.Tenant)+".*", "calls of its tools"))
		g.Responses = true
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

// tenantNeeds returns the permissions of a role of a tenant: every role may read, and may
// use the verbs of the role.
func tenantNeeds(r Role, at Place) []Permission {
	t := string(at.Tenant)
	var all []Permission
	if r != RoleObserve && r != RoleApprove && r != RoleOperate {
		all = append(all, publish(messages.TaskPrefix+t+"."+at.User+".*", "tasks"))
	}
	for _, v := range verbs {
		if v.For(r) {
			all = append(all, publish(v.Subject(at.Tenant, at.User), v.Why))
		}
	}
	return append(all,
		publish(messages.QueryPrefix+t+".>", "questions"),
		publish(SubjectUserInfo, "asking for the name that tasks and control requests take"),
		subscribe(messages.RunPrefix+t+".>", "deltas, events and results of its runs"),
		subscribe("rath.tail."+t+".>", "lineage as it happens"),
		subscribe(InboxClient+".>", "answers"),
	)
}

// TenantsOf are the tenants whose subjects these match by name: none for a user of all
// tenants, and for one of none.
func TenantsOf(subjects []string) []session.Tenant {
	var tenants []session.Tenant
	for _, subject := range subjects {
		p := strings.Split(subject, ".")
		if len(p) < 3 || p[0] != "rath" || !slices.Contains(ofTenants, p[0]+"."+p[1]+".") || session.ValidID("tenant", p[2]) != nil {
			continue
		}
		if t := session.Tenant(p[2]); !slices.Contains(tenants, t) {
			tenants = append(tenants, t)
		}
	}
	return tenants
}

// ofTenants begin the subjects whose next token is a tenant.
var ofTenants = []string{messages.TaskPrefix, messages.ControlPrefix, messages.QueryPrefix, messages.RunPrefix, messages.ToolPrefix, messages.StorePrefix, "rath.tail."}

// hostNeeds returns the permissions of a node bound to a tenant. It has none of JetStream,
// and each of its subjects names the tenant.
func hostNeeds(at Place) []Permission {
	t := string(at.Tenant)
	put := Verb{Name: messages.VerbBlobPut}
	return []Permission{
		publish(messages.StorePrefix+t+".*", "what it stores and reads"),
		publish(messages.QueryPrefix+t+".>", "commits and blobs of its tenant, and what is on offer"),
		publish(put.Subject(at.Tenant, at.User), "blobs of its tenant"),
		publish(messages.RunPrefix+t+".*."+messages.OnDelta, "deltas of its runs"),
		publish(messages.ToolPrefix+t+".*", "calls of tools of other programs"),
		publish(SubjectUserInfo, "asking at the start what these credentials may do"),
		subscribe(messages.HostPrefix+t+".>", "runs that relays send to it, and what is asked of it"),
		subscribe(InboxNode+".>", "answers"),
	}
}

// HostOf returns the tenant to which permissions to publish bind a node; "" for the
// permissions of any other user.
func HostOf(publish []string) session.Tenant {
	for _, subject := range publish {
		rest, ok := strings.CutPrefix(subject, messages.StorePrefix)
		t, _, more := strings.Cut(rest, ".")
		if ok && more && session.ValidID("tenant", t) == nil {
			return session.Tenant(t)
		}
	}
	return ""
}

// UsersOf are the users that permissions to publish allow tasks and control requests of a
// tenant to name.
func UsersOf(publish []string, t session.Tenant) []string {
	var users []string
	for _, subject := range publish {
		rest, ok := strings.CutPrefix(subject, messages.ControlPrefix)
		if !ok {
			rest, ok = strings.CutPrefix(subject, messages.TaskPrefix)
		}
		p := strings.Split(rest, ".")
		if ok && len(p) > 2 && (p[0] == string(t) || p[0] == "*") && p[1] != "*" && !slices.Contains(users, p[1]) {
			users = append(users, p[1])
		}
	}
	return users
}

// accessDenied are the subjects with which a node could read tokens and page sessions.
func accessDenied() []Permission {
	const why = "tokens and page sessions, which routers alone read"
	stream := "KV_" + messages.BucketAccess
	return []Permission{
		publish("$JS.API.DIRECT.GET."+stream, why),
		publish("$JS.API.DIRECT.GET."+stream+".>", why),
		publish("$JS.API.STREAM.MSG.GET."+stream, why),
	}
}

// gatewayDenied are the names that no gateway may give to a user.
func gatewayDenied(t session.Tenant) []Permission {
	var all []Permission
	for _, name := range []string{messages.UserOperator, messages.UserAnonymous, "session"} {
		all = append(all,
			publish(messages.TaskPrefix+string(t)+"."+name+".*", "tasks in the name of "+name),
			publish(messages.ControlPrefix+string(t)+"."+name+".>", "control requests in the name of "+name))
	}
	return all
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
		publish("rath.memory.>", "notes of agents"),
		publish(messages.TaskPrefix+"*.*.*", "tasks that are submitted again"),
		publish("rath.lineage.>", "lineage"),
		publish("rath.tail.>", "lineage as it happens"),
		publish(messages.RunPrefix+">", "deltas, events and results"),
		publish(messages.DeadLetterPrefix+">", "tasks that were refused"),
		publish(messages.NodePrefix+">", "what nodes send and ask each other"),
		publish(messages.HostPrefix+">", "what bound nodes are sent"),
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
		publish("$JS.API.STREAM.MSG.DELETE."+messages.StreamLineage, "lineage behind a gap, which is derived again"),
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
		subscribe(messages.StorePrefix+">", "what bound nodes ask"),
		subscribe("$SRV.>", "being listed by `nats micro ls`"),
		subscribe(InboxNode+".>", "answers"),
	)
}

func operatorNeeds(user string) []Permission {
	return []Permission{
		publish("$JS.API.STREAM.CREATE.*", "provisioning"),
		publish("$JS.API.STREAM.UPDATE.*", "provisioning"),
		repair("$JS.API.STREAM.DELETE.KV_" + messages.BucketNode),
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
		publish("$KV."+messages.BucketAccess+".token.*", "tokens of the web"),
		publish("$KV."+messages.BucketAlias+".>", "retention: marks of the runs whose results are pruned"),
		publish(messages.TaskPrefix+"*."+user+".*", "tasks of any tenant"),
		publish(messages.ControlPrefix+"*."+user+".>", "cancels, approvals, messages"),
		publish(messages.QueryPrefix+">", "questions"),
		publish(messages.NodePrefix+">", "draining nodes"),
		publish(messages.HostPrefix+"*.*."+messages.NodeDrain, "draining bound nodes"),
		subscribe(messages.RunPrefix+">", "deltas, events and results"),
		subscribe("rath.tail.>", "lineage as it happens"),
		subscribe(InboxClient+".>", "answers to what clients ask, too"),
		subscribe(InboxNode+".>", "answers"),
	}
}

// Needed returns the permission that covers a rejected subject, and the roles that have it;
// it returns the subject itself, without roles, if no permission covers it.
func Needed(op, subject string) (Permission, []Role) {
	at := Place{Tenant: "*", User: "*", Partitions: 0}
	p := strings.Split(subject, ".")
	if len(p) > 2 && p[0] == "rath" && session.ValidID("tenant", p[2]) == nil {
		at.Tenant = session.Tenant(p[2])
	}
	if len(p) > 3 && (p[1] == "ctl" || p[1] == "task") && messages.ValidUser(p[3]) == nil {
		at.User = p[3]
	}
	// The roles with the fewest permissions come first.
	order := [][]Role{{RoleObserve}, {RoleSubmit, RoleApprove, RoleOperate}, {RoleTool}, {RoleHost}, {RoleNode}, {RoleOperator}}
	if at.User == messages.UserOperator || op == OpPublish && strings.HasPrefix(subject, messages.NodePrefix) && strings.HasSuffix(subject, "."+messages.NodeDrain) {
		order = order[len(order)-1:]
	}
	for _, alike := range order {
		var best Permission
		var of []Role
		for _, r := range alike {
			for _, p := range GrantOf(r, at).Allow {
				if p.Op != op || !Covers(p.Subject, subject) || len(p.Subject) < len(best.Subject) {
					continue
				}
				if best = p; !slices.Contains(of, r) {
					of = append(of, r)
				}
			}
		}
		if of != nil {
			return best, of
		}
	}
	return Permission{Op: op, Subject: subject}, nil
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

// Held is a server's answer with the permissions of a user. An empty list allows every
// subject; an entry of a queue is "subject queue".
type Held struct {
	Publish, Subscribe struct {
		Allow []string `json:"allow"`
		Deny  []string `json:"deny"`
	}
	// Responses: the user may answer requests.
	Responses bool
}

// Missing returns the permissions of a grant that a user with these permissions lacks.
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
			return Overlap(pattern, p.Subject) && !slices.ContainsFunc(g.Deny, func(own Permission) bool { return own.Op == p.Op && Covers(own.Subject, pattern) })
		})
		if !allowed || denied {
			out = append(out, p)
		}
	}
	return out
}
