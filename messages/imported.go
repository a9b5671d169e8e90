package messages

import "github.com/rathcluster/rath/session"

// Imported is one session that was imported from a file.
type Imported struct {
	Session session.ID `json:"session,omitempty"`
	Rows    int        `json:"rows"`
	Kind    string     `json:"kind,omitempty"`
	Created string     `json:"created,omitempty"`
	Closed  bool       `json:"closed"`
	Note    string     `json:"note,omitempty"`
}
