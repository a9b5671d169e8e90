package messages

import (
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// GraphSession is a session in a graph.
type GraphSession struct {
	Session     session.ID      `json:"session"`
	Version     session.Version `json:"version"`
	Root        session.ID      `json:"root"`
	Via         string          `json:"via,omitempty"`
	Name        string          `json:"name,omitempty"`
	Parents     []Ref           `json:"parents,omitempty"`
	Head        string          `json:"head,omitempty"`
	Disposition string          `json:"disposition"`
	Reason      string          `json:"reason,omitempty"`
	By          session.ID      `json:"by,omitempty"`
	Usage       session.Usage   `json:"usage,omitzero"`
	Opened      int64           `json:"opened_ms"`
	Last        int64           `json:"last_ms"`
	Runs        []run.ID        `json:"runs,omitempty"`
}

// Graph is a tree of sessions, parents before children; without a session Roots lists
// the trees, the newest first. Picture is in the requested format.
type Graph struct {
	Root    session.ID     `json:"root,omitempty"`
	Roots   []session.ID   `json:"roots,omitempty"`
	Tree    []GraphSession `json:"tree,omitempty"`
	Picture string         `json:"picture,omitempty"`
	Next    uint64         `json:"next,omitempty"`
}
