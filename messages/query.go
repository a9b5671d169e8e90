package messages

import (
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The verbs of queries.
const (
	QueryRuns      = "runs"      // [Runs]
	QueryRun       = "run"       // [RunInfo]
	QueryResult    = "result"    // [Result]
	QuerySession   = "session"   // [Session], a page of chunks
	QueryGraph     = "graph"     // [Graph]
	QueryLineage   = "lineage"   // [Lineage], a page of records
	QueryWorkflows = "workflows" // [Workflows]
	QueryNodes     = "nodes"     // [Nodes]
	QueryReplay    = "replay"    // [Replay] of a run
	QueryLetters   = "dlq"       // [DeadLetters], a page
	QueryTools     = "tools"     // [Tools] of other processes
	QueryLive      = "live"      // [Live], how a run stands at this moment
	QueryBlob      = "blob"      // [Blob], a message of the tenant's blobs
	QueryMissing   = "missing"   // [Missing], which of some blobs are not stored
	QueryCommits   = "commits"   // [Commits], a page of a session's log
	QueryTasks     = "tasks"     // what is known of tasks by their ids
	QueryMemory    = "memory"    // the tenant's memories, or a page of the notes of one
	QueryNote      = "note"      // the text of a note
	QueryRecall    = "recall"    // the notes that match a text best
)

// Query is the body of a query. Each verb reads the fields that it knows.
type Query struct {
	Run run.ID `json:"run,omitempty"` // run, result, replay, live
	// Session is an id or a name, with ":version" for an older version
	// (session), or the root of a tree (graph, lineage); "" is every tree.
	Session string      `json:"session,omitempty"`
	States  []run.State `json:"states,omitempty"` // runs: only those
	// Workflow keeps the runs of one workflow.
	Workflow string `json:"workflow,omitempty"`
	// Where keeps the runs that a selector chooses, see lineage.ParseSelector.
	Where string `json:"where,omitempty"`
	// Digests of blobs: one of blob, at most MaxDigests of missing.
	Digests []blob.Digest `json:"digests,omitempty"`
	// Tasks are ids of runs, at most MaxTasks.
	Tasks []run.ID `json:"tasks,omitempty"`
	// Memory is the name of one (memory, note, recall), and URI that of a note, or of what
	// lies below it; "" is all of the memory.
	Memory string `json:"memory,omitempty"`
	URI    string `json:"uri,omitempty"`
	// Text is what recall looks for, and Scores how it scores notes: "" or "openrath".
	Text   string `json:"text,omitempty"`
	Scores string `json:"scores,omitempty"`
	// Level is that at which note reads: "" or "full", "overview", "abstract".
	Level string `json:"level,omitempty"`
	// AfterNote is where a page of notes begins: the last URI of the page before.
	AfterNote string `json:"after_note,omitempty"`
	// At is where a page of commits begins: the Next of the page before.
	At *CommitPosition `json:"at,omitempty"`
	// Limit bounds the rows of a page; zero is the server's own limit.
	Limit int `json:"limit,omitempty"`
	// After is where the page begins: the Next of the page before, zero for the first.
	// For lineage it is a sequence of LINEAGE, for session a chunk index.
	After uint64 `json:"after,omitempty"`
	// Format of graph: "text", "mermaid" or "svg" adds the picture.
	Format string `json:"format,omitempty"`
	// All asks of graph for every record, not the main ones alone, and of run also for a
	// task that waits to be taken: it is queued and has no session. It is busy while
	// too many wait to look through them. Of runs it asks how many tasks were submitted,
	// which takes a time that grows with them; of memory for the texts and origins of notes.
	All bool `json:"all,omitempty"`
}

// MaxLimit is the most rows that a page may be asked for.
const MaxLimit = 10_000

// DecodeQuery reads the body of a query; an empty one is allowed.
func DecodeQuery(data []byte) (Query, error) {
	var q Query
	if len(data) == 0 {
		return q, nil
	}
	err := decode("query", data, &q)
	if err == nil {
		err = q.check()
	}
	if err != nil {
		return Query{}, err
	}
	return q, nil
}

// check validates what the types leave open. Run may be "@last".
func (q *Query) check() error {
	bad := func(field, problem, remedy string) error {
		return &FieldError{Message: "query", Field: field, Problem: problem, Remedy: remedy}
	}
	if id := string(q.Run); id != "" && id != Last && session.ValidID("run", id) != nil {
		return bad("run", Text(session.ValidID("run", id)), "send the id of a run, or "+Last)
	}
	if q.Session != "" {
		if _, err := session.ParseRef("", q.Session); err != nil {
			return bad("session", Text(err), `write it as "session" or "session:version"`)
		}
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		return bad("limit", fmt.Sprintf("%d is not of 0 to %d", q.Limit, MaxLimit), "leave it out and read page by page")
	}
	if len(q.Digests) > MaxDigests {
		return bad("digests", fmt.Sprintf("there are %d", len(q.Digests)), fmt.Sprintf("ask for %d at a time", MaxDigests))
	}
	if len(q.Tasks) > MaxTasks {
		return bad("tasks", fmt.Sprintf("there are %d", len(q.Tasks)), fmt.Sprintf("ask for %d at a time", MaxTasks))
	}
	for i, id := range q.Tasks {
		if err := session.ValidID("run", string(id)); err != nil {
			return bad(fmt.Sprintf("tasks[%d]", i), Text(err), "send ids of runs")
		}
	}
	for i, d := range q.Digests {
		if d.IsZero() {
			return bad(fmt.Sprintf("digests[%d]", i), "it is empty", "send 64 lower-case hexadecimal digits")
		}
	}
	if _, err := q.At.Position(); err != nil {
		return bad("at", Text(err), "send the next of the page before as it came")
	}
	for i, s := range q.States {
		switch s {
		case run.Queued, run.Running, run.Waiting, run.NeedsReview, run.Succeeded, run.Failed, run.Cancelled, run.TimedOut:
		default:
			return bad(fmt.Sprintf("states[%d]", i), fmt.Sprintf("%q is no state of a run", cleanText(string(s), 40)),
				"use queued, running, waiting, needs_review, succeeded, failed, cancelled or timed_out")
		}
	}
	switch q.Format {
	case "", "text", "mermaid", "svg":
	default:
		return bad("format", fmt.Sprintf("%q is none", cleanText(q.Format, 40)), "use text, mermaid or svg")
	}
	switch q.Scores {
	case "", "openrath":
	default:
		return bad("scores", fmt.Sprintf("%q is none", cleanText(q.Scores, 40)), "use openrath, or leave it out")
	}
	switch q.Level {
	case "", "abstract", "overview", "full":
	default:
		return bad("level", fmt.Sprintf("%q is none", cleanText(q.Level, 40)), "use abstract, overview or full")
	}
	if q.Where != "" {
		if _, err := lineage.ParseSelector(q.Where); err != nil {
			return bad("where", Text(err), `write it like "state=failed and tool=grep"`)
		}
	}
	if q.Memory != "" && session.ValidID("memory", q.Memory) != nil {
		return bad("memory", Text(session.ValidID("memory", q.Memory)), "send the name of a memory")
	}
	if q.Workflow != "" && session.ValidID("workflow", q.Workflow) != nil {
		return bad("workflow", Text(session.ValidID("workflow", q.Workflow)), "send the name of a workflow")
	}
	return nil
}

// Last stands for the run that was submitted last.
const Last = "@last"

// MaxTasks is how many tasks a query takes.
const MaxTasks = 1000

// RunInfo is a run as lineage has it: of one that lineage has not got yet, only its id,
// state and session are known. Times are Unix milliseconds, zero for what
// has not happened.
type RunInfo struct {
	Run      run.ID     `json:"run"`
	State    run.State  `json:"state"`
	Workflow string     `json:"workflow,omitempty"`
	Revision string     `json:"revision,omitempty"`
	Session  session.ID `json:"session,omitempty"`
	Root     session.ID `json:"root,omitempty"`
	Attempt  uint64     `json:"attempt,omitempty"`
	// Node is the incarnation of the node that runs it, or made its last attempt if
	// it does not run.
	Node   string `json:"node,omitempty"`
	Behind run.ID `json:"behind,omitempty"`
	// Branch is the name of a branch of a fan-out, and BranchOf the step that
	// gathers it.
	Branch    string         `json:"branch,omitempty"`
	BranchOf  *lineage.Place `json:"branch_of,omitempty"`
	Cancelled bool           `json:"cancelled,omitempty"`
	// Quarantine is the reason of the quarantine of its session, "" without one.
	Quarantine string        `json:"quarantine,omitempty"`
	Code       run.Code      `json:"code,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	Result     *lineage.Ref  `json:"result,omitempty"`
	Review     *Review       `json:"review,omitempty"`
	Steps      int           `json:"steps,omitempty"`
	Sessions   []session.ID  `json:"sessions,omitempty"`
	Usage      session.Usage `json:"usage,omitzero"`
	Warnings   []string      `json:"warnings,omitempty"`
	// Waits is what the run waits for; Due when that times out, a review expires or
	// a queued run may start.
	Waits []lineage.Wait `json:"waits,omitempty"`
	// Details say more of the questions among Waits, such as a diff that is to be
	// approved, by their steps. QueryRun alone tells them.
	Details   map[run.Path]string `json:"details,omitempty"`
	Due       int64               `json:"due_ms,omitempty"`
	Submitted int64               `json:"submitted_ms,omitempty"`
	Started   int64               `json:"started_ms,omitempty"`
	Ended     int64               `json:"ended_ms,omitempty"`
}

// Review is what a person has to decide about.
type Review struct {
	Step   run.Path `json:"step,omitempty"`
	Call   string   `json:"call,omitempty"`
	Tool   string   `json:"tool,omitempty"`
	Code   run.Code `json:"code,omitempty"`
	Reason string   `json:"reason,omitempty"`
	// Revision is the one that the run was recorded under, if the code that is on
	// offer does not match it.
	Revision string `json:"revision,omitempty"`
}

// Chunk is one row of a session.
type Chunk struct {
	Index     int                `json:"index"`
	Kind      session.Kind       `json:"kind"`
	Text      string             `json:"text"`
	Truncated bool               `json:"truncated,omitempty"` // the text goes on
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
	Parents   []lineage.Ref     `json:"parents,omitempty"`
	Closed    string            `json:"closed,omitempty"`
	Reason    string            `json:"reason,omitempty"`
	Placement session.Placement `json:"placement,omitzero"`
	Usage     session.Usage     `json:"usage,omitzero"`
	Total     int               `json:"total"` // chunks
	Chunks    []Chunk           `json:"chunks"`
	Next      uint64            `json:"next,omitempty"`
}

// Branch is a session in a graph.
type Branch struct {
	Session     session.ID      `json:"session"`
	Version     session.Version `json:"version"`
	Root        session.ID      `json:"root"`
	Via         string          `json:"via,omitempty"`
	Name        string          `json:"name,omitempty"`
	Parents     []lineage.Ref   `json:"parents,omitempty"`
	Head        string          `json:"head,omitempty"`
	Disposition string          `json:"disposition"`
	Reason      string          `json:"reason,omitempty"`
	By          session.ID      `json:"by,omitempty"`
	Usage       session.Usage   `json:"usage,omitzero"`
	Opened      int64           `json:"opened_ms"`
	Last        int64           `json:"last_ms"`
	Runs        []run.ID        `json:"runs,omitempty"`
}

// Graph is a tree of sessions, parents before children; without a session
// Roots lists the trees, the newest first. Picture is in the format that was
// asked for.
type Graph struct {
	Root    session.ID   `json:"root,omitempty"`
	Roots   []session.ID `json:"roots,omitempty"`
	Tree    []Branch     `json:"tree,omitempty"`
	Picture string       `json:"picture,omitempty"`
	Next    uint64       `json:"next,omitempty"`
}

// Lineage is a page of records. It ends with a message of the stream LINEAGE, and has
// all records of a message also with a smaller limit. Next is the After of the next
// page; Last is the newest sequence of the stream: a reader at it is up to date.
type Lineage struct {
	Records []LineageRecord `json:"records"`
	Next    uint64          `json:"next"`
	Last    uint64          `json:"last"`
}

// LineageRecord is a record. At is the sequence in the stream LINEAGE from which a
// reader of the record continues without missing any: that of its message for the
// last record of the message, that of the message before for the others. The stream
// has one message for each commit.
type LineageRecord struct {
	At     uint64         `json:"at"`
	Record lineage.Record `json:"record"`
}

// Workflow is a workflow on offer.
type Workflow struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Revision    string          `json:"revision,omitempty"`
	Pool        string          `json:"pool,omitempty"`
	Class       string          `json:"class,omitempty"` // ClassInteractive (also if empty) or ClassBatch
	Input       json.RawMessage `json:"input,omitempty"` // JSON Schema
	// Type is what it is in Go; "" if only the input of a task says what it is made of.
	Type  string `json:"type,omitempty"`
	Parts []Part `json:"parts,omitempty"` // sorted as the code has them
	Left  int    `json:"left,omitempty"`  // parts beyond those
}

// Node is a node that lives, or died so recently that its entry is still there.
type Node struct {
	Incarnation string   `json:"incarnation"`
	Name        string   `json:"name"`
	Pools       []string `json:"pools,omitempty"`
	Slots       int      `json:"slots"`
	// Free is how many runs could begin now.
	Free    int    `json:"free"`
	Version string `json:"version,omitempty"`
	// PID is its process on its machine.
	PID int `json:"pid,omitempty"`
	// Isolation is the strongest level that its sandboxes enforce, "" if it opens
	// none.
	Isolation  string `json:"isolation,omitempty"`
	Durability string `json:"durability,omitempty"`
	Draining   bool   `json:"draining,omitempty"`
	// Gossip is where the other nodes reach its gossip, "" of one that has none.
	Gossip string `json:"gossip,omitempty"`
	// Dead says of a node with gossip that the node which answers takes it for dead.
	// Silent is how many milliseconds ago it was heard of, in steps of ten seconds,
	// once that is longer than a node is silent: it has died, is frozen or cut off.
	// Both are in answers only, not in its entry.
	Dead   bool  `json:"dead,omitempty"`
	Silent int64 `json:"silent_ms,omitempty"`
	// Offers are the workflows of this node, as "name@revision".
	Offers  []string `json:"offers,omitempty"`
	Started int64    `json:"started_ms"`
	// Full are the streams that do not take everything any more: those of events, and
	// what else every run needs. FullDisk stands for the disk of all of them.
	Full []StreamFill `json:"full,omitempty"`
}

// What a stream takes.
const (
	RoomAll  = "all"
	RoomOpen = "open_runs" // no new runs
	RoomEnds = "ends"      // no steps: runs only end, or are cancelled and answered
	RoomNone = "nothing"
)

// FullDisk is the name of a StreamFill that is about the disk of the store.
const FullDisk = "disk"

// StreamFill is how full a stream is.
type StreamFill struct {
	Stream   string `json:"stream"`
	Bytes    uint64 `json:"bytes"`
	MaxBytes uint64 `json:"max_bytes"`
	// Room is RoomAll, RoomOpen, RoomEnds or RoomNone.
	Room string `json:"room"`
	// Reason says why nothing is stored, unless only room is missing.
	Reason string `json:"reason,omitempty"`
}

// RunInfoOf returns a run of lineage as it travels.
func RunInfoOf(r lineage.Run) RunInfo {
	out := RunInfo{
		Run: r.ID, State: r.State, Workflow: r.Workflow, Revision: r.Revision, Session: r.Home.ID, Root: r.Root, Attempt: r.Attempt, Node: r.Node,
		Behind: r.Behind, Cancelled: r.Cancelled, Code: r.Code, Reason: r.Reason, Result: r.Result, Steps: r.Steps,
		Sessions: r.Sessions, Usage: r.Usage, Warnings: r.Warnings, Branch: r.Branch, BranchOf: r.BranchOf, Waits: r.Waits, Quarantine: r.Quarantine,
	}
	if !r.Due.IsZero() {
		out.Due = r.Due.UnixMilli()
	}
	if !r.Submitted.IsZero() {
		out.Submitted = r.Submitted.UnixMilli()
	}
	if !r.Started.IsZero() {
		out.Started = r.Started.UnixMilli()
	}
	if !r.Ended.IsZero() {
		out.Ended = r.Ended.UnixMilli()
	}
	return out
}

// BranchOf returns a session of lineage as it travels.
func BranchOf(s lineage.Session) Branch {
	return Branch{
		Session: s.Key.ID, Version: s.Version, Root: s.Root, Via: s.Via, Name: s.Name, Parents: s.Parents, Head: s.Head,
		Disposition: s.Disposition, Reason: s.Reason, By: s.By, Usage: s.Usage, Opened: s.Opened.UnixMilli(), Last: s.Last.UnixMilli(), Runs: s.Runs,
	}
}

// MaxChunkText is how many bytes of a chunk's text travel in a page; the rest
// is in the log.
const MaxChunkText = 64 << 10

// ChunkOf returns row i of a session.
func ChunkOf(i int, c session.Chunk) Chunk {
	o := c.Origin()
	out := Chunk{
		Index: i, Kind: c.Kind(), Text: cleanText(c.Text(), MaxChunkText), Truncated: len(c.Text()) > MaxChunkText,
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
