package messages

import (
	"crypto/sha256"
	"fmt"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Schema is the schema number of the stored messages that this release writes.
const Schema = 1

// Result is the outcome of a run. One is stored per run; QueryResult returns it.
type Result struct {
	Schema   int       `json:"schema"`
	Run      run.ID    `json:"run"`
	State    run.State `json:"state"`
	Workflow string    `json:"workflow,omitempty"`
	// Session and Version are the session at the end of the run. Session alone is the
	// run's home, if it ended without a session.
	Session session.ID      `json:"session,omitempty"`
	Version session.Version `json:"version,omitempty"`
	// Output is the last assistant text, at most 16 KiB of it.
	Output string `json:"output,omitempty"`
	// Finish is the reason why the last answer of a model to an agent of the run ended,
	// as llm.Finish, and Word the server's own word for it if its protocol lacks that
	// word. Both are empty for a run without an agent, or that ended without its
	// execution.
	Finish string `json:"finish,omitempty"`
	Word   string `json:"finish_word,omitempty"`
	// Code and Error are the reason why a run did not succeed.
	Code    run.Code      `json:"code,omitempty"`
	Error   string        `json:"error,omitempty"`
	Attempt uint64        `json:"attempt,omitempty"`
	Usage   session.Usage `json:"usage,omitzero"`
	// Lost is the part of Usage that is estimated: for model calls that were cut off,
	// whose usage no server reports, and for branches that had not reported.
	Lost session.Usage `json:"lost,omitzero"`
	// Settled counts how often forks and branches reported more usage after the end:
	// Usage and Lost include the last report. The result is then stored again.
	Settled uint64 `json:"settled,omitempty"`
	// Workspace is the head of the session's files at the end.
	Workspace string `json:"workspace,omitempty"`
	// Chain is the commit that ended the run: its hash covers all earlier commits in
	// the log of the home session.
	Chain   *Chain `json:"chain,omitempty"`
	EndedMS int64  `json:"ended_ms"`
	// Statement is the result of Say, and Signature a node's signature over it, in the
	// format of ssh-keygen -Y sign. Both are empty if no node signed the result.
	Statement string `json:"statement,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// Chain names a commit of a session's log.
type Chain struct {
	Hash    string     `json:"hash"`
	Seq     uint64     `json:"seq"`
	Session session.ID `json:"session"`
}

// Err returns the reason why the run did not succeed, nil if it did.
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

// Say returns the statement about the result that is signed: lines of a name, a space
// and a value, each with a line feed. Any language can build it from the result's JSON
// and the tenant. It is "" for a rejected task, which has no log.
func (r *Result) Say(t session.Tenant) string {
	if r.Chain == nil {
		return ""
	}
	workspace := r.Workspace
	if workspace == "" {
		workspace = "-"
	}
	return fmt.Sprintf("rath run 1\ntenant %s\nrun %s\nstate %s\nsession %s\nversion %d\nhome %s\ncommit %d\nchain %s\nworkspace %s\noutput %x\nended_ms %d\n",
		t, r.Run, r.State, r.Session, r.Version, r.Chain.Session, r.Chain.Seq, r.Chain.Hash, workspace, sha256.Sum256([]byte(r.Output)), r.EndedMS)
}

// Encode returns the JSON of the result.
func (r *Result) Encode() ([]byte, error) { return Encode(r) }

// DecodeResult reads a result. Fields of later releases are skipped, a later
// schema is session.ErrTooOld.
func DecodeResult(data []byte) (Result, error) {
	r, err := Decode[Result]("result", data)
	if err == nil {
		err = CheckSchema("result", r.Schema)
	}
	if err == nil && !r.State.Terminal() {
		err = &strict.Error{Message: "result", Field: "state", Problem: fmt.Sprintf("%q is not the end of a run", r.State)}
	}
	if err != nil {
		return Result{}, err
	}
	return r, nil
}

// CheckSchema returns session.ErrTooOld for a message of a later schema.
func CheckSchema(what string, n int) error {
	if n < 1 || n > Schema {
		return fmt.Errorf("messages: %s has schema %d, this release reads 1 to %d: %w", what, n, Schema, session.ErrTooOld)
	}
	return nil
}
