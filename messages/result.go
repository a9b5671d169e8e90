package messages

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Result says how a run ended. One is stored per run; who comes late asks
// QueryResult.
type Result struct {
	Run      run.ID    `json:"run"`
	State    run.State `json:"state"`
	Workflow string    `json:"workflow,omitempty"`
	// Session and Version are what the run ended with; Session alone is its
	// home, if it ended with nothing.
	Session session.ID      `json:"session,omitempty"`
	Version session.Version `json:"version,omitempty"`
	// Output is the last assistant text, at most run.MaxOutput bytes of it.
	Output string `json:"output,omitempty"`
	// Code and Error say why a run did not succeed.
	Code    run.Code      `json:"code,omitempty"`
	Error   string        `json:"error,omitempty"`
	Attempt uint64        `json:"attempt,omitempty"`
	Usage   session.Usage `json:"usage,omitzero"`
	EndedMS int64         `json:"ended_ms"`
}

// ResultOf makes the result of a run from the event that ended it in the log
// of its home session.
func ResultOf(home session.ID, e run.Ended, at time.Time) Result {
	r := Result{
		Run: e.Run, State: e.State, Workflow: e.Workflow, Session: home, Output: e.Output,
		Code: e.Code, Error: e.Error, Attempt: e.Attempt, Usage: e.Usage, EndedMS: at.UnixMilli(),
	}
	if e.Result != nil {
		r.Session, r.Version = e.Result.ID, e.Result.Version
	}
	return r
}

// Err returns why the run did not succeed, nil if it did.
func (r *Result) Err() error {
	if r.State == run.Succeeded {
		return nil
	}
	code := r.Code
	if code == "" {
		code = run.CodeError
	}
	text := fmt.Sprintf("run %s %s", r.Run, r.State)
	if r.Error != "" {
		text += ": " + r.Error
	}
	return code.Err(text)
}

// Encode returns the JSON of the result.
func (r *Result) Encode() ([]byte, error) { return json.Marshal(r) }

// DecodeResult reads a result. Fields of later releases are skipped.
func DecodeResult(data []byte) (Result, error) {
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("result: %w: %w", run.ErrMalformed, err)
	}
	return r, nil
}
