package wire

import (
	"github.com/rathcluster/rath/internal/lineage"
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

// BranchOf returns a session of lineage as it travels.
func BranchOf(s lineage.Session) Branch {
	return Branch{
		Session: s.Key.ID, Version: s.Version, Root: s.Root, Via: s.Via, Name: s.Name, Parents: s.Parents, Head: s.Head,
		Disposition: s.Disposition, Reason: s.Reason, By: s.By, Usage: s.Usage, Opened: s.Opened.UnixMilli(), Last: s.Last.UnixMilli(), Runs: s.Runs,
	}
}

// Lineage is a page of records. It ends with a message of the stream LINEAGE, and has
// all records of a message also with a smaller limit. Next is the After of the next
// page, and Place names the record there; Last is the newest sequence of the stream: a
// reader at it is up to date.
type Lineage struct {
	Records []LineageRecord `json:"records"`
	Next    uint64          `json:"next"`
	Last    uint64          `json:"last"`
	Place   string          `json:"place,omitempty"`
}

// LineageRecord is a record. At is the sequence in the stream LINEAGE from which a
// reader of the record continues without missing any: that of its message for the
// last record of the message, that of the message before for the others. The stream
// has one message for each commit.
type LineageRecord struct {
	At     uint64         `json:"at"`
	Record lineage.Record `json:"record"`
}
