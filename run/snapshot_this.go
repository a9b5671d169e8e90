//go:build !next

package run

import (
	"encoding/json"

	"github.com/rathcluster/rath/session"
)

// wireSnapshot is what a snapshot holds under foldVersion.
type wireSnapshot struct {
	Active      ID                `json:"active,omitempty"`
	Branch      ID                `json:"branch,omitempty"`
	Ended       wireEnded         `json:"ended,omitzero"`
	Epoch       uint64            `json:"epoch"`
	Fold        int               `json:"fold"`
	Heard       []heard           `json:"heard,omitempty"`
	Incarnation string            `json:"incarnation,omitempty"`
	Open        []wireRecord      `json:"open,omitempty"`
	Quarantine  *Quarantined      `json:"quarantine,omitempty"`
	Queue       []ID              `json:"queue,omitempty"`
	Tables      []json.RawMessage `json:"tables"` // values of the session: the newest, then one for each former table
	// Whole names the pages that hold the whole state when it is long.
	Whole *session.PageRef `json:"whole,omitempty"`
}
