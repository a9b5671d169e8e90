package permission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Role is the purpose of a NATS user.
type Role string

// The roles.
const (
	// RoleNode runs workflows.
	RoleNode Role = "node"
	// RoleRouter chooses and waits for other workflows; it is a node of another pool. It
	// also serves the web, and reads tokens and page sessions for that.
	RoleRouter Role = "router"
	// RoleHost runs the workflows of one tenant, as a node bound to it.
	RoleHost Role = "host"
	// RoleObserve reads all data of a tenant, as all of its users may.
	RoleObserve Role = "observe"
	// RoleSubmit submits tasks of a tenant and sends messages to its runs.
	RoleSubmit Role = "submit"
	// RoleApprove answers the questions of runs.
	RoleApprove Role = "approve"
	// RoleOperate decides about runs that are stuck or go wrong.
	RoleOperate Role = "operate"
	// RoleClient is all of these.
	RoleClient Role = "client"
	// RoleTool is a client that also has tools.
	RoleTool Role = "tool"
	// RoleGateway is a client that acts for the users whom it has authenticated.
	RoleGateway Role = "gateway"
	// RoleOperator provisions, audits, prunes and drains.
	RoleOperator Role = "operator"
)

// roles in the order for readers, each with its purpose.
var roles = []struct {
	role Role
	doc  string
}{
	{RoleNode, "runs workflows"},
	{RoleRouter, "runs the workflows auto and fanout, and serves the web; a node that reads tokens"},
	{RoleHost, "runs workflows of one tenant: a node that is bound to it"},
	{RoleObserve, "reads and watches the runs of one tenant"},
	{RoleSubmit, "submits tasks, talks to runs, cancels them; reads"},
	{RoleApprove, "approves, rejects and answers what runs ask; reads"},
	{RoleOperate, "resolves, cancels, reruns, resumes, quarantines, sets budgets, drains; reads"},
	{RoleClient, "submit, approve and operate in one"},
	{RoleTool, "a client that also answers calls of its tools"},
	{RoleGateway, "a client that names its users itself: the web of a router"},
	{RoleOperator, "provisions, audits, prunes, drains"},
}

// Roles returns all roles.
func Roles() []Role {
	all := make([]Role, len(roles))
	for i := range roles {
		all[i] = roles[i].role
	}
	return all
}

// ParseRole reads a role's name.
func ParseRole(s string) (Role, error) {
	if r := Role(s); r.Doc() != "" {
		return r, nil
	}
	return "", fmt.Errorf("role %q: want one of %s", s, RoleNames())
}

// RoleNames lists the names of all roles.
func RoleNames() string {
	var names []string
	for _, r := range Roles() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// Doc returns a short description of a role.
func (r Role) Doc() string {
	for _, known := range roles {
		if known.role == r {
			return known.doc
		}
	}
	return ""
}

// OfTenant reports whether users of a role belong to one tenant.
func (r Role) OfTenant() bool { return r != RoleNode && r != RoleRouter && r != RoleOperator }

// UserOf returns the default user name of a role, which includes the tenant's name for a
// role of a tenant.
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

// Verb is a verb of control, as wire.ParseControlSubject returns it.
type Verb struct {
	Name  string
	Roles []Role // that may use it, beside RoleClient and RoleTool
	Why   string
}

// verbs lists the roles of a tenant that may use each verb.
var verbs = []Verb{
	{messages.VerbCancel, []Role{RoleSubmit, RoleOperate}, "stopping runs"},
	{messages.VerbMessage, []Role{RoleSubmit}, "talking to runs"},
	{messages.VerbSessionMessage, []Role{RoleSubmit}, "talking to sessions"},
	{messages.VerbPublish, []Role{RoleSubmit}, "publishing events"},
	{messages.VerbRerun, []Role{RoleSubmit, RoleOperate}, "submitting a run's task again"},
	{messages.VerbResume, []Role{RoleSubmit, RoleOperate}, "continuing a run that has ended"},
	{messages.VerbBlobPut, []Role{RoleSubmit, RoleOperate}, "files of tasks, and what is imported"},
	{messages.VerbApprove, []Role{RoleApprove}, "approving what runs ask"},
	{messages.VerbReject, []Role{RoleApprove}, "rejecting what runs ask"},
	{messages.VerbRespond, []Role{RoleApprove}, "answering what runs ask"},
	{messages.VerbResolve, []Role{RoleOperate}, "deciding about calls that were cut off"},
	{messages.VerbQuarantine, []Role{RoleOperate}, "quarantine of sessions"},
	{messages.VerbRelease, []Role{RoleOperate}, "ending a quarantine"},
	{messages.VerbRebudget, []Role{RoleOperate}, "budgets of runs"},
	{messages.VerbLetterRetry, []Role{RoleOperate}, "submitting refused tasks again"},
	{messages.VerbLetterDrop, []Role{RoleOperate}, "dropping refused tasks"},
	{messages.VerbImport, []Role{RoleOperate}, "bringing archived sessions back"},
	{messages.VerbRepair, []Role{RoleOperate}, "deriving lineage again that was lost"},
	{messages.VerbMemoryWrite, []Role{RoleSubmit}, "notes for agents"},
	{messages.VerbMemoryForget, []Role{RoleOperate}, "removing notes"},
	{messages.VerbNodeDrain, []Role{RoleOperate}, "draining nodes that no other tenant uses"},
	{messages.VerbToolAnnounce, nil, "announcing tools"},
	{messages.VerbToolWithdraw, nil, "withdrawing tools"},
}

// Verbs returns all verbs of control.
func Verbs() []Verb { return slices.Clone(verbs) }

// VerbSubmit is the use of a role that publishes tasks. It is no verb of control.
const VerbSubmit = "submit"

// RolesFor returns the roles of a tenant's users that may use a verb of control or
// VerbSubmit; none for another verb.
func RolesFor(verb string) []Role {
	if verb == VerbSubmit {
		return []Role{RoleSubmit, RoleClient}
	}
	for _, v := range verbs {
		if v.Name == verb && v.Roles != nil {
			return append(slices.Clone(v.Roles), RoleClient)
		}
	}
	return nil
}

// For reports whether a role of a tenant may use the verb.
func (v *Verb) For(r Role) bool {
	switch r {
	case RoleTool:
		return true
	case RoleClient, RoleGateway:
		return v.Roles != nil
	}
	return slices.Contains(v.Roles, r)
}

// Subject returns the subject to which a user publishes to use the verb, on any run,
// session or other object of the verb.
func (v *Verb) Subject(t session.Tenant, user string) string {
	on, verb, thing := strings.Cut(v.Name, ".")
	if !thing {
		return messages.ControlPrefix + string(t) + "." + user + ".*." + v.Name
	}
	return messages.ControlPrefix + string(t) + "." + user + "." + on + ".*." + verb
}
