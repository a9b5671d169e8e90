package translate

import (
	"cmp"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Alias is the target of a name: for a session's name the session; for a run's id the
// run's home, and the digest that distinguishes two tasks with one id.
type Alias struct {
	Session session.ID `json:"session,omitempty"`
	// Digest is the digest of the submitted task.
	Digest string `json:"digest,omitempty"`
	// Ended is that digest, and replaces it once the run has ended and its log was
	// purged: an entry stays for ever, and does not grow.
	Ended string `json:"ended,omitempty"`
	// Cancelled is set if the run was cancelled before a log held it.
	Cancelled *journal.CancelRequested `json:"cancelled,omitempty"`
	// Refused is the code of a rejected task.
	Refused run.Code `json:"refused,omitempty"`
	// Request is set in the entry of a rerun's id. It identifies the request of the
	// rerun, or the dead letter whose task is resubmitted under the id: the first one
	// that creates the entry. The entry is created before the task is submitted, which
	// makes the run's own entry.
	Request string `json:"request,omitempty"`
}

// Task returns the digest of the submitted task, "" for an entry without a task.
func (a *Alias) Task() string { return cmp.Or(a.Digest, a.Ended) }

// RunAliasKey is the key of a run's entry in the bucket ALIAS.
func RunAliasKey(t session.Tenant, id run.ID) string { return string(t) + ".run." + string(id) }

// RerunAliasKey is the key of the entry in the bucket ALIAS that identifies the request
// of a rerun's id.
func RerunAliasKey(t session.Tenant, id run.ID) string { return string(t) + ".rerun." + string(id) }

// SessionAliasKey is the key of a session's name in the bucket ALIAS.
func SessionAliasKey(t session.Tenant, name string) string { return string(t) + ".session." + name }

// DecodeAlias reads an entry of the bucket ALIAS.
func DecodeAlias(data []byte) (Alias, error) {
	a, err := messages.Decode[Alias]("alias", data)
	if err == nil && a.Session != "" && session.ValidID("session", string(a.Session)) != nil {
		err = &strict.Error{Message: "alias", Field: "session", Problem: messages.Text(session.ValidID("session", string(a.Session)))}
	}
	if err != nil {
		return Alias{}, err
	}
	return a, nil
}
