package messages

import (
	"encoding/json"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The verbs of queries.
const (
	QueryRuns      = "runs"      // a page of runs, each a [RunInfo]
	QueryRun       = "run"       // [RunInfo]
	QueryResult    = "result"    // [Result]
	QuerySession   = "session"   // [Session], a page of chunks
	QueryGraph     = "graph"     // a tree of sessions
	QueryLineage   = "lineage"   // a page of records
	QueryWorkflows = "workflows" // the offered workflows
	QueryNodes     = "nodes"     // the live nodes
	QueryReplay    = "replay"    // of a run: its code's steps compared with the recorded ones
	QueryLetters   = "dlq"       // a page of letters, each a [DeadLetter]
	QueryTools     = "tools"     // of other processes
	QueryLive      = "live"      // the current state of a run
	QueryBlob      = "blob"      // a message of the tenant's blobs
	QueryMissing   = "missing"   // which of some blobs are not stored
	QueryCommits   = "commits"   // a page of a session's log
	QueryTasks     = "tasks"     // the status of tasks by their ids
	QueryMemory    = "memory"    // the tenant's memories, or a page of one memory's notes
	QueryNote      = "note"      // the text of a note
	QueryQuota     = "quota"     // [Quota] of the tenant
	QueryRecall    = "recall"    // the notes that match a text best
)

// Last is the id of the most recently submitted run.
const Last = "@last"

// RunInfo is a run in the lineage. If the lineage does not have the run yet, only id,
// state and session are set. Times are Unix milliseconds, zero for events that have not
// happened.
type RunInfo struct {
	Run      run.ID    `json:"run"`
	State    run.State `json:"state"`
	Workflow string    `json:"workflow,omitempty"`
	Revision string    `json:"revision,omitempty"`
	// Asked is the beginning of its task, the first row of a user, in one masked line.
	Asked   string     `json:"asked,omitempty"`
	Session session.ID `json:"session,omitempty"`
	Root    session.ID `json:"root,omitempty"`
	Attempt uint64     `json:"attempt,omitempty"`
	// Node is the incarnation of the node that runs it, or that made its last attempt.
	Node   string `json:"node,omitempty"`
	Behind run.ID `json:"behind,omitempty"`
	// By is the user who submitted it. Via is the user who resubmitted it or, for a
	// branch, the enclosing run. Says is the claim of the sender, which names the gateway
	// that authenticated the user, if one did.
	By   string `json:"by,omitempty"`
	Via  string `json:"via,omitempty"`
	Says string `json:"says,omitempty"`
	// Branch is the name of a branch of a fan-out, and BranchOf the step that
	// gathers it.
	Branch   string `json:"branch,omitempty"`
	BranchOf *Place `json:"branch_of,omitempty"`
	// StartedBy is the run that started it with flow.Start, and its step. Starts are the
	// first 64 runs that it started.
	StartedBy *Place   `json:"started_by,omitempty"`
	Starts    []run.ID `json:"starts,omitempty"`
	Cancelled bool     `json:"cancelled,omitempty"`
	// Tags are those of its task, as its workflow changed them.
	Tags run.Tags `json:"tags,omitempty"`
	// Cleanup is the run that executes the compensations of the ended run, and
	// CleanupState its state.
	Cleanup      run.ID    `json:"cleanup,omitempty"`
	CleanupState run.State `json:"cleanup_state,omitempty"`
	// Quarantine is the reason of the quarantine of its session, "" without one.
	Quarantine string        `json:"quarantine,omitempty"`
	Code       run.Code      `json:"code,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	Result     *Ref          `json:"result,omitempty"`
	Review     *Review       `json:"review,omitempty"`
	Steps      int           `json:"steps,omitempty"`
	Sessions   []session.ID  `json:"sessions,omitempty"`
	Usage      session.Usage `json:"usage,omitzero"`
	Warnings   []string      `json:"warnings,omitempty"`
	// Status is the progress that the workflow reported last, any JSON.
	Status json.RawMessage `json:"status,omitempty"`
	// Waits is the waits of the run. Due is the time at which they time out, a review
	// expires or a queued run may start.
	Waits []Wait `json:"waits,omitempty"`
	// Details are the details of the questions among Waits, such as a diff to approve,
	// by their steps. Only QueryRun has them.
	Details map[run.Path]string `json:"details,omitempty"`
	// Schemas are the JSON Schemas of the values that answer the questions among Waits,
	// by their steps; a question without one accepts any value. Only QueryRun has them.
	Schemas   map[run.Path]json.RawMessage `json:"schemas,omitempty"`
	Due       int64                        `json:"due_ms,omitempty"`
	Submitted int64                        `json:"submitted_ms,omitempty"`
	// Queued is the time at which the run was queued: at its submission, its wakeup or
	// its release.
	Queued  int64 `json:"queued_ms,omitempty"`
	Started int64 `json:"started_ms,omitempty"`
	Ended   int64 `json:"ended_ms,omitempty"`
}

// Review is a decision that an operator must make.
type Review struct {
	Step   run.Path `json:"step,omitempty"`
	Call   string   `json:"call,omitempty"`
	Tool   string   `json:"tool,omitempty"`
	Code   run.Code `json:"code,omitempty"`
	Reason string   `json:"reason,omitempty"`
	// Revision is the revision under which the run was recorded, if the offered code
	// does not match it.
	Revision string `json:"revision,omitempty"`
}

// Chunk is one row of a session.
type Chunk struct {
	Index     int                `json:"index"`
	Kind      session.Kind       `json:"kind"`
	Text      string             `json:"text"`
	Truncated bool               `json:"truncated,omitempty"` // the text is longer
	Calls     []session.ToolCall `json:"calls,omitempty"`
	CallID    string             `json:"call_id,omitempty"`
	Name      string             `json:"name,omitempty"`
	Failed    bool               `json:"failed,omitempty"`
	Body      string             `json:"body,omitempty"` // digest of the whole content
	Images    []session.Image    `json:"images,omitempty"`
	Agent     string             `json:"agent,omitempty"`
	Workflow  string             `json:"workflow,omitempty"`
	Node      string             `json:"node,omitempty"`
	Run       string             `json:"run,omitempty"`
	Step      string             `json:"step,omitempty"`
	Time      int64              `json:"time_ms,omitempty"`
	Placement session.Placement  `json:"placement,omitzero"`
	Usage     session.Usage      `json:"usage,omitzero"`
	// Session and Version first committed the chunk.
	Session session.ID      `json:"session,omitempty"`
	Version session.Version `json:"version,omitempty"`
}

// Session is a session at a version with a page of its chunks. Next is the
// After of the next page, zero at the end.
type Session struct {
	Session   session.ID        `json:"session"`
	Version   session.Version   `json:"version"`
	Root      session.ID        `json:"root"`
	Opened    string            `json:"opened,omitempty"`
	Name      string            `json:"name,omitempty"`
	Parents   []Ref             `json:"parents,omitempty"`
	Closed    string            `json:"closed,omitempty"`
	Reason    string            `json:"reason,omitempty"`
	Placement session.Placement `json:"placement,omitzero"`
	Usage     session.Usage     `json:"usage,omitzero"`
	Total     int               `json:"total"` // chunks
	Chunks    []Chunk           `json:"chunks"`
	Next      uint64            `json:"next,omitempty"`
}

// MaxChunkText is the maximum size of a chunk's text in a page, in bytes; the rest is
// in the log.
const MaxChunkText = 64 << 10

// ChunkOf returns row i of a session.
func ChunkOf(i int, c session.Chunk) Chunk {
	o := c.Origin()
	out := Chunk{
		Index: i, Kind: c.Kind(), Text: excerpt.Start(c.Text(), MaxChunkText), Truncated: len(c.Text()) > MaxChunkText,
		CallID: c.CallID(), Name: c.Name(), Failed: c.Failed(), Agent: o.Agent, Workflow: o.Workflow, Node: o.Node, Run: o.Run, Step: o.Step,
		Images: c.Images(), Placement: o.Placement, Usage: o.Usage, Session: c.Ref().ID, Version: c.Ref().Version,
	}
	if !o.Time.IsZero() && o.Time.UnixMilli() > 0 {
		out.Time = o.Time.UnixMilli()
	}
	for _, call := range c.Calls() {
		out.Calls = append(out.Calls, call)
	}
	if b, ok := c.Body(); ok {
		out.Body = b.Digest.String()
	}
	return out
}
