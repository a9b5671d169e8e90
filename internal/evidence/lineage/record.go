package lineage

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Schema is the schema number of the records that this release reads and writes.
const Schema = 1

// Limits of a record's texts, in characters.
const (
	MaxSummary = 100
	MaxReason  = 300
)

// MaxCandidates is how many candidates of a selection a record names.
const MaxCandidates = 64

var (
	// ErrMalformed marks bytes that are not a record.
	ErrMalformed = errors.New("lineage: not a record")
	// ErrNotFound is returned for a session, run or version that the graph
	// does not hold.
	ErrNotFound = errors.New("lineage: not found")
)

// Ref names a session at a version within the record's tenant. Commit and
// Hash name the commit that made it, where the log said so.
type Ref struct {
	Commit  uint64          `json:"commit,omitempty"`
	Hash    string          `json:"hash,omitempty"`
	Session session.ID      `json:"session"`
	Version session.Version `json:"version"`
}

// String returns "session:version", the form that the command line takes.
func (r Ref) String() string {
	return session.Ref{Key: session.Key{ID: r.Session}, Version: r.Version}.String()
}

func refOf(l session.Link) Ref {
	r := Ref{Commit: l.Seq, Session: l.ID, Version: l.Version}
	if l.Hash != (session.Hash{}) {
		r.Hash = l.Hash.String()
	}
	return r
}

// Place names a step of a run and the session whose log decides about the run.
type Place struct {
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"`
	Step    run.Path   `json:"step,omitempty"`
}

// Wait is one thing that a run waits for.
type Wait struct {
	Branches []session.ID `json:"branches,omitempty"`
	Due      int64        `json:"due,omitempty"` // Unix milliseconds at which the wait ends in any case
	Kind     string       `json:"kind"`          // approval, response, message, timer or branches
	Name     string       `json:"name,omitempty"`
	Need     int          `json:"need,omitempty"` // so many branches must succeed; 0 waits for all to end
	Step     run.Path     `json:"step"`           // answers name it
	Title    string       `json:"title,omitempty"`
	// Wants names the answer, in a few words: "a whole number".
	Wants string `json:"wants,omitempty"`
}

// Record is one fact of a commit, small enough for people and plain subscribers.
// Fields are zero where they do not apply.
type Record struct {
	Again   string `json:"again,omitempty"` // why a model is asked on, as journal.StepCompleted has it
	Agent   string `json:"agent,omitempty"`
	Attempt uint64 `json:"attempt,omitempty"` // of the run
	Behind  run.ID `json:"behind,omitempty"`  // the run that a queued one waits for
	// BranchOf is the step that opened the branch whose run the record is about.
	BranchOf *Place `json:"branch_of,omitempty"`
	// Branches are the sessions that a branched, fanned_out, gathered, reported
	// or rejected record names.
	Branches []Ref  `json:"branches,omitempty"`
	By       string `json:"by,omitempty"`    // the session, the run or the user that decided, see journal.Named; of a task the user who submitted it
	Call     string `json:"call,omitempty"`  // id of the tool call
	Calls    int    `json:"calls,omitempty"` // tool calls that the model asked for
	// Candidates are what a selection chose from, at most MaxCandidates; the
	// model's answer is the Reason.
	Candidates []string `json:"candidates,omitempty"`
	Code       run.Code `json:"code,omitempty"` // of an error
	Commit     uint64   `json:"commit"`         // number of the commit in its log, from one
	Cost       string   `json:"cost,omitempty"` // how the money in Usage is known, as journal.StepCompleted.CostSource says
	Due        int64    `json:"due,omitempty"`  // Unix milliseconds: a review expires, a run may start
	// Durability is what the commit survives if it is less than
	// journal.DefaultDurability. The commits that follow in the same Epoch, whose
	// records do not say it, survive the same.
	Durability string `json:"durability,omitempty"`
	Effect     string `json:"effect,omitempty"`  // effect class of the tool
	Elapsed    int64  `json:"elapsed,omitempty"` // milliseconds
	// Ends say how branches ended: in the words of the run that opened them or, in a
	// Reported record, in their own.
	Ends     []journal.BranchOutcome `json:"ends,omitempty"`
	Epoch    uint64                  `json:"epoch"`            // of the writer
	Failure  bool                    `json:"failed,omitempty"` // a tool ran and reported a failure
	Finish   string                  `json:"finish,omitempty"` // why a model's answer ended, as llm.Finish
	Word     string                  `json:"finish_word,omitempty"`
	Hash     string                  `json:"hash"` // of the commit's stored bytes
	Head     string                  `json:"head_after,omitempty"`
	HeadFrom string                  `json:"head_before,omitempty"`
	Home     session.ID              `json:"home,omitempty"` // of a claim outside of the run's home session
	K        int                     `json:"k"`              // index of the event in the commit
	Kind     Kind                    `json:"kind"`
	Model    string                  `json:"model,omitempty"`
	Name     string                  `json:"name,omitempty"` // of the branch, the step or the backend
	Node     string                  `json:"node,omitempty"` // node or incarnation
	// Parents are the sessions that the record's session came from or took
	// chunks of: the edges of the graph.
	Parents []Ref `json:"parents,omitempty"`
	// Partition and Seq are where the event stream holds the commit; the relay
	// fills them in. Readers of a stream of records drop what is not above the last
	// (Partition, Seq, K).
	Partition uint32 `json:"partition"`
	Policy    string `json:"policy,omitempty"` // of a merge
	Reason    string `json:"reason,omitempty"` // at most MaxReason characters
	Result    *Ref   `json:"result,omitempty"` // what a run ended with
	Revision  string `json:"revision,omitempty"`
	Role      string `json:"role,omitempty"` // of a chunk: system, user, assistant or tool_result
	// Root is the oldest ancestor.
	Root session.ID `json:"root"`
	// Rows counts the content events of the commit up to this record's own:
	// the version is that of the commit before plus Rows.
	Rows    int            `json:"rows,omitempty"`
	Run     run.ID         `json:"run,omitempty"`
	Says    string         `json:"says,omitempty"` // who the request of a user claims to be from
	Schema  int            `json:"schema"`
	Seq     uint64         `json:"seq,omitempty"`
	Session session.ID     `json:"session"`
	Source  string         `json:"source,omitempty"` // file:line of an implicit fork
	State   string         `json:"state,omitempty"`  // of the run, or how the branch ended
	Step    run.Path       `json:"step,omitempty"`
	Summary string         `json:"summary"` // one line, at most MaxSummary characters
	Tenant  session.Tenant `json:"tenant"`
	Time    int64          `json:"time"` // Unix milliseconds
	Tool    string         `json:"tool,omitempty"`
	// Unrecorded is the part of the Usage of a run that ended of model calls whose steps
	// were not recorded, because the end came before.
	Unrecorded session.Usage `json:"unrecorded,omitzero"`
	Usage      session.Usage `json:"usage,omitzero"`
	// Version of the session right after the record's event, if the commit alone
	// says it: only the one that opens a session does. A Graph that holds the
	// session's records from the first on knows it for all.
	Version session.Version `json:"version,omitempty"`
	Via     string          `json:"via,omitempty"` // how the session was opened; of a task see journal.Submitted
	// Waits is what a run waits for.
	Waits []Wait `json:"waits,omitempty"`
	// Wake is set where nothing is left to wait for and the run goes on: it counts
	// how often the run was woken.
	Wake     uint64 `json:"wake,omitempty"`
	Workflow string `json:"workflow,omitempty"`
}

// Key names the record's session everywhere.
func (r *Record) Key() session.Key { return session.Key{Tenant: r.Tenant, ID: r.Session} }

// Ref names the record's session at its version.
func (r *Record) Ref() Ref {
	return Ref{Commit: r.Commit, Hash: r.Hash, Session: r.Session, Version: r.Version}
}

// When is the time of the record's event.
func (r *Record) When() time.Time { return time.UnixMilli(r.Time).UTC() }

// Opens reports whether the record says where its session came from.
func (r *Record) Opens() bool { return r.Commit == 1 && opens(r.Kind) }

// Failed reports whether the record is about an error or a failure.
func (r *Record) Failed() bool { return r.Code != "" || r.Failure }

// The first tokens of the subjects of records: they are stored under SubjectPrefix and
// then published under TailPrefix.
const (
	SubjectPrefix = "rath.lineage."
	TailPrefix    = "rath.tail."
)

// TailSubject returns the subject on which the record is published.
func (r *Record) TailSubject() string { return r.subject(TailPrefix) }

func (r *Record) subject(prefix string) string {
	return prefix + string(r.Tenant) + "." + string(r.Root) + "." + string(r.Kind) + "." + string(r.Session)
}

// Decode reads a record. Fields that this release does not know are skipped,
// because a schema may gain some; a higher schema is session.ErrTooOld, and
// everything else that is not a record is ErrMalformed.
func Decode(data []byte) (Record, error) {
	var r Record
	if err := session.Unmarshal(string(data), &r); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if r.Schema > Schema {
		return Record{}, fmt.Errorf("lineage: record has schema %d, this release reads %d: %w", r.Schema, Schema, session.ErrTooOld)
	}
	if err := r.valid(); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return r, nil
}

// who is who asked for what the record says.
func (r *Record) who() string { return journal.Named(r.By, r.Says) }

func (r *Record) valid() error {
	if err := r.Key().Valid(); err != nil {
		return err
	}
	if err := session.ValidID("root session", string(r.Root)); err != nil {
		return err
	}
	switch {
	case r.Schema != Schema:
		return fmt.Errorf("schema %d: want %d", r.Schema, Schema)
	case r.Kind.Doc() == "":
		return fmt.Errorf("unknown kind %q", r.Kind)
	case r.Commit == 0 || r.K < 0 || r.Rows < 0:
		return fmt.Errorf("commit %d, k %d, rows %d: commits count from one", r.Commit, r.K, r.Rows)
	}
	var named []session.ID
	for _, ref := range slices.Concat(r.Parents, r.Branches) {
		named = append(named, ref.Session)
	}
	for _, e := range r.Ends {
		named = append(named, e.Session)
	}
	for _, id := range named {
		if err := session.ValidID("session", string(id)); err != nil {
			return err
		}
	}
	return nil
}

// clone returns a copy that shares nothing with r.
func (r *Record) clone() *Record {
	c := *r
	c.Parents, c.Branches, c.Ends = slices.Clone(r.Parents), slices.Clone(r.Branches), slices.Clone(r.Ends)
	c.Waits, c.Candidates = slices.Clone(r.Waits), slices.Clone(r.Candidates)
	for i, w := range c.Waits {
		c.Waits[i].Branches = slices.Clone(w.Branches)
	}
	if r.Result != nil {
		c.Result = new(*r.Result)
	}
	if r.BranchOf != nil {
		c.BranchOf = new(*r.BranchOf)
	}
	return &c
}

// Actor returns what acts in the record: an agent, a tool, "user", "memory", "run" and
// the like. Most summaries begin with it.
func (r *Record) Actor() string {
	switch r.Kind {
	case Recalled, Remembered:
		if r.Agent == "" {
			return "memory"
		}
	case Chunk:
		if r.Agent == "" {
			switch {
			case r.Role == string(session.ToolResult) && r.Tool != "":
				return r.Tool
			case r.Role == string(session.User), r.Role == string(session.System), r.Role == string(session.Assistant):
				return r.Role
			}
		}
	case Tool, Intent, Late:
		if r.Agent == "" && (r.Effect == "sandboxed" || r.HeadFrom != "") {
			return "sandbox"
		}
		if r.Agent == "" {
			return r.Tool
		}
	case Submitted, Queued, Claimed, Released, Review, Cancel, Warning, Waiting, Answered, Due, Reported, Ended, Settled:
		return "run"
	case Message:
		return cmp.Or(r.By, string(session.User))
	case Resolved, Quarantined, Readmitted, Rebudgeted:
		if r.By != "" {
			return r.By
		}
		return "run"
	case Model, Selected, Compressed:
		if r.Agent == "" {
			return "model"
		}
	case Did, Awaited, FannedOut, Spread, Gathered, Disposed:
		return "workflow"
	}
	return r.Agent
}

// Action returns the summary without the actor at its beginning.
func (r *Record) Action() string {
	if a := r.Actor(); a != "" {
		return strings.TrimPrefix(r.Summary, a+" ")
	}
	return r.Summary
}

// Asks is the kind of the first wait that only a person or a program outside can end;
// "" if there is none.
func (r *Record) Asks() string {
	for _, w := range r.Waits {
		if w.Kind == run.WaitApproval || w.Kind == run.WaitResponse || w.Kind == run.WaitMessage {
			return w.Kind
		}
	}
	return ""
}
