// Package messages defines the wire: the subjects of Rath and its clients, and their
// JSON messages.
//
// Any NATS client can use it. A task is a request on
// rath.task.<tenant>.<user>.<workflow> with a body like
//
//	{"id":"run-1","input":"why is the build red?"}
//
// and since the sender chose the id, it knows every other subject before it
// publishes: rath.run.<tenant>.run-1.delta for pieces of model output,
// .event for what happens, .result for the end.
//
// Messages of clients are decoded strictly: an unknown field, a duplicate field or a
// value out of its range is an error that names the field and the remedy, and wraps
// run.ErrMalformed. Messages of this module are decoded leniently, because a later
// release may add fields. The subject alone determines tenant and workflow, never the
// body.
//
// FORMAT.md beside this file documents the formats, including the commits in the event
// streams, for readers without this code. The schema folder holds JSON Schemas, see
// [Schemas]. This package opens no connections.
package messages

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Size limits, in bytes unless stated otherwise.
const (
	MaxMessage = 512 << 10 // of messages of clients
	MaxReply   = 1 << 20   // of messages to clients
	MaxTask    = 320 << 10 // of a task, with its headers: a larger one is not stored
	MaxInput   = run.MaxInput
	MaxModel   = 256
	MaxTools   = 128 // entries
	MaxServers = 8   // entries
	MaxReason  = 1 << 10
	MaxBy      = 128
	MaxValue   = 64 << 10 // of the value that resolves a call
	MaxNote    = 256 << 10
)

// Encode writes any message of this package. It fails for a message that no reader
// would accept. Unlike json.Marshal it does not escape < > and &, because that may make
// a message several times as long.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("messages: %T: %w", v, err)
	}
	data := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(data) > MaxReply {
		return nil, fmt.Errorf("messages: %T has %d bytes, at most %d can be sent: %w", v, len(data), MaxReply, session.ErrTooLarge)
	}
	return data, nil
}

// Decode reads a message of this module, of at most MaxReply bytes. It skips fields of
// later releases. what names the message in an error.
func Decode[T any](what string, data []byte) (T, error) {
	var v T
	if err := strict.Size(what, data, MaxReply); err != nil {
		return v, err
	}
	if err := json.Unmarshal(data, &v); err != nil {
		var zero T
		return zero, &strict.Error{Message: what, Problem: strict.Problem(err)}
	}
	return v, nil
}
