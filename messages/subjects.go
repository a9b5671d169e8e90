package messages

import (
	"strings"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The first tokens of subjects.
const (
	TaskPrefix    = "rath.task."
	RunPrefix     = "rath.run."
	ControlPrefix = "rath.ctl."
	QueryPrefix   = "rath.query."
	NodePrefix    = "rath.node."
)

// What a run publishes, the last token of its subjects.
const (
	OnDelta  = "delta"
	OnEvent  = "event"
	OnResult = "result"
)

// TaskSubject is where tasks for a workflow are submitted.
func TaskSubject(t session.Tenant, workflow string) string {
	return TaskPrefix + string(t) + "." + workflow
}

// ParseTaskSubject reads tenant and workflow from a subject, which decides
// both. ok is false if it is none, or if either is not a valid id.
func ParseTaskSubject(subject string) (t session.Tenant, workflow string, ok bool) {
	rest, ok := strings.CutPrefix(subject, TaskPrefix)
	if !ok {
		return "", "", false
	}
	tenant, workflow, _ := strings.Cut(rest, ".")
	if session.ValidID("tenant", tenant) != nil || session.ValidID("workflow", workflow) != nil {
		return "", "", false
	}
	return session.Tenant(tenant), workflow, true
}

// RunSubject is where a run publishes: OnDelta, OnEvent or OnResult; "*" is
// all of them.
func RunSubject(t session.Tenant, id run.ID, on string) string {
	return RunPrefix + string(t) + "." + string(id) + "." + on
}

// ControlSubject is where a run takes a verb.
func ControlSubject(t session.Tenant, id run.ID, verb string) string {
	return ControlPrefix + string(t) + "." + string(id) + "." + verb
}

// ParseControlSubject reads tenant, run and verb. The verb of a session's own
// subject is "session.message", and id is then the session's.
func ParseControlSubject(subject string) (t session.Tenant, id, verb string, ok bool) {
	rest, ok := strings.CutPrefix(subject, ControlPrefix)
	if !ok {
		return "", "", "", false
	}
	p := strings.Split(rest, ".")
	switch {
	case len(p) == 3:
		id, verb = p[1], p[2]
	case len(p) == 4 && p[1] == "session":
		id, verb = p[2], "session."+p[3]
	default:
		return "", "", "", false
	}
	if session.ValidID("tenant", p[0]) != nil || session.ValidID("run", id) != nil {
		return "", "", "", false
	}
	return session.Tenant(p[0]), id, verb, true
}

// QuerySubject is where a tenant asks.
func QuerySubject(t session.Tenant, verb string) string {
	return QueryPrefix + string(t) + "." + verb
}

// DeliverSubject is where an incarnation takes work for sessions that it
// holds.
func DeliverSubject(incarnation string) string { return NodePrefix + incarnation + ".deliver" }
