package wire

import (
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// LetterEnd records that a dead letter was retried or dropped, and removes it from the
// list. It is in the same stream, at most one per letter, except that
// messages.LetterRetried follows LetterRetrying. The letter is kept as long as the
// stream has space.
type LetterEnd struct {
	Schema int    `json:"schema"`
	At     uint64 `json:"at"`           // sequence of the letter
	End    string `json:"end"`          // messages.LetterRetrying, LetterRetried or LetterDropped
	By     string `json:"by,omitempty"` // the user, see journal.Named
	Reason string `json:"reason,omitempty"`
	Run    run.ID `json:"run,omitempty"` // that a retry submitted
	Says   string `json:"says,omitempty"`
	TimeMS int64  `json:"time_ms"`
}

// LetterEndSchema is its schema number.
const LetterEndSchema = 1

// DecodeLetterEnd reads the end of a letter.
func DecodeLetterEnd(data []byte) (LetterEnd, error) {
	e, err := messages.Decode[LetterEnd]("end of a dead letter", data)
	if err == nil {
		err = messages.CheckSchema("end of a dead letter", e.Schema)
	}
	if err != nil {
		return LetterEnd{}, err
	}
	return e, nil
}
