package wire

import (
	"time"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// RefusedResult is the result of a task that was not taken: nothing was
// committed for it.
func RefusedResult(id run.ID, workflow string, e Error, at time.Time) messages.Result {
	return messages.Result{Schema: messages.Schema, Run: id, State: run.Failed, Workflow: workflow, Code: e.Code, Error: e.Text, EndedMS: at.UnixMilli()}
}

// Refused returns the event about a task that was not taken.
func Refused(t session.Tenant, id run.ID, workflow string, e Error) lineage.Record {
	ev := untaken(messages.KindRefused, t, id, workflow, "task refused: ", e)
	ev.State = string(run.Failed)
	return ev
}

// TaskHeld returns the event about a task that waits.
func TaskHeld(t session.Tenant, id run.ID, workflow string, e Error) lineage.Record {
	return untaken(messages.KindHeld, t, id, workflow, "task waits: ", e)
}

func untaken(kind lineage.Kind, t session.Tenant, id run.ID, workflow, what string, e Error) lineage.Record {
	summary := what + e.Text
	if r := []rune(summary); len(r) > lineage.MaxSummary {
		summary = string(r[:lineage.MaxSummary-1]) + "…"
	}
	return lineage.Record{
		Schema: lineage.Schema, Kind: kind, Tenant: t, Run: id, Workflow: workflow,
		Code: e.Code, Reason: e.Text, Summary: summary,
	}
}

// LetterEnd says that a dead letter was retried or dropped, and takes it off the
// list. It lies in the same stream, at most one for a letter, but for
// messages.LetterRetried after LetterRetrying; the letter is kept as long as the stream has room.
type LetterEnd struct {
	Schema int    `json:"schema"`
	At     uint64 `json:"at"`           // sequence of the letter
	End    string `json:"end"`          // messages.LetterRetrying, LetterRetried or LetterDropped
	By     string `json:"by,omitempty"` // the user, see journal.Named
	Reason string `json:"reason,omitempty"`
	Run    run.ID `json:"run,omitempty"` // that a retry submitted
	Says   string `json:"says,omitempty"`
	TimeMS int64  `json:"time_ms"`
}

// LetterEndSchema is its schema number.
const LetterEndSchema = 1

// DecodeLetterEnd reads the end of a letter.
func DecodeLetterEnd(data []byte) (LetterEnd, error) {
	e, err := messages.Decode[LetterEnd]("end of a dead letter", data)
	if err == nil {
		err = messages.CheckSchema("end of a dead letter", e.Schema)
	}
	if err != nil {
		return LetterEnd{}, err
	}
	return e, nil
}
