package messages

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/run"
)

// DeadLetter keeps a rejected task with the reason. The message is kept as text if it
// is valid UTF-8, in base64 otherwise.
type DeadLetter struct {
	Schema  int      `json:"schema"`
	Code    run.Code `json:"code"`
	Reason  string   `json:"reason"`
	Subject string   `json:"subject"` // that it arrived on
	Run     run.ID   `json:"run,omitempty"`
	Text    string   `json:"text,omitempty"`
	Base64  []byte   `json:"base64,omitempty"`
	// Bytes is the size of the message; Truncated reports that only a part of it is
	// here.
	Bytes     int   `json:"bytes"`
	Truncated bool  `json:"truncated,omitempty"`
	TimeMS    int64 `json:"time_ms"`
}

// NewDeadLetter returns the letter for a message that was rejected with err. id is the
// run's, if the message had a readable one.
func NewDeadLetter(subject string, id run.ID, data []byte, err error, now time.Time) DeadLetter {
	l := DeadLetter{Schema: Schema, Subject: excerpt.Start(subject, 400), Run: id, Bytes: len(data), TimeMS: now.UnixMilli()}
	if err != nil {
		l.Code, l.Reason = run.CodeOf(err), excerpt.Start(Text(err), 4<<10)
	}
	// JSON may expand a byte to six, base64 three bytes to four.
	const most = MaxReply / 8
	if len(data) > most {
		data, l.Truncated = data[:most], true
		for i := 0; i < utf8.UTFMax && !utf8.Valid(data); i++ {
			data = data[:len(data)-1] // a cut character
		}
	}
	if utf8.Valid(data) {
		l.Text = string(data)
	} else {
		l.Base64 = data
	}
	return l
}

// Payload returns the kept part of the message.
func (l *DeadLetter) Payload() []byte {
	if l.Base64 != nil {
		return l.Base64
	}
	return []byte(l.Text)
}

// DecodeDeadLetter reads a letter.
func DecodeDeadLetter(data []byte) (DeadLetter, error) {
	l, err := Decode[DeadLetter]("dead letter", data)
	if err == nil {
		err = CheckSchema("dead letter", l.Schema)
	}
	if err != nil {
		return DeadLetter{}, err
	}
	return l, nil
}

// The ends of dead letters.
const (
	LetterRetried = "retried" // its task was submitted again
	LetterDropped = "dropped"
	// LetterRetrying is not final: the task is being resubmitted. The letter is listed
	// until that is done, and cannot be dropped.
	LetterRetrying = "retrying"
)

// The verbs of dead letters, at the end of subjects and in the results of
// ParseControlSubject.
const (
	VerbRetry       = "retry"
	VerbDrop        = "drop"
	VerbLetterRetry = "dlq.retry"
	VerbLetterDrop  = "dlq.drop"
)

// Retry returns the body for resubmitting the letter's task under the given run id. It
// returns run.ErrState for a letter whose task would be rejected for the same reason.
func (l *DeadLetter) Retry(id run.ID) ([]byte, error) {
	switch {
	case l.Truncated:
		return nil, fmt.Errorf("dead letter: %d bytes were sent and not all of them are kept: %w; submit the task yourself", l.Bytes, run.ErrState)
	case l.Code == run.CodeMalformed, l.Code == run.CodeTooLarge:
		return nil, fmt.Errorf("dead letter: the task would be rejected again as %s: %w; submit a corrected one", l.Code, run.ErrState)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(l.Payload(), &fields); err != nil {
		return nil, fmt.Errorf("dead letter: the task is not a JSON object: %w; submit it corrected", run.ErrState)
	}
	name, err := json.Marshal(id)
	if err != nil {
		return nil, fmt.Errorf("dead letter: %w", err)
	}
	fields["id"] = name
	return Encode(fields)
}

// StoredLetter is a dead letter with its sequence in the stream DLQ, which
// names it.
type StoredLetter struct {
	At     uint64     `json:"at"`
	Letter DeadLetter `json:"letter"`
}
