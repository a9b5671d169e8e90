package wire

import (
	"fmt"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Query is the body of a query. Each verb reads its own fields.
type Query struct {
	Run run.ID `json:"run,omitempty"` // run, result, replay, live
	// Session is an id or a name, with ":version" for an older version
	// (session), or the root of a tree (graph, lineage); "" is every tree.
	Session string      `json:"session,omitempty"`
	States  []run.State `json:"states,omitempty"` // runs: only those
	// Workflow selects the runs of one workflow.
	Workflow string `json:"workflow,omitempty"`
	// Where selects runs by a selector, see lineage.ParseSelector.
	Where string `json:"where,omitempty"`
	// Digests are digests of blobs: one for blob, at most MaxDigests for missing.
	Digests []blob.Digest `json:"digests,omitempty"`
	// Tasks are ids of runs, at most MaxTasks.
	Tasks []run.ID `json:"tasks,omitempty"`
	// Memory is the name of a memory (memory, note, recall). URI is the name of a note,
	// or a prefix of names; "" is the whole memory.
	Memory string `json:"memory,omitempty"`
	URI    string `json:"uri,omitempty"`
	// Text is the search text of recall, and Scores its scoring of notes: "" or
	// "openrath".
	Text   string `json:"text,omitempty"`
	Scores string `json:"scores,omitempty"`
	// Level is the level at which note reads: "" or "full", "overview", "abstract".
	Level string `json:"level,omitempty"`
	// AfterNote is the start of a page of notes: the last URI of the previous page.
	AfterNote string `json:"after_note,omitempty"`
	// At is the start of a page of commits: the Next of the previous page.
	At *messages.CommitPosition `json:"at,omitempty"`
	// Limit bounds the rows of a page; zero is the server's own limit.
	Limit int `json:"limit,omitempty"`
	// After is the start of the page: the Next of the previous page, zero for the
	// first. For session it is a chunk index.
	After uint64 `json:"after,omitempty"`
	// Cursor is the start of a page of lineage: the Next of the previous page, the
	// Cursor of a record, or LineageEnd.
	Cursor string `json:"cursor,omitempty"`
	// Format is for graph: "text", "mermaid" or "svg" adds the picture.
	Format string `json:"format,omitempty"`
	// All extends a query. graph returns every record and not only the main ones. run
	// also returns a waiting task that no node has accepted: it is queued and has no
	// session; the query is busy while too many tasks wait to search them. runs also
	// returns the number of submitted tasks, in a time that grows with that number.
	// memory also returns the texts and origins of notes.
	All bool `json:"all,omitempty"`
}

// MaxLimit is the maximum number of rows in a page.
const MaxLimit = 10_000

// DecodeQuery reads the body of a query; an empty one is allowed. The answering node
// parses Cursor and Where.
func DecodeQuery(data []byte) (Query, error) {
	var q Query
	if len(data) == 0 {
		return q, nil
	}
	err := strict.Decode(messages.MaxMessage, "query", data, &q)
	if err == nil {
		err = q.check()
	}
	if err != nil {
		return Query{}, err
	}
	return q, nil
}

// check validates the constraints that the types do not express. Run may be "@last".
func (q *Query) check() error {
	bad := func(field, problem, remedy string) error {
		return &strict.Error{Message: "query", Field: field, Problem: problem, Remedy: remedy}
	}
	if id := string(q.Run); id != "" && id != messages.Last && session.ValidID("run", id) != nil {
		return bad("run", messages.Text(session.ValidID("run", id)), "send the id of a run, or "+messages.Last)
	}
	if q.Session != "" {
		if _, err := session.ParseRef("", q.Session); err != nil {
			return bad("session", messages.Text(err), `write it as "session" or "session:version"`)
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
			return bad(fmt.Sprintf("tasks[%d]", i), messages.Text(err), "send ids of runs")
		}
	}
	for i, d := range q.Digests {
		if d.IsZero() {
			return bad(fmt.Sprintf("digests[%d]", i), "it is empty", "send 64 lower-case hexadecimal digits")
		}
	}
	if q.At != nil {
		if _, err := blob.ParseDigest(q.At.Hash); err != nil {
			return bad("at", messages.Text(fmt.Errorf("position: %w", err)), "send the next of the page before as it came")
		}
	}
	for i, s := range q.States {
		switch s {
		case run.Queued, run.Running, run.Waiting, run.NeedsReview, run.Succeeded, run.Failed, run.Cancelled, run.TimedOut:
		default:
			return bad(fmt.Sprintf("states[%d]", i), fmt.Sprintf("%q is no state of a run", excerpt.Start(string(s), 40)),
				"use queued, running, waiting, needs_review, succeeded, failed, cancelled or timed_out")
		}
	}
	switch q.Format {
	case "", "text", "mermaid", "svg":
	default:
		return bad("format", fmt.Sprintf("%q is none", excerpt.Start(q.Format, 40)), "use text, mermaid or svg")
	}
	switch q.Scores {
	case "", "openrath":
	default:
		return bad("scores", fmt.Sprintf("%q is none", excerpt.Start(q.Scores, 40)), "use openrath, or leave it out")
	}
	switch q.Level {
	case "", "abstract", "overview", "full":
	default:
		return bad("level", fmt.Sprintf("%q is none", excerpt.Start(q.Level, 40)), "use abstract, overview or full")
	}
	if q.Memory != "" && session.ValidID("memory", q.Memory) != nil {
		return bad("memory", messages.Text(session.ValidID("memory", q.Memory)), "send the name of a memory")
	}
	if q.Workflow != "" && session.ValidID("workflow", q.Workflow) != nil {
		return bad("workflow", messages.Text(session.ValidID("workflow", q.Workflow)), "send the name of a workflow")
	}
	return nil
}

// MaxTasks is the maximum number of tasks in a query.
const MaxTasks = 1000
