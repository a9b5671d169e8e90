package messages

import (
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/run"
)

// The verbs of control. The list grows by release; what is on it and not
// served yet is answered with not_supported.
const (
	VerbCancel         = "cancel"
	VerbResolve        = "resolve"
	VerbApprove        = "approve"
	VerbReject         = "reject"
	VerbRespond        = "respond"
	VerbMessage        = "message"
	VerbSessionMessage = "session.message"
)

// Control is the body of a control request. All fields are optional but those
// that the verb needs: cancel none, resolve the decision.
type Control struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	// Decision of resolve: run.Happened, run.Again or run.Fail.
	Decision string `json:"decision,omitempty"`
	// Value is the result of a call that happened, as JSON.
	Value json.RawMessage `json:"value,omitempty"`
	// Step is the path of the question that approve, reject and respond answer.
	Step run.Path `json:"step,omitempty"`
	Text string   `json:"text,omitempty"`
}

// DecodeControl reads the body of a control request; an empty one is allowed.
func DecodeControl(data []byte) (Control, error) {
	var c Control
	if len(data) == 0 {
		return c, nil
	}
	err := decode("control", data, &c)
	return c, err
}

// Answer is the answer to a control request: Done after the commit, or an
// error. Note says what Done alone does not.
type Answer struct {
	Done bool   `json:"done"`
	Note string `json:"note,omitempty"`
	*Error
}

// DecodeAnswer reads an answer.
func DecodeAnswer(data []byte) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("answer: %w: %w", run.ErrMalformed, err)
	}
	return a, nil
}
