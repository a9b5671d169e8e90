package translate

import (
	"cmp"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Alias is what a name stands for. Of a session's name it is the session; of
// a run's id the run's home, with what tells two tasks of one id apart.
type Alias struct {
	Session session.ID `json:"session,omitempty"`
	// Digest is of the task as it was submitted.
	Digest string `json:"digest,omitempty"`
	// Ended is that digest, and takes its place, once the run has ended and its log was
	// purged: an entry stays for ever, and does not grow.
	Ended string `json:"ended,omitempty"`
	// Cancelled is set when the run was cancelled before a log held it.
	Cancelled *journal.CancelRequested `json:"cancelled,omitempty"`
	// Refused is the code of a task that was not taken.
	Refused run.Code `json:"refused,omitempty"`
	// Request is, in the entry of a rerun's id, of the request that has it, or of the dead
	// letter whose task is submitted again under it: the first one that creates the entry,
	// before the task is submitted that makes the run's own.
	Request string `json:"request,omitempty"`
}

// Task returns the digest of the task as it was submitted, "" for an entry of no task.
func (a *Alias) Task() string { return cmp.Or(a.Digest, a.Ended) }

// RunAliasKey is the key of a run's entry in the bucket ALIAS.
func RunAliasKey(t session.Tenant, id run.ID) string { return string(t) + ".run." + string(id) }

// RerunAliasKey is the key of the entry in the bucket ALIAS that says which
// request the id of a rerun is for.
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
