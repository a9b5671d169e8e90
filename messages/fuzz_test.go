package messages_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// FuzzDecodeTask checks that an accepted task validates and is unchanged after
// encoding, and that a rejection has a code.
func FuzzDecodeTask(f *testing.F) {
	r := resolved(f, "task.v1")
	full := fullTask()
	data := must.Get(full.Encode())(f)
	f.Add(data)
	for _, s := range []string{`{"id":"r1"}`, `{"id":"r1","input":[1e400,-0,"\ud800"]}`, `{"id":"r1","budget":{"tokens":5}}`, `{"id":"r1","fork_of":"s:1"}`, `{"id":"r1","deadline":"2026-11-20T15:04:05.123456789+13:37"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		task, err := messages.DecodeTask(data)
		if err != nil {
			if c := run.CodeOf(err); c != run.CodeMalformed && c != run.CodeTooLarge {
				t.Errorf("code %s: %v", c, err)
			}
			return
		}
		var v any
		if json.Unmarshal(data, &v) == nil { // not all numbers fit into a float
			if err := r.Validate(v); err != nil {
				t.Errorf("the schema refuses %s: %v", data, err)
			}
		}
		again, err := task.Encode()
		if err != nil {
			t.Fatalf("%s cannot be sent again: %v", data, err)
		}
		back, err := messages.DecodeTask(again)
		must.Do(t, err)
		in, err := translate.Task(&task, "acme", "fix")
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		out, err := translate.Task(&back, "acme", "fix")
		must.Do(t, err)
		in.Input, out.Input = nil, nil // white space may go
		if diff := cmp.Diff(in, out); diff != "" {
			t.Error(diff)
		}
	})
}

// FuzzDecoders demands that none of the others panics.
func FuzzDecoders(f *testing.F) {
	for _, v := range full() {
		data := must.Get(messages.Encode(v))(f)
		f.Add(data)
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		if c, err := messages.DecodeControl(data); err == nil {
			for _, verb := range []string{"cancel", "resolve", "approve", "x"} {
				_, _ = translate.Signal(c, session.Key{Tenant: "acme", ID: "s1"}, "ana", "r1", verb)
			}
		}
		_, _ = wire.DecodeQuery(data)
		_, _ = wire.DecodeTool(data)
		_, _ = translate.DecodeWork(data)
		_, _ = wire.DecodeAnswer(data)
		if r, err := messages.DecodeResult(data); err == nil {
			_ = r.Err()
		}
		_, _ = messages.DecodeDelta(data)
		_, _ = messages.DecodeEvent(data)
		_, _ = translate.DecodeAlias(data)
		if l, err := messages.DecodeDeadLetter(data); err == nil {
			_ = l.Payload()
		}
		_ = wire.ReplyError(data)
		s := string(data)
		_, _, _, _ = messages.ParseTaskSubject(s)
		_, _ = wire.ParseControlSubject(s)
		_, _, _, _ = messages.ParseTailSubject(s)
	})
}
