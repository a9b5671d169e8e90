package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// input is the input of the workflow.
type input struct {
	Event

	To      string `json:"to"`                 // target
	AfterMS int64  `json:"after_ms,omitempty"` // of a reminder
}

// Tenants returns the tenants with a rule for events of a kind.
func (l *List) Tenants(kind string) (all []session.Tenant) {
	for _, r := range l.rules {
		if slices.Contains(r.on, kind) && !slices.Contains(all, r.tenant) {
			all = append(all, r.tenant)
		}
	}
	return all
}

// Wants reports whether a rule of the tenant may match events of a kind.
func (l *List) Wants(t session.Tenant, kind string) bool {
	return slices.ContainsFunc(l.rules, func(r *rule) bool { return r.tenant == t && r.has(kind) })
}

// has reports whether the rule is for a kind. A run that reached its budget has failed.
func (r *rule) has(kind string) bool {
	return slices.Contains(r.on, kind) || kind == Budget && slices.Contains(r.on, Failed)
}

func (r *rule) matches(t session.Tenant, e *Event) bool {
	return r.tenant == t && r.has(e.Kind) && (len(r.workflows) == 0 || slices.ContainsFunc(r.workflows, func(pattern string) bool {
		ok, _ := path.Match(pattern, e.Workflow) // Parse has checked the pattern
		return ok
	}))
}

// Tasks returns the tasks of the notifications of an event. place identifies the event
// within the tenant. The same event has the same tasks, so that submitting them again has
// no effect. Events about notifications have none.
func (l *List) Tasks(t session.Tenant, place string, e Event) []messages.Task {
	if e.Workflow == Workflow {
		return nil
	}
	var all []messages.Task
	add := func(in input) {
		queue := []string{"queue", string(t), in.To, string(e.Run)}
		again := ""
		if in.AfterMS > 0 { // it waits, and other notifications do not wait behind it
			again = "again"
		}
		if in.AfterMS > 0 || e.Run == "" {
			queue = append(queue, place)
		}
		task := messages.Task{ID: run.ID(digest("notification", string(t), in.To, place, again)), Session: digest(queue...)}
		task.Input, _ = json.Marshal(in) // texts and numbers
		if !slices.ContainsFunc(all, func(other messages.Task) bool { return other.ID == task.ID }) {
			all = append(all, task)
		}
	}
	for _, r := range l.rules {
		if !r.matches(t, &e) {
			continue
		}
		add(input{Event: e, To: r.to})
		if e.Kind == Question && r.again != "" {
			add(input{Event: e, To: r.again, AfterMS: r.after.Milliseconds()})
		}
	}
	return all
}

// digest derives an id from parts.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "notify-" + hex.EncodeToString(sum[:16])
}

// allows reports whether a rule of a tenant names a target.
func (l *List) allows(t session.Tenant, to string) bool {
	return slices.ContainsFunc(l.rules, func(r *rule) bool { return r.tenant == t && (r.to == to || r.again == to) })
}
