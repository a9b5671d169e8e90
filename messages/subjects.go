package messages

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The first tokens of subjects.
const (
	TaskPrefix       = "rath.task."
	RunPrefix        = "rath.run."
	ControlPrefix    = "rath.ctl."
	QueryPrefix      = "rath.query."
	NodePrefix       = "rath.node."
	ToolPrefix       = "rath.tool."
	StorePrefix      = "rath.store."
	HostPrefix       = "rath.host."
	DeadLetterPrefix = "rath.dlq."
)

// HeaderSays is the header of a task with the sender's claim of identity, see Control.By.
const HeaderSays = "Rath-Says"

// The last token of the subjects on which a run publishes.
const (
	OnDelta  = "delta"
	OnEvent  = "event"
	OnResult = "result"
)

// TaskSubject is the subject on which a user submits tasks for a workflow. user is the
// return value of Submitter.Token, or the name of a user.
func TaskSubject(t session.Tenant, user, workflow string) string {
	return TaskPrefix + string(t) + "." + user + "." + workflow
}

// Submitter is the sender of a task: the user that submitted it first and, if a node
// resubmits it for a user, that user.
type Submitter struct {
	By, Via string
}

// viaMark separates both users in a subject. No user name contains it, so no permission
// of a client matches a subject with it.
const viaMark = "~"

// Token is the submitter in the form of a task's subject.
func (s Submitter) Token() string {
	if s.Via == "" {
		return s.By
	}
	return s.By + viaMark + s.Via
}

// ParseTaskSubject reads tenant, submitter and workflow from a subject, which is
// authoritative. ok is false if it is another subject, or if one of them is not valid.
func ParseTaskSubject(subject string) (t session.Tenant, from Submitter, workflow string, ok bool) {
	p := strings.Split(strings.TrimPrefix(subject, TaskPrefix), ".")
	if !strings.HasPrefix(subject, TaskPrefix) || len(p) != 3 || session.ValidID("tenant", p[0]) != nil || session.ValidID("workflow", p[2]) != nil {
		return "", from, "", false
	}
	by, via, again := strings.Cut(p[1], viaMark)
	if ValidUser(by) != nil || again && ValidUser(via) != nil {
		return "", from, "", false
	}
	return session.Tenant(p[0]), Submitter{By: by, Via: via}, p[2], true
}

// RunSubject is the subject on which a run publishes: OnDelta, OnEvent or OnResult; "*"
// is all of them.
func RunSubject(t session.Tenant, id run.ID, on string) string {
	return RunPrefix + string(t) + "." + string(id) + "." + on
}

// Users that Rath itself names.
const (
	// UserAnonymous is a client without credentials.
	UserAnonymous = "anonymous"
	// UserOperator is the user that maintains the store itself. No user of a tenant has
	// its name.
	UserOperator = "operator"
)

// ValidUser rejects a name that is invalid for NATS users who control runs: it is one
// token of their subjects.
func ValidUser(name string) error {
	if err := session.ValidID("user", name); err != nil {
		return err
	}
	if name == "session" { // rath.ctl.<tenant>.<user>.session.<session>.message has it in another place
		return fmt.Errorf("user %q: %w: in subjects that stands for a session; take another name", name, run.ErrMalformed)
	}
	return nil
}

// ControlSubject is the subject on which a user sends a verb to a run.
func ControlSubject(t session.Tenant, user string, id run.ID, verb string) string {
	return ControlPrefix + string(t) + "." + user + "." + string(id) + "." + verb
}

// LetterSubject is the subject of a verb for a dead letter: VerbRetry or VerbDrop.
func LetterSubject(t session.Tenant, user string, at uint64, verb string) string {
	return ControlPrefix + string(t) + "." + user + ".dlq." + strconv.FormatUint(at, 10) + "." + verb
}

// BlobSubject is the subject for storing a blob of a tenant.
func BlobSubject(t session.Tenant, user string, d blob.Digest) string {
	return ControlPrefix + string(t) + "." + user + ".blob." + d.String() + ".put"
}

// ImportSubject is the subject of the request to import a file that is stored as a
// blob.
func ImportSubject(t session.Tenant, user string, d blob.Digest) string {
	return ControlPrefix + string(t) + "." + user + ".archive." + d.String() + ".import"
}

// DrainSubject is the subject on which a user of a tenant asks a node of an incarnation
// to drain.
func DrainSubject(t session.Tenant, user, incarnation string) string {
	return ControlPrefix + string(t) + "." + user + ".node." + incarnation + ".drain"
}

// RepairSubject is the subject for repairing the lineage of a partition.
func RepairSubject(t session.Tenant, user string, partition uint32) string {
	return ControlPrefix + string(t) + "." + user + ".lineage." + strconv.FormatUint(uint64(partition), 10) + ".repair"
}

// MemorySubject is the subject of a verb for a memory: VerbMemoryWrite or
// VerbMemoryForget.
func MemorySubject(t session.Tenant, user, memory, verb string) string {
	thing, verb, _ := strings.Cut(verb, ".")
	return ControlPrefix + string(t) + "." + user + "." + thing + "." + memory + "." + verb
}

// SessionMessageSubject is the subject of messages to a session.
func SessionMessageSubject(k session.Key, user string) string {
	return ControlPrefix + string(k.Tenant) + "." + user + ".session." + string(k.ID) + ".message"
}

// ParseRunSubject splits a run's subject into its tenant, its run and its last token.
func ParseRunSubject(subject string) (t session.Tenant, id run.ID, on string, ok bool) {
	p := tokens(subject, RunPrefix, 3)
	if p == nil || p[2] != OnDelta && p[2] != OnEvent && p[2] != OnResult {
		return "", "", "", false
	}
	return session.Tenant(p[0]), run.ID(p[1]), p[2], true
}

// tokens returns the n ids that follow a prefix, nil if there are others.
func tokens(subject, prefix string, n int) []string {
	rest, ok := strings.CutPrefix(subject, prefix)
	if !ok {
		return nil
	}
	p := strings.Split(rest, ".")
	if len(p) != n {
		return nil
	}
	for _, id := range p {
		if session.ValidID("token", id) != nil {
			return nil
		}
	}
	return p
}

// QuerySubject is the subject of a tenant's queries.
func QuerySubject(t session.Tenant, verb string) string {
	return QueryPrefix + string(t) + "." + verb
}

// DeliverSubject is the subject of work for sessions that an incarnation holds.
func DeliverSubject(incarnation string) string { return NodeSubject(incarnation, "deliver") }

// ParseQuerySubject reads tenant and verb.
func ParseQuerySubject(subject string) (t session.Tenant, verb string, ok bool) {
	p := tokens(subject, QueryPrefix, 2)
	if p == nil {
		return "", "", false
	}
	return session.Tenant(p[0]), p[1], true
}

// StoreSubject is the subject on which a node that is bound to a tenant requests
// storage operations.
func StoreSubject(t session.Tenant, verb string) string { return StorePrefix + string(t) + "." + verb }

// ParseStoreSubject reads tenant and verb.
func ParseStoreSubject(subject string) (t session.Tenant, verb string, ok bool) {
	p := tokens(subject, StorePrefix, 2)
	if p == nil {
		return "", "", false
	}
	return session.Tenant(p[0]), p[1], true
}

// ToolSubject is the subject of calls of a tool of another process.
func ToolSubject(t session.Tenant, name string) string { return ToolPrefix + string(t) + "." + name }

// ToolCancelSubject is the subject on which the programs of a tool hear that the answer to a
// call is no longer awaited. The permissions of calls have it, too: it has as many tokens,
// and no tool has a colon in its name.
func ToolCancelSubject(t session.Tenant, name string) string {
	return ToolSubject(t, name) + ":cancel"
}

// letterOf precedes the part of a dead letter's subject that names the task.
const letterOf = "task"

// DeadLetterSubject is the subject of a rejected task, by tenant and workflow of the
// task's own subject, by its sequence in the stream of tasks and the time of its
// storage there. A task that is rejected repeatedly thus has one dead letter. A token
// that is no valid id, which may be the reason for the rejection, becomes "_".
func DeadLetterSubject(t session.Tenant, workflow string, seq uint64, stored time.Time) string {
	p := [...]string{string(t), workflow}
	for i := range p {
		if session.ValidID("token", p[i]) != nil {
			p[i] = "_"
		}
	}
	return DeadLetterPrefix + p[0] + "." + p[1] + "." + letterOf + "." +
		strconv.FormatUint(seq, 10) + "-" + strconv.FormatInt(stored.UnixNano(), 10)
}

// ParseDeadLetterSubject reads tenant and workflow from the subject of a dead letter.
// In older stores a letter's subject ends there.
func ParseDeadLetterSubject(subject string) (t session.Tenant, workflow string, ok bool) {
	p := tokens(subject, DeadLetterPrefix, 4)
	if p == nil {
		p = tokens(subject, DeadLetterPrefix, 2)
	}
	if p == nil || len(p) == 4 && p[2] != letterOf {
		return "", "", false
	}
	return session.Tenant(p[0]), p[1], true
}

// LetterEndSubject is the subject of the end of a dead letter, by tenant and workflow
// of its subject and its sequence.
func LetterEndSubject(t session.Tenant, workflow string, at uint64) string {
	return DeadLetterPrefix + string(t) + "." + workflow + "." + strconv.FormatUint(at, 10)
}

// TailSubject is a subscription to lineage as soon as it is stored, by tenant, tree,
// kind and session. An empty argument matches everything.
func TailSubject(t session.Tenant, root session.ID, kind Kind, id session.ID) string {
	p := [...]string{string(t), string(root), string(kind), string(id)}
	for i := range p {
		if p[i] == "" {
			p[i] = "*"
		}
	}
	return TailPrefix + strings.Join(p[:], ".")
}

// ParseTailSubject reads the subject of a published lineage record.
func ParseTailSubject(subject string) (k session.Key, root session.ID, kind Kind, ok bool) {
	p := tokens(subject, TailPrefix, 4)
	if p == nil || Kind(p[2]).Doc() == "" {
		return k, "", "", false
	}
	return session.Key{Tenant: session.Tenant(p[0]), ID: session.ID(p[3])}, session.ID(p[1]), Kind(p[2]), true
}

const TailPrefix = "rath.tail."
