package wire

import (
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
)

// Answer is the answer to a control request: Done after the commit, or an error. Note
// adds details to Done. For work that was delivered to an incarnation it is
// "committed", "queued" or "not_mine".
type Answer struct {
	Done bool   `json:"done"`
	Note string `json:"note,omitempty"`
	*Error
}

// AnswerOf returns the answer to a request that ended with err. A signal that no longer
// has an effect has the code wrong_state and the state of the run.
func AnswerOf(err error) Answer { return Answer{Done: err == nil, Error: ErrorOf(err)} }

// DecodeAnswer reads an answer.
func DecodeAnswer(data []byte) (Answer, error) {
	a, err := messages.Decode[Answer]("answer", data)
	if err == nil && !a.Done && a.Err() == nil && a.Note == "" {
		err = &strict.Error{Message: "answer", Problem: "neither done nor an error"}
	}
	return a, err
}
