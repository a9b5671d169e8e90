package wire

import (
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Branch is a session in a graph.
type Branch struct {
	Session     session.ID      `json:"session"`
	Version     session.Version `json:"version"`
	Root        session.ID      `json:"root"`
	Via         string          `json:"via,omitempty"`
	Name        string          `json:"name,omitempty"`
	Parents     []messages.Ref  `json:"parents,omitempty"`
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

// LineageEnd is the cursor of a query that asks for the end: an empty page, whose Next is
// before all that is committed later.
const LineageEnd = "end"

// Lineage is a page of records, in the order of LINEAGE: those of an event stream are in the
// order of its commits. It has all records of a message also with a smaller limit, and may
// have none where the reader has read those of its stretch. Next is the cursor of the next
// page; without More the reader is up to date.
type Lineage struct {
	Records []LineageRecord `json:"records"`
	Next    string          `json:"next"`
	More    bool            `json:"more"`
}

// LineageRecord is a record. A query with its Cursor has the records after it, see
// lineage.Cursor.
type LineageRecord struct {
	Cursor string          `json:"cursor"`
	Record messages.Record `json:"record"`
}
