// Package messages is the wire: the subjects that Rath and its clients talk
// on, and the JSON that travels there.
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
// What comes from clients is decoded strictly: an unknown field, a field that
// is there twice or a value out of its range is an error that names the
// field and the remedy, and wraps run.ErrMalformed. What this module sends is decoded leniently, because
// a later release may add fields. Tenant and workflow are what the subject
// says, never what a body says.
//
// FORMAT.md beside this file documents everything, with the commits in the
// event streams, for readers without our code; the schema folder holds JSON
// Schemas, see [Schemas]. Nothing in here connects to anything: package
// internal/nats does.
package messages

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Limits of what is taken, in bytes unless said otherwise.
const (
	MaxMessage = 512 << 10 // of what clients send
	MaxReply   = 1 << 20   // of what is sent to clients
	MaxTask    = 320 << 10 // of a task, with its headers: what is larger is not stored
	MaxInput   = run.MaxInput
	MaxModel   = 256
	MaxTools   = 128 // entries
	MaxServers = 8   // entries
	MaxReason  = 1 << 10
	MaxBy      = 128
	MaxValue   = 64 << 10 // of the value that resolves a call
	MaxNote    = 256 << 10
)

// Encode writes any message of this package. It fails for one that no reader
// would take. Unlike json.Marshal it leaves < > and & as they are, which may
// otherwise make a message several times as long.
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

// Decode reads a message that this module wrote, of at most MaxReply bytes. Fields of
// later releases are skipped. what names the message in an error.
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
