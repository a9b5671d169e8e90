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
		if r.has(kind) && !slices.Contains(all, r.tenant) {
			all = append(all, r.tenant)
		}
	}
	return all
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
func (l *List) Tasks(t session.Tenant, place string, e Event) (all []messages.Task) {
	add := func(e Event, to string, after int64) {
		queue := digest(string(t), to, string(e.Run)) // the notifications of a run to a target keep their order
		if e.Run == "" || after > 0 {
			queue = digest(string(t), to, place, e.Kind)
		}
		task := messages.Task{ID: run.ID(digest(string(t), to, place, e.Kind, "run")), Session: queue}
		task.Input, _ = json.Marshal(input{e, to, after}) // texts and numbers
		if !slices.ContainsFunc(all, func(other messages.Task) bool { return other.ID == task.ID }) {
			all = append(all, task)
		}
	}
	for _, r := range l.rules {
		if e.Workflow == Workflow || !r.matches(t, &e) {
			continue
		}
		add(e, r.to, 0)
		if again := e; e.Kind == Question && r.again != "" {
			again.Kind = reminder
			add(again, r.again, r.after.Milliseconds())
		}
	}
	return all
}

// digest derives an id from parts.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "notify-" + hex.EncodeToString(sum[:16])
}
