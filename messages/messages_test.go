package messages_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestDecodeTaskErrors(t *testing.T) {
	tests := map[string]struct{ body, id, names string }{
		"empty":         {"", "", "empty"},
		"not JSON":      {"{", "", "task"},
		"unknown field": {`{"id":"r1","modle":"x"}`, "r1", "modle"},
		"wrong type":    {`{"id":"r1","tools":"x"}`, "r1", "tools"},
		"bad id":        {`{"id":"a.b"}`, "", "a.b"},
		"no id":         {`{"input":1}`, "", "field id"},
		"two values":    {`{"id":"r1"} {}`, "", "follows"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := messages.DecodeTask([]byte(tc.body))
			if !errors.Is(err, run.ErrMalformed) || !strings.Contains(err.Error(), tc.names) {
				t.Errorf("got %v, want malformed, naming %q", err, tc.names)
			}
			if string(got.ID) != tc.id {
				t.Errorf("id %q, want %q", got.ID, tc.id)
			}
		})
	}
}

// TestWorkKeepsDigest sends a task to another node: it must stay the same
// task, to the byte of its input.
func TestWorkKeepsDigest(t *testing.T) {
	in := must.Get(messages.DecodeTask([]byte(`{"id":"r1","input": {"a" : "<&>", "n": 1.50},"model":"m","tools":["x"],
		"budget":{"tokens":5,"time_ms":1500},"deadline":"2030-01-02T03:04:05.678Z","fork_of":"s-1-0:4"}`)))(t)
	task := must.Get(translate.Task(&in, "acme", "agent"))(t)
	task.Session.ID, task.By, task.Via = "home-1-0", "ana", "r0"
	data := must.Get(json.Marshal(translate.WorkOf(journal.Work{Task: &task})))(t)
	back := must.Get(translate.DecodeWork(data))(t)
	if diff := cmp.Diff(&task, back.Task); diff != "" {
		t.Error(diff)
	}
	if back.Task.Digest() != task.Digest() {
		t.Error("the digest changed on the way")
	}
	if want := (run.Budget{Tokens: 5, Time: 1500 * time.Millisecond}); task.Budget != want {
		t.Errorf("budget %+v", task.Budget)
	}
}

var objects = regexp.MustCompile(`(^|[:,\[])\{`)

// TestLaterReleases: in a fleet that is upgraded node by node, nodes send each other
// messages that the other release does not support. Unknown fields are skipped. A
// signal of an unknown kind is neither misread nor treated as malformed: a node that
// supports it processes it.
func TestLaterReleases(t *testing.T) {
	later := func(v any) string {
		data := must.Get(messages.Encode(v))(t)
		return strings.ReplaceAll(objects.ReplaceAllString(string(data), `$1{"added":[1.5],`), ",}", "}")
	}
	k := session.Key{Tenant: "acme", ID: "s1"}
	task := journal.Task{ID: "r1", Workflow: "w", Session: k, Budget: run.Budget{Steps: 3}}
	resume := task
	resume.Resume, resume.Budget = true, run.Budget{}
	for name, want := range map[string]journal.Work{
		"task":    {Task: &task},
		"resume":  {Task: &resume},
		"report":  {Signal: &journal.Signal{To: k, Run: "r1", Received: fullReceived()}},
		"cancel":  {Signal: &journal.Signal{To: k, Run: "r1", Cancel: &journal.CancelRequested{By: "b", Reason: "r", Run: "r1"}}},
		"dispose": {Signal: &journal.Signal{To: k, Run: "r1", Close: &run.BranchOutcome{Session: "s1", State: session.ClosedCancelled}}},
	} {
		got, err := translate.DecodeWork([]byte(later(translate.WorkOf(want))))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	_, err := translate.DecodeWork([]byte(`{"tenant":"acme","session":"s1","run":"r1","applaud":{"loud":true}}`))
	if !errors.Is(err, run.ErrNotSupported) {
		t.Errorf("a signal of a later release: %v, want not_supported", err)
	}
	for name, decode := range map[string]func([]byte) error{
		"answer.v1":      func(data []byte) error { _, err := wire.DecodeAnswer(data); return err },
		"result.v1":      func(data []byte) error { _, err := messages.DecodeResult(data); return err },
		"event.v1":       func(data []byte) error { _, err := messages.DecodeEvent(data); return err },
		"delta.v1":       func(data []byte) error { _, err := messages.DecodeDelta(data); return err },
		"dead-letter.v1": func(data []byte) error { _, err := messages.DecodeDeadLetter(data); return err },
		"alias.v1":       func(data []byte) error { _, err := translate.DecodeAlias(data); return err },
		"tool-cancel.v1": func(data []byte) error { _, err := wire.DecodeToolCancel(data); return err },
		"tool-call.v1":   func(data []byte) error { _, err := wire.DecodeToolCall(data); return err },
		"record.v1":      func(data []byte) error { _, err := lineage.Decode(data); return err },
	} {
		if err := decode([]byte(later(full()[name]))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSubjects(t *testing.T) {
	for _, want := range []messages.Submitter{{By: "ana"}, {By: "ana", Via: "bob"}, {By: "ana", Via: "ana"}} {
		tenant, from, workflow, ok := messages.ParseTaskSubject(messages.TaskSubject("acme", want.Token(), "agent"))
		if !ok || tenant != "acme" || from != want || workflow != "agent" {
			t.Error(tenant, from, workflow, ok)
		}
	}
	for _, bad := range []string{
		"rath.task.acme", "rath.task.acme.a", "rath.task.acme.a.b.c", "rath.task..a.b", "rath.task.acme..b", "rath.run.acme.a.b", "rath.task.acme.ana.ä",
		"rath.task.acme.ä.b", "rath.task.acme.session.b", "rath.task.acme.~.b", "rath.task.acme.ana~.b", "rath.task.acme.~bob.b", "rath.task.acme.ana~bob~carl.b",
	} {
		if _, _, _, ok := messages.ParseTaskSubject(bad); ok {
			t.Errorf("%s was read", bad)
		}
	}
	for subject, want := range map[string]wire.Controlled{
		"rath.ctl.acme.ana.r1.cancel":          {Tenant: "acme", User: "ana", ID: "r1", Verb: messages.VerbCancel},
		"rath.ctl.acme.ana.session.s1.message": {Tenant: "acme", User: "ana", ID: "s1", Verb: messages.VerbSessionMessage},
		"rath.ctl.acme.ana.session.message":    {Tenant: "acme", User: "ana", ID: "session", Verb: messages.VerbMessage},
		"rath.ctl.acme.tool.dlq.7.drop":        {Tenant: "acme", User: "tool", ID: "7", Verb: messages.VerbLetterDrop},
	} {
		if got, ok := wire.ParseControlSubject(subject); !ok || got != want {
			t.Errorf("%s: %+v, %t", subject, got, ok)
		}
	}
	for _, bad := range []string{
		"rath.ctl.acme.ana.r1.cancel.now", "rath.ctl.acme.a@b.r1.cancel", "rath.ctl.acme..r1.cancel", "rath.ctl.acme.*.r1.cancel",
		"rath.ctl.acme.r1.cancel", "rath.ctl.acme.session.s1.message",
	} {
		if c, ok := wire.ParseControlSubject(bad); ok {
			t.Errorf("%s was read: %+v", bad, c)
		}
	}
}

func TestErrorKeepsItsCode(t *testing.T) {
	data, err := json.Marshal(wire.Answer{Error: wire.ErrorOf(errors.Join(run.ErrState, session.ErrClosed))})
	must.Do(t, err)
	a, err := wire.DecodeAnswer(data)
	if err != nil || !errors.Is(a.Err(), run.ErrState) {
		t.Errorf("%s: %v, %v", data, a.Err(), err)
	}
	if a, err := wire.DecodeAnswer([]byte(`{"done":true}`)); err != nil || a.Err() != nil || !a.Done {
		t.Errorf("%+v, %v", a, err)
	}
}
