package messages

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// String describes the wait: "for approval: Publish?", "until 2026-11-20 09:00 UTC",
// "for 2 of 3 branches".
func (w Wait) String() string {
	until := ""
	if w.Due > 0 {
		until = "until " + time.UnixMilli(w.Due).UTC().Format("2006-01-02 15:04 MST")
	}
	text := ""
	switch w.Kind {
	case run.WaitTimer:
		return cmp.Or(until, "for a time")
	case run.WaitBranches:
		text = "for " + excerpt.Counted(len(w.Branches), "branch")
		if w.Need > 0 && w.Need < len(w.Branches) {
			text = fmt.Sprintf("for %d of %s", w.Need, excerpt.Counted(len(w.Branches), "branch"))
		}
	case run.WaitMessage:
		text = "for a message"
	case run.WaitQuota:
		text = "for the quota: " + w.Title
	default:
		text = "for " + cmp.Or(w.Kind, "something")
		if what := cmp.Or(w.Title, w.Name); what != "" {
			text += ": " + excerpt.Cut(what, 70-len(until)/2)
		}
		if w.Kind == run.WaitResponse && w.Wants != "" {
			text += " (" + excerpt.Cut(w.Wants, 40) + ")"
		}
	}
	if until != "" {
		text += " (" + until + ")"
	}
	return text
}

// Ref names a session at a version within the record's tenant. Commit and Hash name the
// commit that made it, if the log has them.
type Ref struct {
	Commit  uint64          `json:"commit,omitempty"`
	Hash    string          `json:"hash,omitempty"`
	Session session.ID      `json:"session"`
	Version session.Version `json:"version"`
}

// String returns "session:version", the form that the command line accepts.
func (r Ref) String() string {
	return session.Ref{Key: session.Key{ID: r.Session}, Version: r.Version}.String()
}

// Place names a step of a run and the run's home session.
type Place struct {
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"`
	Step    run.Path   `json:"step,omitempty"`
}

// Wait is one condition that a run waits for.
type Wait struct {
	Branches []session.ID `json:"branches,omitempty"`
	Due      int64        `json:"due,omitempty"` // latest end of the wait, in Unix milliseconds
	Kind     string       `json:"kind"`          // approval, response, message, timer, branches or run
	Name     string       `json:"name,omitempty"`
	Need     int          `json:"need,omitempty"` // number of branches that must succeed; 0 waits for all to end
	Step     run.Path     `json:"step"`           // answers name it
	Title    string       `json:"title,omitempty"`
	// Wants describes the answer in a few words: "a whole number".
	Wants string `json:"wants,omitempty"`
}

// Record is one fact of a commit, small enough for users and plain subscribers. Fields
// are zero where they do not apply.
type Record struct {
	// Again is the reason why a model is called again after its answer: cut, paused,
	// empty, missing, text, calls or short, as FORMAT.md defines them for step.done.
	Again   string `json:"again,omitempty"`
	Agent   string `json:"agent,omitempty"`
	Attempt uint64 `json:"attempt,omitempty"` // of the run
	Behind  run.ID `json:"behind,omitempty"`  // the run that a queued one waits for
	// BranchOf is the step that opened the branch whose run the record is about.
	BranchOf *Place `json:"branch_of,omitempty"`
	// Branches are the sessions that a branched, fanned_out, gathered, reported
	// or rejected record names.
	Branches []Ref `json:"branches,omitempty"`
	// By is the session, the run or the user that decided; for a task the user who
	// submitted it.
	By    string `json:"by,omitempty"`
	Call  string `json:"call,omitempty"`  // id of the tool call
	Calls int    `json:"calls,omitempty"` // tool calls of the model
	// Candidates are the options of a selection, at most MaxCandidates; the model's
	// answer is the Reason.
	Candidates []string `json:"candidates,omitempty"`
	Code       run.Code `json:"code,omitempty"` // of an error
	Commit     uint64   `json:"commit"`         // number of the commit in its log, from one
	// Cost is the source of the money in Usage: "priced" and the day of the prices,
	// "stated" by the server, or "free".
	Cost string `json:"cost,omitempty"`
	Due  int64  `json:"due,omitempty"` // Unix milliseconds: a review expires, a run may start
	// Durability is the commit's durability if it is not "fsync". It also holds for the
	// following commits of the same Epoch, whose records do not have it.
	Durability string `json:"durability,omitempty"`
	Effect     string `json:"effect,omitempty"`  // effect class of the tool
	Elapsed    int64  `json:"elapsed,omitempty"` // milliseconds
	// Ends are the outcomes of branches: according to the run that opened them or, in a
	// Reported record, to the branches themselves.
	Ends     []run.BranchOutcome `json:"ends,omitempty"`
	Epoch    uint64              `json:"epoch"`            // of the writer
	Failure  bool                `json:"failed,omitempty"` // a tool ran and reported a failure
	Finish   string              `json:"finish,omitempty"` // why a model's answer ended, as llm.Finish
	Word     string              `json:"finish_word,omitempty"`
	Hash     string              `json:"hash"` // of the commit's stored bytes
	Head     string              `json:"head_after,omitempty"`
	HeadFrom string              `json:"head_before,omitempty"`
	Home     session.ID          `json:"home,omitempty"` // of a claim outside of the run's home session
	K        int                 `json:"k"`              // index of the event in the commit
	Kind     Kind                `json:"kind"`
	Model    string              `json:"model,omitempty"`
	Name     string              `json:"name,omitempty"` // of the branch, the step or the backend
	Node     string              `json:"node,omitempty"` // node or incarnation
	// Parents are the sessions from which the record's session came or took chunks: the
	// edges of the graph.
	Parents []Ref `json:"parents,omitempty"`
	// Partition and Seq are the position of the commit in the event stream; the relay
	// sets them. Readers of a stream of records drop records that are not above the
	// last (Partition, Seq, K).
	Partition uint32 `json:"partition"`
	Policy    string `json:"policy,omitempty"` // of a merge
	Reason    string `json:"reason,omitempty"` // at most MaxReason characters
	Result    *Ref   `json:"result,omitempty"` // the result of a run
	// Resumes is the run, and its step, that a submitted run continues.
	Resumes  *Place `json:"resumes,omitempty"`
	Revision string `json:"revision,omitempty"`
	Role     string `json:"role,omitempty"` // of a chunk: system, user, assistant or tool_result
	// Root is the oldest ancestor.
	Root session.ID `json:"root"`
	// Rows counts the content events of the commit up to this record's own: the version
	// is that of the previous commit plus Rows.
	Rows    int        `json:"rows,omitempty"`
	Run     run.ID     `json:"run,omitempty"`
	Says    string     `json:"says,omitempty"` // the user's own claim of identity
	Schema  int        `json:"schema"`
	Seq     uint64     `json:"seq,omitempty"`
	Session session.ID `json:"session"`
	Source  string     `json:"source,omitempty"` // file:line of an implicit fork
	// StartedBy is the run, and its step, that started a submitted run. Starts is the run
	// that a step started.
	StartedBy *Place `json:"started_by,omitempty"`
	Starts    run.ID `json:"starts,omitempty"`
	State     string `json:"state,omitempty"` // of the run, or the outcome of the branch
	// Status is the reported progress, as JSON text.
	Status  string   `json:"status,omitempty"`
	Step    run.Path `json:"step,omitempty"`
	Summary string   `json:"summary"` // one line, at most MaxSummary characters
	// Tags are the tags of a submitted run or, of a step that changed one, this one; "" is
	// no longer a tag.
	Tags   run.Tags       `json:"tags,omitempty"`
	Tenant session.Tenant `json:"tenant"`
	Time   int64          `json:"time"` // Unix milliseconds
	Tool   string         `json:"tool,omitempty"`
	// Unrecorded is, for a run that ended, the part of Usage of model calls whose steps
	// were not recorded before the end.
	Unrecorded session.Usage `json:"unrecorded,omitzero"`
	Usage      session.Usage `json:"usage,omitzero"`
	// Version of the session right after the record's event, if the commit alone
	// determines it: only the commit that opens a session does. A Graph with all
	// records of the session computes it for the others.
	Version session.Version `json:"version,omitempty"`
	// Via is the way in which the session was opened; for a resubmitted task the user who
	// resubmitted it, for a branch the run that opened it.
	Via string `json:"via,omitempty"`
	// Waits is the waits of a run.
	Waits []Wait `json:"waits,omitempty"`
	// Wake is set when no wait is left and the run resumes: it counts the run's
	// wakeups.
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

// Failed reports whether the record is about an error or a failure.
func (r *Record) Failed() bool { return r.Code != "" || r.Failure }

// Actor returns the actor of the record: an agent, a tool, "user", "memory", "run" and
// the like. Most summaries begin with it.
func (r *Record) Actor() string {
	switch r.Kind {
	case KindRecalled, KindRemembered:
		if r.Agent == "" {
			return "memory"
		}
	case KindChunk:
		if r.Agent == "" {
			switch {
			case r.Role == string(session.ToolResult) && r.Tool != "":
				return r.Tool
			case r.Role == string(session.User), r.Role == string(session.System), r.Role == string(session.Assistant):
				return r.Role
			}
		}
	case KindTool, KindIntent, KindLate:
		if r.Agent == "" && (r.Effect == "sandboxed" || r.HeadFrom != "") {
			return "sandbox"
		}
		if r.Agent == "" {
			return r.Tool
		}
	case KindSubmitted, KindQueued, KindClaimed, KindReleased, KindReview, KindCancel, KindWarning, KindStatus, KindWaiting, KindAnswered, KindDue, KindReported, KindEnded, KindSettled:
		return "run"
	case KindMessage:
		return cmp.Or(r.By, string(session.User))
	case KindResolved, KindQuarantined, KindReadmitted, KindRebudgeted:
		if r.By != "" {
			return r.By
		}
		return "run"
	case KindModel, KindSelected, KindCompressed:
		if r.Agent == "" {
			return "model"
		}
	case KindDid, KindAwaited, KindStarted, KindFannedOut, KindSpread, KindGathered, KindDisposed:
		return "workflow"
	}
	return r.Agent
}

// Action returns the summary without the actor at its start.
func (r *Record) Action() string {
	if a := r.Actor(); a != "" {
		return strings.TrimPrefix(r.Summary, a+" ")
	}
	return r.Summary
}

// Asks is the kind of the first wait that only an operator or an outside program can
// end; "" if there is none.
func (r *Record) Asks() string {
	for _, w := range r.Waits {
		if w.Kind == run.WaitApproval || w.Kind == run.WaitResponse || w.Kind == run.WaitMessage {
			return w.Kind
		}
	}
	return ""
}
