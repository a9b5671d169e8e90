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

// What a run publishes, the last token of its subjects.
const (
	OnDelta  = "delta"
	OnEvent  = "event"
	OnResult = "result"
)

// TaskSubject is where a user submits tasks for a workflow. user is what Submitter.Token
// returns, or the name of a user.
func TaskSubject(t session.Tenant, user, workflow string) string {
	return TaskPrefix + string(t) + "." + user + "." + workflow
}

// Submitter is who a task is from: the user that submitted it first and, of a task that a
// node submits again for a user, that user.
type Submitter struct {
	By, Via string
}

// viaMark separates both users in a subject. No name of a user has it, so that no
// permission of a client matches a subject that has it.
const viaMark = "~"

// Token is the submitter as the subject of a task names it.
func (s Submitter) Token() string {
	if s.Via == "" {
		return s.By
	}
	return s.By + viaMark + s.Via
}

// ParseTaskSubject reads tenant, submitter and workflow from a subject, which decides
// them. ok is false if it is none, or if one of them is not valid.
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

// RunSubject is where a run publishes: OnDelta, OnEvent or OnResult; "*" is
// all of them.
func RunSubject(t session.Tenant, id run.ID, on string) string {
	return RunPrefix + string(t) + "." + string(id) + "." + on
}

// Users that Rath itself names.
const (
	// UserAnonymous is a client without credentials.
	UserAnonymous = "anonymous"
	// UserOperator is who works on the store itself. No user of a tenant has its name.
	UserOperator = "operator"
)

// ValidUser refuses a name that NATS users who control runs cannot have: it is one
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

// ControlSubject is where a run takes a verb from a user.
func ControlSubject(t session.Tenant, user string, id run.ID, verb string) string {
	return ControlPrefix + string(t) + "." + user + "." + string(id) + "." + verb
}

// LetterSubject is where a dead letter takes a verb: VerbRetry or VerbDrop.
func LetterSubject(t session.Tenant, user string, at uint64, verb string) string {
	return ControlPrefix + string(t) + "." + user + ".dlq." + strconv.FormatUint(at, 10) + "." + verb
}

// BlobSubject is where a blob of a tenant is stored.
func BlobSubject(t session.Tenant, user string, d blob.Digest) string {
	return ControlPrefix + string(t) + "." + user + ".blob." + d.String() + ".put"
}

// ImportSubject is where a node is asked to take over a file that is stored as a blob.
func ImportSubject(t session.Tenant, user string, d blob.Digest) string {
	return ControlPrefix + string(t) + "." + user + ".archive." + d.String() + ".import"
}

// DrainSubject is where a user of a tenant asks a node of an incarnation to drain.
func DrainSubject(t session.Tenant, user, incarnation string) string {
	return ControlPrefix + string(t) + "." + user + ".node." + incarnation + ".drain"
}

// RepairSubject is where the lineage of a partition is repaired.
func RepairSubject(t session.Tenant, user string, partition uint32) string {
	return ControlPrefix + string(t) + "." + user + ".lineage." + strconv.FormatUint(uint64(partition), 10) + ".repair"
}

// MemorySubject is where a memory takes a verb: VerbMemoryWrite or VerbMemoryForget.
func MemorySubject(t session.Tenant, user, memory, verb string) string {
	thing, verb, _ := strings.Cut(verb, ".")
	return ControlPrefix + string(t) + "." + user + "." + thing + "." + memory + "." + verb
}

// SessionMessageSubject is where a session takes a message.
func SessionMessageSubject(k session.Key, user string) string {
	return ControlPrefix + string(k.Tenant) + "." + user + ".session." + string(k.ID) + ".message"
}

// ParseRunSubject reads tenant, run and what is published.
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

// QuerySubject is where a tenant asks.
func QuerySubject(t session.Tenant, verb string) string {
	return QueryPrefix + string(t) + "." + verb
}

// DeliverSubject is where an incarnation takes work for sessions that it
// holds.
func DeliverSubject(incarnation string) string { return NodeSubject(incarnation, "deliver") }

// ParseQuerySubject reads tenant and verb.
func ParseQuerySubject(subject string) (t session.Tenant, verb string, ok bool) {
	p := tokens(subject, QueryPrefix, 2)
	if p == nil {
		return "", "", false
	}
	return session.Tenant(p[0]), p[1], true
}

// StoreSubject is where a node that is bound to a tenant asks for what it stores and
// reads.
func StoreSubject(t session.Tenant, verb string) string { return StorePrefix + string(t) + "." + verb }

// ParseStoreSubject reads tenant and verb.
func ParseStoreSubject(subject string) (t session.Tenant, verb string, ok bool) {
	p := tokens(subject, StorePrefix, 2)
	if p == nil {
		return "", "", false
	}
	return session.Tenant(p[0]), p[1], true
}

// ToolSubject is where a tool of another process is called.
func ToolSubject(t session.Tenant, name string) string { return ToolPrefix + string(t) + "." + name }

// letterOf stands before the part of a dead letter's subject that names the task.
const letterOf = "task"

// DeadLetterSubject is where a refused task is kept, by what its own subject said,
// and by its sequence in the stream of tasks and when it was stored there: however
// often it is refused, there is one letter. A token that is no id, which may be why
// it was refused, becomes "_".
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

// ParseDeadLetterSubject reads tenant and workflow from the subject of a dead
// letter, which ends there in the letters of older stores.
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

// LetterEndSubject is where the end of a dead letter is kept, by tenant and workflow
// of its subject and its sequence.
func LetterEndSubject(t session.Tenant, workflow string, at uint64) string {
	return DeadLetterPrefix + string(t) + "." + workflow + "." + strconv.FormatUint(at, 10)
}

// TailSubject is a subscription to lineage as soon as it is stored: of a
// tenant, a tree, a kind, a session. What is empty matches everything.
func TailSubject(t session.Tenant, root session.ID, kind Kind, id session.ID) string {
	p := [...]string{string(t), string(root), string(kind), string(id)}
	for i := range p {
		if p[i] == "" {
			p[i] = "*"
		}
	}
	return TailPrefix + strings.Join(p[:], ".")
}

// ParseTailSubject reads the subject that a lineage record is published on.
func ParseTailSubject(subject string) (k session.Key, root session.ID, kind Kind, ok bool) {
	p := tokens(subject, TailPrefix, 4)
	if p == nil || Kind(p[2]).Doc() == "" {
		return k, "", "", false
	}
	return session.Key{Tenant: session.Tenant(p[0]), ID: session.ID(p[3])}, session.ID(p[1]), Kind(p[2]), true
}

const TailPrefix = "rath.tail."
