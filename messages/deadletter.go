package messages

import (
	"time"
	"unicode/utf8"

	"github.com/rathcluster/rath/run"
)

// DeadLetter keeps a task that was refused, with the reason. What was sent is
// kept as text if it is valid UTF-8, in base64 otherwise.
type DeadLetter struct {
	Schema  int      `json:"schema"`
	Code    run.Code `json:"code"`
	Reason  string   `json:"reason"`
	Subject string   `json:"subject"` // that it came on
	Run     run.ID   `json:"run,omitempty"`
	Text    string   `json:"text,omitempty"`
	Base64  []byte   `json:"base64,omitempty"`
	// Bytes is how many were sent; Truncated that not all of them are here.
	Bytes     int   `json:"bytes"`
	Truncated bool  `json:"truncated,omitempty"`
	TimeMS    int64 `json:"time_ms"`
}

// NewDeadLetter returns the letter for a message that was refused with err.
// id is the run's, if the message had a readable one.
func NewDeadLetter(subject string, id run.ID, data []byte, err error, now time.Time) DeadLetter {
	e := ErrorOf(err)
	l := DeadLetter{Schema: Schema, Subject: cleanText(subject, 400), Run: id, Bytes: len(data), TimeMS: now.UnixMilli()}
	if e != nil {
		l.Code, l.Reason = e.Code, e.Text
	}
	// JSON may write a byte as six, base64 three as four.
	const most = MaxReply / 8
	if len(data) > most {
		data, l.Truncated = data[:most], true
		for i := 0; i < utf8.UTFMax && !utf8.Valid(data); i++ {
			data = data[:len(data)-1] // a character that was cut
		}
	}
	if utf8.Valid(data) {
		l.Text = string(data)
	} else {
		l.Base64 = data
	}
	return l
}

// Payload returns what was sent, as much of it as was kept.
func (l *DeadLetter) Payload() []byte {
	if l.Base64 != nil {
		return l.Base64
	}
	return []byte(l.Text)
}

// DecodeDeadLetter reads a letter.
func DecodeDeadLetter(data []byte) (DeadLetter, error) {
	l, err := read[DeadLetter]("dead letter", data)
	if err == nil {
		err = checkSchema("dead letter", l.Schema)
	}
	if err != nil {
		return DeadLetter{}, err
	}
	return l, nil
}
