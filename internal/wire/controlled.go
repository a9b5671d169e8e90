package wire

import (
	"slices"
	"strings"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Controlled is the decoded subject of a control request.
type Controlled struct {
	Tenant session.Tenant
	// User is the user whose credentials the server checked: its permissions allow no
	// other user to publish there.
	User string
	// ID is a run's, and Verb a verb of runs. The verb of a session's own subject is
	// "session.message", and ID is then the session's; those of a dead letter are
	// "dlq.retry" and "dlq.drop", and ID is its sequence; those of a tool are
	// "tool.announce" and "tool.withdraw", and ID is its name; that of a blob is
	// "blob.put", and ID is its digest; those of a memory are "memory.write" and
	// "memory.forget", and ID is its name; that of a node is "node.drain", and ID is
	// its incarnation; those of a quota are "quota.set", "quota.open" and
	// "quota.remove", and ID is the tenant.
	ID, Verb string
}

// ParseControlSubject reads the subject of a control request.
func ParseControlSubject(subject string) (c Controlled, ok bool) {
	rest, ok := strings.CutPrefix(subject, messages.ControlPrefix)
	if !ok {
		return Controlled{}, false
	}
	p := strings.Split(rest, ".")
	switch {
	case len(p) == 4:
		c.ID, c.Verb = p[2], p[3]
	case len(p) == 5 && slices.Contains(things, p[2]):
		c.ID, c.Verb = p[3], p[2]+"."+p[4]
	default:
		return Controlled{}, false
	}
	if session.ValidID("tenant", p[0]) != nil || messages.ValidUser(p[1]) != nil || session.ValidID("run", c.ID) != nil {
		return Controlled{}, false
	}
	c.Tenant, c.User = session.Tenant(p[0]), p[1]
	return c, true
}

// things are the targets of verbs besides runs.
var things = []string{"session", "dlq", "tool", "blob", "archive", "memory", "node", "lineage", "quota"}
