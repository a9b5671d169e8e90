package wire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Controlled is what the subject of a control request says.
type Controlled struct {
	Tenant session.Tenant
	// User is whose credentials the server checked: its permissions let no other
	// one publish there.
	User string
	// ID is a run's, and Verb what it takes. The verb of a session's own subject is
	// "session.message", and ID is then the session's; those of a dead letter are
	// "dlq.retry" and "dlq.drop", and ID is its sequence; those of a tool are
	// "tool.announce" and "tool.withdraw", and ID is its name; that of a blob is
	// "blob.put", and ID is its digest; those of a memory are "memory.write" and
	// "memory.forget", and ID is its name; that of a node is "node.drain", and ID is its
	// incarnation.
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

// things are what takes verbs beside runs.
var things = []string{"session", "dlq", "tool", "blob", "archive", "memory", "node", "lineage"}

// RepairGoesOn is the note of an answer to a repair that takes longer than one request may:
// sent again it is answered when the repair has ended.
const RepairGoesOn = "goes on"

// Repaired is the outcome of a repair of a partition's lineage.
type Repaired struct {
	// From is the sequence of the first commit in the event stream whose records were
	// missing, zero for none.
	From uint64 `json:"from,omitempty"`
	// Published and Removed count messages of LINEAGE: those that are derived again from
	// there, and those before them that they replace.
	Published int `json:"published,omitempty"`
	Removed   int `json:"removed,omitempty"`
}

// RepairAnswer is the answer to the request to repair the lineage of a partition.
type RepairAnswer struct {
	Answer
	Repaired
	Partitions uint32 `json:"partitions,omitempty"` // that there are
}

// MaxImport is the most bytes of a file that a client has a node take over.
const MaxImport = 32 << 20

// ImportGoesOn is the note of an answer to an import that takes longer than one request
// may: sent again it goes on where it was.
const ImportGoesOn = "goes on"

// Imported is one session that came in from a file.
type Imported struct {
	Session session.ID `json:"session,omitempty"`
	Rows    int        `json:"rows"`
	Kind    string     `json:"kind,omitempty"`
	Created string     `json:"created,omitempty"`
	Closed  bool       `json:"closed"`
	Note    string     `json:"note,omitempty"`
}

// ImportAnswer is the answer to the request to import a file. Done says that all of it is
// there.
type ImportAnswer struct {
	Answer
	Imported []Imported `json:"imported,omitempty"`
}

// MergeInput is the input of the built-in workflow "merge", which joins
// sessions into a new one: their chunks one after the other, with the files of
// the first. They stay as they are.
type MergeInput struct {
	// Sessions are ids, with ":version" for an older version than the newest.
	Sessions []string `json:"sessions"`
}

// maxMerge is how many sessions one task merges.
const maxMerge = 64

// Check says what is wrong with the input.
func (in MergeInput) Check() error {
	if n := len(in.Sessions); n < 2 || n > maxMerge {
		return &strict.Error{Message: "merge", Problem: fmt.Sprintf("%d sessions are named", n), Remedy: fmt.Sprintf("name 2 to %d", maxMerge)}
	}
	seen := map[session.ID]bool{}
	for _, name := range in.Sessions {
		ref, err := session.ParseRef(session.DefaultTenant, name)
		if err != nil {
			return fmt.Errorf("merge: %q names no session of the task's tenant: %w: %w", name, run.ErrMalformed, err)
		}
		if seen[ref.ID] {
			return &strict.Error{
				Message: "merge", Problem: fmt.Sprintf("session %s is named twice", ref.ID),
				Remedy: "a session cannot be merged with itself, fork it if you mean that",
			}
		}
		seen[ref.ID] = true
	}
	return nil
}

// Answer is the answer to a control request: Done after the commit, or an
// error. Note says what Done alone does not; to work that was delivered to an
// incarnation it is "committed", "queued" or "not_mine".
type Answer struct {
	Done bool   `json:"done"`
	Note string `json:"note,omitempty"`
	*Error
}

// AnswerOf returns the answer to a request that ended with err. A signal that
// changes nothing any more has the code wrong_state and the state of the run.
func AnswerOf(err error) Answer { return Answer{Done: err == nil, Error: ErrorOf(err)} }

// DecodeAnswer reads an answer.
func DecodeAnswer(data []byte) (Answer, error) {
	a, err := messages.Decode[Answer]("answer", data)
	if err == nil && !a.Done && a.Err() == nil && a.Note == "" {
		err = &strict.Error{Message: "answer", Problem: "neither done nor an error"}
	}
	return a, err
}
