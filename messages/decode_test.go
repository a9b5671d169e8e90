package messages_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestErrorsNameFieldAndRemedy pins the error texts of wrong tasks.
func TestErrorsNameFieldAndRemedy(t *testing.T) {
	tests := map[string]string{
		``:                  "task: the body is empty: send a JSON object",
		`{`:                 "task: the JSON stops in the middle: send one JSON object",
		`{"id" "x"}`:        `task: not JSON at byte 7: invalid character '"' after object key: send one JSON object`,
		`["r1"]`:            "task: not a JSON object: send one, between { and }",
		"{\"id\":\"\xff\"}": "task: not valid UTF-8: encode the text as UTF-8 before it is sent",
		`{"input":1}`:       "task: field id: it is missing: choose one per task, of 1 to 64 of A-Z a-z 0-9 _ -; sending a task again under its id is harmless",
		`{"id":"r1","modle":"x"}`: `task: field "modle": unknown: did you mean "model"? the known ones are after, after_any, budget, class, deadline, fork_of, id, input, mcp, model, not_before, ` +
			`on_failure, priority, resumes, revision, sandbox, session, started_by, tags, tools, workspace`,
		`{"id":"r1","Id":"r2"}`: `task: field "Id": unknown: did you mean "id"? the known ones are after, after_any, budget, class, deadline, fork_of, id, input, mcp, model, not_before, on_failure, priority, resumes, revision, ` +
			`sandbox, session, started_by, tags, tools, workspace`,
		`{"id":"r1","workflow":"fix"}`:                                               `task: field "workflow": unknown: omit it: the subject has it, rath.task.<tenant>.<user>.<workflow>`,
		`{"id":"r1","id":"r1"}`:                                                      "task: field id: it is there twice: send it once",
		`{"id":"r1","budget":{"token":5}}`:                                           `task: field budget."token": unknown: did you mean "tokens"? the known ones are micro_usd, steps, time_ms, tokens`,
		`{"id":"r1","budget":{"tokens":-5}}`:                                         "task: field budget.tokens: -5 is negative: leave it out for no limit",
		`{"id":"r1","budget":{"tokens":"5"}}`:                                        `task: field budget.tokens: "5" is no whole number that fits: write it in digits, without sign, quotation marks, fraction and exponent`,
		`{"id":"r1","deadline":"tomorrow"}`:                                          `task: field deadline: "tomorrow" is no time: write it as "2026-11-20T15:04:05Z"`,
		`{"id":"r1","deadline":"9999-12-31T23:59:59-23:59"}`:                         `task: field deadline: the year 10000: write it as "2026-11-20T15:04:05Z"`,
		`{"id":"r1","workspace":"./src"}`:                                            `task: field workspace: "./src" is no head: upload the directory first and send its digest, 64 lower-case hexadecimal digits`,
		`{"id":"r1","sandbox":{"limits":"memory=lots"}}`:                             `task: field sandbox.limits: limit "memory=lots": want one size of at least 16m; write limits as memory=512m,cpus=1.5,disk=2g,pids=200: leave them out for those of the node`,
		`{"id":"r1","sandbox":{"network":"github.com"}}`:                             `task: field sandbox.network: network "github.com": write none, open, list:HOST,HOST or read_only:HOST,HOST: leave it out for none`,
		`{"id":"r1","sandbox":{"network":"list:10.0.0.1"}}`:                          `task: field sandbox.network: network: "10.0.0.1" is no name of a host; write github.com or *.golang.org, without a scheme, port and path: leave it out for none`,
		`{"id":"r1","sandbox":{"backend":"a b"}}`:                                    `task: field sandbox.backend: sandbox id "a b": only A-Z a-z 0-9 _ - are allowed: name one that the nodes have, such as local or docker`,
		`{"id":"r1","sandbox":{"image":"a b"}}`:                                      `task: field sandbox.image: "a b" is no name of an image: name one as the backend does, such as debian:12 or its digest`,
		`{"id":"r1","sandbox":{"services":[{"name":"web"}]}}`:                        `task: field sandbox.services: service "web": it has no command; give one that runs in the foreground: omit them for the session's`,
		`{"id":"r1","sandbox":{"services":[{"name":"web","command":"x","port":1}]}}`: `task: field sandbox.services[0]: unknown field "port": see the schema of the message`,
		`{"id":"r1","fork_of":"s1:0"}`:                                               `task: field fork_of: "s1:0" names no version of a session: write it as "session:version", or as "session" for its newest version`,
		`{"id":"r1","tools":["a","b","a"]}`:                                          `task: field tools[2]: "a" is there twice: name each once`,

		`{"id":"r1","deadline":"2026-01-01T00:00:00Z","not_before":"2027-01-01T00:00:00Z"}`: "task: field not_before: it is after the deadline: leave time between them for the run",
	}
	for body, want := range tests {
		_, err := messages.DecodeTask([]byte(body))
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", body, err, want)
		}
		if !errors.Is(err, run.ErrMalformed) || run.CodeOf(err) != run.CodeMalformed {
			t.Errorf("%s: code %s, want malformed", body, run.CodeOf(err))
		}
		if f, ok := errors.AsType[*strict.Error](err); !ok || f.Message != "task" {
			t.Errorf("%s: %T is no FieldError of a task", body, err)
		}
	}
}

func TestTooLarge(t *testing.T) {
	input := `"` + strings.Repeat("x", messages.MaxInput) + `"`
	_, err := messages.DecodeTask([]byte(`{"id":"r1","input":` + input + `}`))
	if !errors.Is(err, session.ErrTooLarge) || run.CodeOf(err) != run.CodeTooLarge || !strings.Contains(err.Error(), "field input") {
		t.Errorf("large input: %v", err)
	}
	got, err := messages.DecodeTask([]byte(`{"id":"r1","input":"` + strings.Repeat("x", messages.MaxMessage) + `"}`))
	if !errors.Is(err, session.ErrTooLarge) || got.ID != "" {
		t.Errorf("large message: %q %v", got.ID, err)
	}
	// The largest task there is can travel between nodes.
	var task messages.Task
	task.ID, task.Input = "r1", json.RawMessage(`"`+strings.Repeat(`\\`, messages.MaxInput/2-1)+`"`)
	in, err := translate.Task(&task, "acme", "agent")
	must.Do(t, err)
	in.Session.ID = "home-1-0"
	w := translate.WorkOf(journal.Work{Task: &in})
	data, err := w.Encode()
	must.Do(t, err)
	back, err := translate.DecodeWork(data)
	if err != nil || back.Task.Digest() != in.Digest() {
		t.Errorf("work of %d bytes: %v", len(data), err)
	}
}

func TestTaskRoundTrip(t *testing.T) {
	want := fullTask()
	data := must.Get(want.Encode())(t)
	got := must.Get(messages.DecodeTask(data))(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	in := must.Get(translate.Task(&got, "acme", "fix"))(t)
	if diff := cmp.Diff(want, translate.TaskOf(in)); diff != "" {
		t.Errorf("through package run:\n%s", diff)
	}
	if in.Workflow != "fix" || in.Session != (session.Key{Tenant: "acme", ID: "s1"}) || in.ForkOf.Version != 3 {
		t.Errorf("%+v", in)
	}
	want.Input = json.RawMessage(`{`)
	if _, err := want.Encode(); !errors.Is(err, run.ErrMalformed) {
		t.Errorf("input that is not JSON: %v", err)
	}
	for _, subject := range [][2]string{{"a.b", "fix"}, {"acme", "*"}} {
		if _, err := translate.Task(&got, session.Tenant(subject[0]), subject[1]); !errors.Is(err, run.ErrMalformed) || !strings.Contains(err.Error(), "rath.task.<tenant>.<user>.<workflow>") {
			t.Errorf("%v: %v", subject, err)
		}
	}
}

func TestControlSignals(t *testing.T) {
	home := session.Key{Tenant: "acme", ID: "s1"}
	tests := []struct {
		verb, body string
		want       journal.Signal
		err        error
		names      string
	}{
		{verb: "cancel", want: journal.Signal{Cancel: &journal.CancelRequested{By: "ana", Run: "r1"}}},
		{verb: "cancel", body: `{"reason":"too dear","by":"ann"}`, want: journal.Signal{Cancel: &journal.CancelRequested{By: "ana", Run: "r1", Says: "ann", Reason: "too dear"}}},
		{verb: "cancel", body: `{"decision":"fail"}`, err: run.ErrMalformed, names: "verb resolve"},
		{verb: "resolve", body: `{"decision":"happened","reason":"seen","value":{"n":1}}`, want: journal.Signal{Resolve: &journal.Resolved{By: "ana", Run: "r1", Decision: "happened", Reason: "seen", Value: `{"n":1}`}}},
		{verb: "resolve", body: `{"decision":"maybe","reason":"x"}`, err: run.ErrMalformed, names: `"again"`},
		{verb: "resolve", body: `{"decision":"again"}`, err: run.ErrMalformed, names: "field reason"},
		{verb: "resolve", body: `{"decision":"again","reason":"x","value":1}`, err: run.ErrMalformed, names: "field value"},
		{verb: "resolve", err: run.ErrMalformed, names: "field decision"},
		{verb: "approve", body: `{"step":"3","by":"ann"}`, want: journal.Signal{Received: &journal.SignalReceived{By: "ana", Says: "ann", Kind: journal.Approve, Path: "3", Run: "r1"}}},
		{verb: "approve", err: run.ErrMalformed, names: "field step"},
		{verb: "reject", body: `{"step":"3"}`, err: run.ErrMalformed, names: "field reason"},
		{verb: "reject", body: `{"step":"3","reason":"no","value":1}`, err: run.ErrMalformed, names: "field value"},
		{verb: "respond", body: `{"step":"3"}`, err: run.ErrMalformed, names: "field value"},
		{verb: "respond", body: `{"step":"3","value":{"n":1}}`, want: journal.Signal{Received: &journal.SignalReceived{By: "ana", Kind: journal.Respond, Path: "3", Run: "r1", Value: `{"n":1}`}}},
		{verb: "approve", body: `{"step":"3","text":"yes"}`, err: run.ErrMalformed, names: "field text"},
		{verb: "reject", body: `{"step":"3","reason":"no","decision":"fail"}`, err: run.ErrMalformed, names: "field decision"},
		{verb: "respond", body: `{"step":"3","value":1,"interrupt":true}`, err: run.ErrMalformed, names: "field interrupt"},
		{verb: "respond", body: `{"step":"3","value":1,"budget":{"steps":1}}`, err: run.ErrMalformed, names: "verb rebudget"},
		{verb: "message", body: `{"text":"hello","submitted":true}`, err: run.ErrMalformed, names: "field submitted"},
		{verb: "rebudget", body: `{"step":"3","budget":{"steps":1}}`, err: run.ErrMalformed, names: "verb approve, reject, respond"},
		{verb: "message", body: `{"text":"hello","interrupt":true}`, want: journal.Signal{Received: &journal.SignalReceived{By: "ana", Interrupt: true, Kind: journal.Message, Run: "r1", Text: "hello"}}},
		{verb: messages.VerbSessionMessage, err: run.ErrMalformed, names: "field text"},
		{verb: "explode", err: run.ErrMalformed, names: "cancel, resolve"},
	}
	for _, tt := range tests {
		c, err := messages.DecodeControl([]byte(tt.body))
		if err != nil {
			t.Fatalf("%s %s: %v", tt.verb, tt.body, err)
		}
		got, err := translate.Signal(c, home, "ana", "r1", tt.verb)
		if tt.err != nil {
			if !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.names) || !messages.Refusal(err) {
				t.Errorf("%s %s: %v, want %v naming %s", tt.verb, tt.body, err, tt.err, tt.names)
			}
			continue
		}
		tt.want.To, tt.want.Run = home, "r1"
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s %s: %v\n%s", tt.verb, tt.body, err, diff)
		}
	}
	if messages.Refusal(run.ErrBusy) || messages.Refusal(session.ErrUnavailable) {
		t.Error("a request that may be sent again is refused for good")
	}
}

func TestErrorsTravel(t *testing.T) {
	for _, err := range []error{run.ErrBusy, run.ErrKeyReused, session.ErrNotFound, run.ErrNotSupported, fmt.Errorf("deep: %w", run.ErrState)} {
		data := must.Get(messages.Encode(wire.AnswerOf(err)))(t)
		a, decErr := wire.DecodeAnswer(data)
		if decErr != nil || a.Done || run.CodeOf(a.Err()) != run.CodeOf(err) || a.Err().Error() != messages.Text(err) {
			t.Errorf("%v became %s: %v %v", err, data, a.Err(), decErr)
		}
		if reply, encErr := messages.Encode(wire.ErrorOf(err)); encErr != nil || run.CodeOf(wire.ReplyError(reply)) != run.CodeOf(err) {
			t.Errorf("%v became the reply %s", err, reply)
		}
	}
	archived := &session.ArchivedError{Key: session.Key{Tenant: "acme", ID: "s1"}, File: "acme-s1.json", Time: time.UnixMilli(1795165200010), Fenced: true}
	reply := must.Get(messages.Encode(wire.ErrorOf(fmt.Errorf("read: %w", archived))))(t)
	got := wire.ReplyError(reply)
	if a, ok := errors.AsType[*session.ArchivedError](got); !ok || a.Key.ID != "s1" || a.File != archived.File || !a.Time.Equal(archived.Time) || !a.Fenced || a.Partial ||
		!errors.Is(got, session.ErrArchived) || run.CodeOf(got) != run.CodeOf(archived) {
		t.Errorf("%s became %#v", reply, got)
	}
	if a := wire.AnswerOf(nil); !a.Done || a.Err() != nil {
		t.Errorf("no error became %+v", a)
	}
	for _, reply := range []string{`{"runs":[]}`, `{"run":"r1","state":"failed","code":"timeout","error":"too slow"}`, `[]`, ``} {
		if err := wire.ReplyError([]byte(reply)); err != nil {
			t.Errorf("%s is no error, got %v", reply, err)
		}
	}
	if _, err := wire.DecodeAnswer([]byte(`{}`)); err == nil {
		t.Error("an answer that says nothing was read")
	}
}

func TestResults(t *testing.T) {
	ended := must.Get(journal.NewEvent(journal.KindEnded, journal.Ended{Run: "r1", State: run.TimedOut, Code: run.CodeDeadline, Error: "too late", Workflow: "fix", Attempt: 2}))(t)
	ended.Time = moment
	e := commitlog.Entry{
		Commit: commitlog.Commit{Key: session.Key{Tenant: "acme", ID: "s1"}, Seq: 7, Events: []session.Event{session.ChunkEvent(session.UserText("x")), ended}},
		At:     commitlog.Position{Seq: 7, Hash: commitlog.HashOf([]byte("x"))},
	}
	rs := translate.Results(e, journal.Facts(e.Commit))
	if len(rs) != 1 {
		t.Fatalf("%d results", len(rs))
	}
	data := must.Get(rs[0].Encode())(t)
	r := must.Get(messages.DecodeResult(data))(t)
	if r.Chain == nil || r.Chain.Hash != e.At.Hash.String() || r.Chain.Seq != 7 || r.EndedMS != moment.UnixMilli() || r.Session != "s1" {
		t.Errorf("%+v", r)
	}
	if err := r.Err(); !errors.Is(err, run.ErrDeadline) || !strings.Contains(err.Error(), "run r1 timed_out: too late") {
		t.Errorf("Err() = %v", err)
	}
	head := blob.Sum([]byte("files"))
	link := session.Link{Ref: session.Ref{Key: e.Commit.Key, Version: 3}, Seq: 6}
	for want, ended := range map[session.Version]journal.Ended{
		3: {Run: "r1", State: run.Succeeded, Workflow: "fix", Result: &link},                         // of an earlier release
		5: {Run: "r1", State: run.Succeeded, Workflow: "fix", Result: &link, Version: 5, Head: head}, // the commit adds two
		2: {Run: "r1", State: run.Succeeded, Workflow: "fix", Version: 2},                            // it is the session's first
		0: {Run: "r1", State: run.Failed, Workflow: "fix", Version: 4, Head: head},
	} {
		r := translate.ResultOf("s1", ended, moment)
		files := ""
		if !ended.Head.IsZero() {
			files = head.String()
		}
		if r.Session != "s1" || r.Version != want || r.Workspace != files {
			t.Errorf("%s with version %d: the result is %s:%d with files %q", ended.State, ended.Version, r.Session, r.Version, r.Workspace)
		}
	}
	// A branch that releases the run.
	away := must.Get(journal.NewEvent(journal.KindEnded, journal.Ended{Run: "r1", State: run.Cancelled, Code: run.CodeCancelled, Attempt: 2}))(t)
	e.Commit.Events = []session.Event{away}
	if rs := translate.Results(e, journal.Facts(e.Commit)); len(rs) > 0 {
		t.Errorf("a session that is not the run's home ends it: %+v", rs)
	}
	refused := translate.RefusedResult("r2", "fix", *wire.ErrorOf(run.ErrKeyReused), moment)
	if err := refused.Err(); !errors.Is(err, run.ErrKeyReused) {
		t.Errorf("refused: %v", err)
	}
	if ok := (&messages.Result{State: run.Succeeded}).Err(); ok != nil {
		t.Errorf("a success has the error %v", ok)
	}
	for _, bad := range []string{`{"schema":2,"run":"r1","state":"failed"}`, `{"schema":1,"run":"r1","state":"running"}`, `{"run":"r1","state":"failed"}`, `x`} {
		if _, err := messages.DecodeResult([]byte(bad)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func TestDeadLetter(t *testing.T) {
	now := time.UnixMilli(1700000000123)
	for name, payload := range map[string][]byte{
		"text": []byte(`{"id":"a.b"}`), "bytes": {0xff, 0xfe, 0}, "empty": nil,
		"long": []byte(strings.Repeat("語", 200_000)), "long bytes": []byte(strings.Repeat("\xff", 600_000)),
	} {
		l := messages.NewDeadLetter("rath.task.acme.anonymous.fix", "", payload, run.ErrMalformed, now)
		data, err := messages.Encode(l)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		back, err := messages.DecodeDeadLetter(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := back.Payload(); !strings.HasPrefix(string(payload), string(got)) || (len(got) == len(payload)) == back.Truncated || back.Bytes != len(payload) {
			t.Errorf("%s: %d of %d bytes, truncated %v", name, len(got), len(payload), back.Truncated)
		}
		if back.Code != run.CodeMalformed || back.Reason == "" || back.TimeMS != now.UnixMilli() {
			t.Errorf("%s: %+v", name, back)
		}
	}
}

func TestDeltaIsMarked(t *testing.T) {
	data, err := messages.Encode(messages.Delta{Run: "r1", Session: "s1", Step: "1", Attempt: 1, N: 1, Text: "<b>"})
	must.Do(t, err)
	if want := `{"provisional":true,"run":"r1","session":"s1","step":"1","attempt":1,"n":1,"text":"<b>"}`; string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
	back, err := messages.DecodeDelta(data)
	if err != nil || back.Text != "<b>" {
		t.Errorf("%+v %v", back, err)
	}
}

func TestMoreSubjects(t *testing.T) {
	tests := [][2]string{
		{messages.RunSubject("acme", "r1", messages.OnResult), "rath.run.acme.r1.result"},
		{messages.ControlSubject("acme", "ana", "r1", messages.VerbCancel), "rath.ctl.acme.ana.r1.cancel"},
		{messages.SessionMessageSubject(session.Key{Tenant: "acme", ID: "s1"}, "ana"), "rath.ctl.acme.ana.session.s1.message"},
		{messages.QuerySubject("acme", messages.QueryRuns), "rath.query.acme.runs"},
		{messages.ToolSubject("acme", "deploy"), "rath.tool.acme.deploy"},
		{messages.DeadLetterSubject("acme", "fix", 7, time.Unix(1, 5)), "rath.dlq.acme.fix.task.7-1000000005"},
		{messages.DeadLetterSubject("a.b", "", 7, time.Unix(1, 5)), "rath.dlq._._.task.7-1000000005"},
		{messages.LetterEndSubject("acme", "fix", 12), "rath.dlq.acme.fix.12"},
		{messages.TailSubject("acme", "", messages.KindMerged, ""), "rath.tail.acme.*.merged.*"},
		{messages.DeliverSubject("node-a-1"), "rath.node.node-a-1.deliver"},
		{translate.RunAliasKey("acme", "r1") + " " + translate.RerunAliasKey("acme", "r1-r1") + " " + translate.SessionAliasKey("acme", "fix"), "acme.run.r1 acme.rerun.r1-r1 acme.session.fix"},
		{wire.WorkflowKey("default", "fix") + " " + wire.ToolKey("acme", "deploy"), "workflow.default.fix tool.acme.deploy"},
	}
	for _, c := range tests {
		if got, want := c[0], c[1]; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if tenant, id, on, ok := messages.ParseRunSubject("rath.run.acme.r1.delta"); !ok || tenant != "acme" || id != "r1" || on != messages.OnDelta {
		t.Error(tenant, id, on, ok)
	}
	if tenant, verb, ok := messages.ParseQuerySubject("rath.query.acme.runs"); !ok || tenant != "acme" || verb != "runs" {
		t.Error(tenant, verb, ok)
	}
	for subject, letter := range map[string]bool{
		"rath.dlq.acme.fix": true, "rath.dlq.acme.fix.task.7-1000000005": true,
		"rath.dlq.acme.fix.12": false, "rath.dlq.acme.fix.task": false, "rath.dlq.acme.fix.other.7": false, "rath.dlq.acme": false,
	} {
		if tenant, workflow, ok := messages.ParseDeadLetterSubject(subject); ok != letter || ok && (tenant != "acme" || workflow != "fix") {
			t.Error(subject, tenant, workflow, ok)
		}
	}
	r := fullRecord()
	if k, root, kind, ok := messages.ParseTailSubject(lineage.TailSubject(&r)); !ok || k != r.Key() || root != r.Root || kind != r.Kind {
		t.Error(lineage.TailSubject(&r), k, root, kind, ok)
	}
	for _, bad := range []string{"rath.run.acme.r1.other", "rath.run.acme..delta", "rath.run.acme.r1", "rath.query.acme.*", "rath.tail.acme.s.teleported.s", "rath.query.ac me.runs"} {
		_, _, _, ok1 := messages.ParseRunSubject(bad)
		_, _, ok2 := messages.ParseQuerySubject(bad)
		_, _, _, ok3 := messages.ParseTailSubject(bad)
		if ok1 || ok2 || ok3 {
			t.Errorf("%s was read", bad)
		}
	}
}

func TestViews(t *testing.T) {
	c := session.AssistantText(strings.Repeat("語", messages.MaxChunkText), session.ToolCall{ID: "1", Name: "n", Args: "{}"}).
		Of(session.Origin{Agent: "a", Run: "r1", Step: "1", Time: moment, Usage: usage})
	v := messages.ChunkOf(3, c)
	if !v.Truncated || len(v.Text) > messages.MaxChunkText || !strings.HasSuffix(v.Text, "語") || v.Index != 3 || v.Time != moment.UnixMilli() || len(v.Calls) != 1 {
		t.Errorf("chunk of %d bytes, truncated %v, %+v", len(v.Text), v.Truncated, v.Calls)
	}
	info := translate.RunInfo(lineage.Run{ID: "r1", Home: session.Key{ID: "s1"}, State: run.Running, Submitted: moment})
	if info.Run != "r1" || info.Session != "s1" || info.Submitted != moment.UnixMilli() || info.Ended != 0 {
		t.Errorf("%+v", info)
	}
	b := translate.BranchOf(lineage.Session{Key: session.Key{ID: "s2"}, Disposition: "rejected", Reason: "why", Opened: moment, Last: moment})
	if b.Session != "s2" || b.Disposition != "rejected" || b.Opened != moment.UnixMilli() {
		t.Errorf("%+v", b)
	}
}

func TestHeldEvent(t *testing.T) {
	e := translate.TaskHeld("acme", "r1", "fix", wire.Error{Code: run.CodeBusy, Text: "no room"})
	data, err := messages.Encode(e)
	must.Do(t, err)
	must.Report(t, validate(resolved(t, "event.v1"), data))
	back, err := messages.DecodeEvent(data)
	if err != nil || back.Kind != messages.KindHeld || back.Code != run.CodeBusy || back.State != "" || back.Summary != "task waits: no room" {
		t.Errorf("%s: %v", data, err)
	}
}

func TestRefusedEvent(t *testing.T) {
	e := translate.Refused("acme", "r1", "fix", wire.Error{Code: run.CodeKeyReused, Text: strings.Repeat("語 ", 200)})
	data, err := messages.Encode(e)
	must.Do(t, err)
	back, err := messages.DecodeEvent(data)
	if err != nil || back.Kind != messages.KindRefused || back.Code != run.CodeKeyReused || len([]rune(back.Summary)) > lineage.MaxSummary {
		t.Errorf("%s: %v", data, err)
	}
	if err := validate(resolved(t, "event.v1"), data); err == nil && len([]rune(back.Reason)) > lineage.MaxReason {
		t.Error("the schema takes a reason that is too long")
	}
}

// TestUnknownFieldsAreCheap: only the first wrong field is reported, so that the search
// for the intended name runs once.
func TestUnknownFieldsAreCheap(t *testing.T) {
	const fields = 1000
	var b strings.Builder
	b.WriteString(`{"id":"r1"`)
	for i := range fields {
		fmt.Fprintf(&b, `,"modle%d":1`, i)
	}
	b.WriteString("}")
	body := []byte(b.String())
	allocs := testing.AllocsPerRun(2, func() {
		if _, err := messages.DecodeTask(body); err == nil || !strings.Contains(err.Error(), `"modle0": unknown: did you mean "model"?`) {
			t.Error(err)
		}
	})
	if allocs > 20*fields {
		t.Errorf("%d unknown fields take %.0f allocations", fields, allocs)
	}
}
