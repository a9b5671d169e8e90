package api_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The stories in this file act as a program in another language: a plain NATS client
// without credentials, and JSON.

type inProcess func() (net.Conn, error)

func (d inProcess) InProcessConn() (net.Conn, error) { return d() }

// guest is a NATS client without credentials.
func guest(t *testing.T, srv *natsserver.Server) *nats.Conn {
	t.Helper()
	nc := must.Get(nats.Connect("", nats.InProcessServer(inProcess(srv.Dial))))(t)
	t.Cleanup(nc.Close)
	return nc
}

// object is any JSON object.
type object map[string]any

// heard collects the messages that a guest receives about a run.
type heard struct {
	deltas, events, results chan object
}

func listen(t *testing.T, nc *nats.Conn, id string) heard {
	t.Helper()
	h := heard{make(chan object, 1<<16), make(chan object, 1<<10), make(chan object, 1<<10)}
	for part, out := range map[string]chan object{"delta": h.deltas, "event": h.events, "result": h.results} {
		must.Get(nc.Subscribe("rath.run.default."+id+"."+part, func(m *nats.Msg) { out <- read(t, m.Data) }))(t)
	}
	must.Do(t, nc.Flush())
	return h
}

func read(t *testing.T, data []byte) object {
	t.Helper()
	var o object
	if err := json.Unmarshal(data, &o); err != nil {
		t.Errorf("not JSON: %v: %s", err, data)
	}
	return o
}

// ask sends a request and reads the answer.
func ask(t *testing.T, nc *nats.Conn, subject, body string) object {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), 20*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return read(t, m.Data)
}

// submit publishes a task and demands the stream's acknowledgement.
func submit(t *testing.T, nc *nats.Conn, workflow, body string) {
	t.Helper()
	ack := ask(t, nc, messages.TaskSubject(session.DefaultTenant, cmp.Or(nc.Opts.User, messages.UserAnonymous), workflow), body)
	if ack["stream"] != "TASKS" || ack["error"] != nil {
		t.Fatalf("acknowledgement: %v", ack)
	}
}

// next waits for a message.
func next(t *testing.T, from chan object, what string) object {
	t.Helper()
	select {
	case o := <-from:
		return o
	case <-time.After(time.Minute):
		t.Fatalf("no %s", what)
		return nil
	}
}

// withGuest runs f beside a server and a guest, in virtual time.
func withGuest(t *testing.T, f func(t *testing.T, srv *natsserver.Server, nc *nats.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		f(t, srv, guest(t, srv))
	})
}

// story runs f beside a node, in virtual time.
func story(t *testing.T, f func(t *testing.T, n *node, nc *nats.Conn)) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		f(t, n, nc)
		n.stop()
	})
}

func TestStoryOfATask(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		h := listen(t, nc, "r1")
		submit(t, nc, "agent", `{"id":"r1","input":"hello there"}`)
		result := next(t, h.results, "result")
		if result["state"] != "succeeded" || result["output"] != "echo: hello there" {
			t.Errorf("result %v", result)
		}
		text := ""
		for n := 0.0; text != "echo: hello there"; n++ {
			d := next(t, h.deltas, fmt.Sprintf("delta %v after %q", n, text))
			if d["n"] != n {
				t.Errorf("delta %v, want number %v", d, n)
			}
			if piece, ok := d["text"].(string); ok { // the start of the step has none
				text += piece
			}
		}
		for seen := (object{}); seen["kind"] != "ended"; {
			seen = next(t, h.events, "event of the end")
			if seen["run"] != "r1" || seen["summary"] == "" {
				t.Errorf("event %v", seen)
			}
		}
		if late := ask(t, nc, "rath.query.default.result", `{"run":"r1"}`); late["output"] != "echo: hello there" {
			t.Errorf("a late reader gets %v", late)
		}
	})
}

func TestStoryOfTheSameTaskTwice(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		h := listen(t, nc, "r1")
		body := `{"id":"r1","input":"once"}`
		submit(t, nc, "agent", body)
		first := next(t, h.results, "result")
		submit(t, nc, "agent", body)
		if again := next(t, h.results, "result"); again["output"] != first["output"] || again["ended_ms"] != first["ended_ms"] {
			t.Errorf("result %v, was %v", again, first)
		}
		// The run's own events are in no order with its result, nor with refusals.
		refusal := func() object {
			t.Helper()
			for {
				if e := next(t, h.events, "event of the refusal"); e["kind"] == "refused" {
					return e
				}
			}
		}
		// Another body under the same id is reported, and changes no result.
		submit(t, nc, "agent", `{"id":"r1","input":"twice"}`)
		if e := refusal(); e["code"] != "key_reused" {
			t.Errorf("event %v", e)
		}
		synctest.Wait()
		if len(h.results) != 0 {
			t.Errorf("another result: %v", <-h.results)
		}
		if late := ask(t, nc, "rath.query.default.result", `{"run":"r1"}`); late["output"] != first["output"] || late["output"] != "echo: once" {
			t.Errorf("result %v, was %v", late, first)
		}
		// So is the same body for another session.
		submit(t, nc, "agent", `{"id":"r1","input":"once","session":"elsewhere"}`)
		if e := refusal(); e["code"] != "key_reused" {
			t.Errorf("event %v", e)
		}
		letters := n.letters(t)
		if len(letters) != 2 || letters[0]["code"] != "key_reused" || letters[0]["text"] != `{"id":"r1","input":"twice"}` {
			t.Errorf("dead letters %v", letters)
		}
		s := ask(t, nc, "rath.query.default.session", `{"session":"`+first["session"].(string)+`"}`)
		if s["total"] != 2.0 {
			t.Errorf("session %v, want two chunks: the task ran once", s)
		}
	})
}

func TestStoryOfRefusedTasks(t *testing.T) {
	tests := map[string]struct{ workflow, id, body, code, names string }{
		"malformed":        {"agent", "m1", `{"id":"m1","inptu":"x"}`, "malformed", "inptu"},
		"unknown workflow": {"nobody", "m2", `{"id":"m2"}`, "unknown_workflow", "agent, hold, once"},
		"some time":        {"agent", "m3", `{"id":"m3","input":"x","not_before":"some time"}`, "malformed", "not_before"},
		"no such fork":     {"agent", "m4", `{"id":"m4","input":"x","fork_of":"nothing:3"}`, "not_found", "nothing"},
		"bad session":      {"agent", "m5", `{"id":"m5","input":"x","session":"a.b"}`, "malformed", "session"},
		"large input":      {"agent", "m7", `{"id":"m7","input":"` + strings.Repeat("x", 300<<10) + `"}`, "too_large", "workspace"},
		"large":            {"agent", "m8", `{"id":"m8","input":"` + strings.Repeat("x", 600<<10) + `"}`, "too_large", "workspace"},
		"revision":         {"agent", "m6", `{"id":"m6","input":"x","revision":"9"}`, "not_supported", "revision"},
	}
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		large := tests["large"]
		if ack := ask(t, nc, "rath.task.default.anonymous.agent", large.body); ack["error"].(map[string]any)["err_code"] != 10054.0 {
			t.Errorf("a task that is larger than any may be: %v", ack)
		}
		// A stream without that limit takes it.
		s := must.Get(n.operator().Stream(t.Context(), streams.StreamTasks))(t)
		cfg := s.CachedInfo().Config
		cfg.MaxMsgSize = -1
		must.Get(n.operator().UpdateStream(t.Context(), cfg))(t)
		for name, tc := range tests {
			h := listen(t, nc, tc.id)
			submit(t, nc, tc.workflow, tc.body)
			r := next(t, h.results, "result")
			if r["state"] != "failed" || r["code"] != tc.code || !strings.Contains(fmt.Sprint(r["error"]), tc.names) {
				t.Errorf("%s: result %v, want code %s, naming %s", name, r, tc.code, tc.names)
			}
			if e := next(t, h.events, "event"); e["kind"] != "refused" || e["code"] != tc.code {
				t.Errorf("%s: event %v", name, e)
			}
		}
		if letters := n.letters(t); len(letters) != len(tests) {
			t.Errorf("%d dead letters, want %d: %v", len(letters), len(tests), letters)
		}
		// A task without a readable id is kept, and has no one to report to.
		submit(t, nc, "agent", "not JSON")
		time.Sleep(time.Second)
		letters := n.letters(t)
		if last := letters[len(letters)-1]; len(letters) != len(tests)+1 || last["text"] != "not JSON" {
			t.Errorf("dead letters %v", letters)
		}
		if n.pending(t) != 0 {
			t.Errorf("%d tasks are left", n.pending(t))
		}
	})
}

func TestStoryOfAForkThatIsNotThere(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		h := listen(t, nc, "r1")
		submit(t, nc, "agent", `{"id":"r1","session":"talk","input":"one"}`)
		next(t, h.results, "result")
		h = listen(t, nc, "r2")
		submit(t, nc, "agent", `{"id":"r2","fork_of":"talk:99","input":"two"}`)
		if r := next(t, h.results, "result"); r["code"] != "not_found" || !strings.Contains(fmt.Sprint(r["error"]), "version 99") {
			t.Errorf("result %v", r)
		}
		h = listen(t, nc, "r3")
		submit(t, nc, "agent", `{"id":"r3","fork_of":"talk","input":"three"}`)
		r := next(t, h.results, "result")
		s := ask(t, nc, "rath.query.default.session", fmt.Sprintf(`{"session":%q}`, r["session"]))
		if r["state"] != "succeeded" || s["total"] != 4.0 || s["opened"] != "fork" {
			t.Errorf("result %v of session %v", r, s)
		}
	})
}

func TestStoryOfASecondRun(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		first, second := listen(t, nc, "r1"), listen(t, nc, "r2")
		submit(t, nc, "hold", `{"id":"r1","session":"talk"}`)
		for e := (object{}); e["kind"] != "claimed"; {
			e = next(t, first.events, "claim")
		}
		submit(t, nc, "agent", `{"id":"r2","session":"talk","input":"me too"}`)
		if e := next(t, second.events, "event"); e["kind"] != "queued" || e["behind"] != "r1" {
			t.Errorf("event %v, want it queued behind r1", e)
		}
		if n.pending(t) != 0 {
			t.Error("the queued task was not acknowledged")
		}
		if r := ask(t, nc, "rath.query.default.run", `{"run":"r2"}`); r["state"] != "queued" || r["behind"] != "r1" {
			t.Errorf("run %v", r)
		}
		close(n.hold)
		a, b := next(t, first.results, "result"), next(t, second.results, "result")
		if a["state"] != "succeeded" || b["state"] != "succeeded" || a["session"] != b["session"] {
			t.Errorf("results %v and %v", a, b)
		}
	})
}

func TestStoryOfACancel(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		h := listen(t, nc, "r1")
		submit(t, nc, "hold", `{"id":"r1"}`)
		for e := (object{}); e["kind"] != "claimed"; {
			e = next(t, h.events, "claim")
		}
		if a := ask(t, nc, "rath.ctl.default.anonymous.r1.cancel", `{"reason":"enough"}`); a["done"] != true {
			t.Errorf("answer %v", a)
		}
		if r := next(t, h.results, "result"); r["state"] != "cancelled" || r["error"] != "enough" {
			t.Errorf("result %v", r)
		}
		if a := ask(t, nc, "rath.ctl.default.anonymous.r1.cancel", ``); a["done"] != false || a["code"] != "wrong_state" {
			t.Errorf("a second cancel: %v", a)
		}
		// This one was not submitted yet: it is cancelled when it comes, unless
		// only submitted ones are meant.
		if a := ask(t, nc, "rath.ctl.default.anonymous.r2.cancel", `{"reason":"mistyped","submitted":true}`); a["done"] != false || a["code"] != "unknown_run" {
			t.Errorf("answer %v", a)
		}
		if a := ask(t, nc, "rath.ctl.default.anonymous.r2.cancel", `{"reason":"too early"}`); a["done"] != true || !strings.HasPrefix(a["note"].(string), "no task of this id was taken yet") {
			t.Errorf("answer %v", a)
		}
		submit(t, nc, "agent", `{"id":"r2","input":"x"}`)
		time.Sleep(time.Second)
		if r := ask(t, nc, "rath.query.default.result", `{"run":"r2"}`); r["state"] != "cancelled" || r["error"] != "too early" {
			t.Errorf("result %v", r)
		}
		if letters := n.letters(t); len(letters) != 0 {
			t.Errorf("dead letters %v", letters)
		}
		// The server lets only an operator send these, and a node rejects them.
		op, _ := operatorOf(t, n.srv)
		for subject, code := range map[string]string{
			"rath.ctl.default.r1.cancel":                    "malformed",
			"rath.ctl.default.session.s1.message":           "malformed",
			"rath.ctl.default.tool.weather.announce":        "malformed",
			"rath.ctl.default.anonymous.r1.approve":         "malformed",
			"rath.ctl.default.anonymous.r1.dance":           "malformed",
			"rath.ctl.default.anonymous.r1.cancel.now":      "malformed",
			"rath.ctl.default.anonymous.nobody.resolve":     "unknown_run",
			"rath.ctl.default.anonymous.session.s1.message": "malformed",
		} {
			if a := ask(t, op, subject, `{"decision":"again","reason":"I looked"}`); a["code"] != code {
				t.Errorf("%s: %v, want %s", subject, a, code)
			}
		}
		told := ask(t, op, "rath.ctl.default.anonymous.tool.weather.announce", `{"name":"weather","description":"of a city","input":[]}`)
		if text := fmt.Sprint(told["error"]); !strings.Contains(text, "field input: a JSON array where another kind of value belongs") {
			t.Errorf("a schema that is no object: %v", told)
		}
		told = ask(t, op, "rath.ctl.default.anonymous.tool.run_shell_command.announce", `{"name":"run_shell_command","description":"of mine","input":{"type":"object"}}`)
		if text := fmt.Sprint(told["error"]); told["code"] != "malformed" || !strings.Contains(text, "field name: the tool run_shell_command is built into every node: choose another name") {
			t.Errorf("a tool that agents would never call: %v", told)
		}
	})
}

func TestStoryOfQueries(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		for verb, tc := range map[string]struct{ body, code string }{
			"session":   {`{"session":"nobody"}`, "not_found"},
			"run":       {`{"run":"nobody"}`, "unknown_run"},
			"result":    {`{"run":"nobody"}`, "unknown_run"},
			"graph":     {`{"session":"nobody"}`, "not_found"},
			"lineage":   {`{"limit":-1}`, "malformed"},
			"runs":      {`{"state":"x"}`, "malformed"},
			"workflows": {`[]`, "malformed"},
		} {
			if a := ask(t, nc, "rath.query.default."+verb, tc.body); a["code"] != tc.code || a["error"] == "" {
				t.Errorf("%s %s: %v, want %s", verb, tc.body, a, tc.code)
			}
		}
		digest := strings.Repeat("0a", 32)
		for _, tc := range [][3]string{
			{"result", `{"run":"@last"}`, "field run: @last is for the query run alone"},
			{"live", `{"run":"@last"}`, "field run: @last is for the query run alone"},
			{"replay", `{}`, "field run: it is missing"},
			{"blob", `{"digests":["` + digest + `","` + digest + `"]}`, "field digests: there are 2: ask for one blob at a time"},
		} {
			if a := ask(t, nc, "rath.query.default."+tc[0], tc[1]); a["code"] != "malformed" || !strings.Contains(fmt.Sprint(a["error"]), tc[2]) {
				t.Errorf("%s %s: %v, want %s", tc[0], tc[1], a, tc[2])
			}
		}
		h := listen(t, nc, "r1")
		submit(t, nc, "agent", `{"id":"r1","session":"talk","input":"hello"}`)
		next(t, h.results, "result")
		for e := (object{}); e["kind"] != "ended"; {
			e = next(t, h.events, "end")
		}
		runs := ask(t, nc, "rath.query.default.runs", ``)["runs"].([]any)
		if len(runs) != 1 || runs[0].(map[string]any)["state"] != "succeeded" {
			t.Errorf("runs %v", runs)
		}
		g := ask(t, nc, "rath.query.default.graph", `{"session":"talk","format":"text"}`)
		if tree := g["tree"].([]any); len(tree) != 1 || !strings.Contains(g["picture"].(string), "answerer") {
			t.Errorf("graph %v", g)
		}
		if s := ask(t, nc, "rath.query.default.session", `{"session":"talk:9"}`); s["code"] != "not_found" {
			t.Errorf("version 9: %v", s)
		}
		if w := ask(t, nc, "rath.query.default.workflows", ``)["workflows"].([]any); len(w) != 3 {
			t.Errorf("workflows %v", w)
		}
		if ns := ask(t, nc, "rath.query.default.nodes", ``)["nodes"].([]any); len(ns) != 1 {
			t.Errorf("nodes %v", ns)
		}
		l := ask(t, nc, "rath.query.default.lineage", `{"session":"talk"}`)
		if records := l["records"].([]any); len(records) < 4 || l["more"] != false || l["next"] != records[len(records)-1].(map[string]any)["cursor"] {
			t.Errorf("lineage %v", l)
		}
		// Another tenant is out of reach.
		if _, err := nc.Request("rath.query.acme.runs", nil, time.Second); err == nil {
			t.Error("a client without credentials read another tenant")
		}
	})
}

// TestStoryOfACancelInTheQueue cancels a task that no node has claimed, because all slots
// are in use.
func TestStoryOfACancelInTheQueue(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNodeWith(t, srv, "node-1", &spec{slots: 1, intake: leaves})
		h := listen(t, nc, "r2")
		submit(t, nc, "hold", `{"id":"r1"}`)
		time.Sleep(time.Second)
		submit(t, nc, "hold", `{"id":"r2"}`)
		submit(t, nc, "agent", `{"id":"r3","input":"after them"}`)
		time.Sleep(20 * time.Second)
		if left := n.pending(t); left != 2 {
			t.Errorf("%d tasks wait, want 2", left)
		}
		if a := ask(t, nc, "rath.ctl.default.anonymous.r2.cancel", `{"reason":"changed my mind"}`); a["done"] != true || a["note"] == nil {
			t.Errorf("answer %v", a)
		}
		if r := next(t, h.results, "result"); r["state"] != "cancelled" || r["error"] != "changed my mind" {
			t.Errorf("result %v", r)
		}
		close(n.hold)
		succeeded(t, nc, "r3")
		if left := n.pending(t); left != 0 {
			t.Errorf("%d tasks are left", left)
		}
		if runs := ask(t, nc, "rath.query.default.runs", ``)["runs"].([]any); len(runs) != 3 {
			t.Errorf("runs %v, want three, one of them cancelled", runs)
		}
		n.stop()
	})
}

// TestStoryOfManyThatComeAgain queries one of many tasks that were delivered to nodes and
// could not be claimed yet. It is not unknown: a client would take an unknown task for
// lost.
func TestStoryOfManyThatComeAgain(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		var open atomic.Bool
		n := startNodeWith(t, srv, "node-1", &spec{intake: func(in *dispatch.Intake) {
			in.Check = func(journal.Task) error {
				if open.Load() {
					return nil
				}
				return errors.New("not yet")
			}
		}})
		for i := range 100 {
			submit(t, nc, "agent", fmt.Sprintf(`{"id":"r%d","input":"hello"}`, i))
		}
		time.Sleep(100 * time.Millisecond)
		a := ask(t, nc, "rath.query.default.run", `{"run":"r99","all":true}`)
		if a["code"] != string(run.CodeOf(run.ErrBusy)) {
			t.Errorf("answer %v, want that of run.ErrBusy", a)
		}
		open.Store(true)
		succeeded(t, nc, "r99")
		n.stop()
	})
}

// TestStoryOfACancelBetweenDeliveries redelivers a task that a log holds after a cancel
// that found it in no log. Its log determines the outcome.
func TestStoryOfACancelBetweenDeliveries(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		h := listen(t, nc, "r1")
		submit(t, nc, "hold", `{"id":"r1"}`)
		for e := (object{}); e["kind"] != "claimed"; {
			e = next(t, h.events, "claim")
		}
		kv := must.Get(n.operator().KeyValue(t.Context(), streams.BucketAlias))(t)
		entry := must.Get(kv.Get(t.Context(), translate.RunAliasKey("default", "r1")))(t)
		var alias object
		must.Do(t, json.Unmarshal(entry.Value(), &alias))
		alias["cancelled"] = object{"reason": "not needed"}
		noted := must.Get(json.Marshal(alias))(t)
		must.Get(kv.Update(t.Context(), entry.Key(), noted, entry.Revision()))(t)
		submit(t, nc, "hold", `{"id":"r1"}`)
		if r := next(t, h.results, "result"); r["state"] != "cancelled" || r["error"] != "not needed" || r["chain"] == nil {
			t.Errorf("result %v, want that of the log", r)
		}
		time.Sleep(time.Minute)
		if r := ask(t, nc, "rath.query.default.result", `{"run":"r1"}`); r["chain"] == nil {
			t.Errorf("stored result %v", r)
		}
		if left := n.pending(t); left != 0 {
			t.Errorf("%d tasks are left", left)
		}
	})
}

// TestStoryOfATaskThatNobodyOffersAnyMore redelivers a task that a log holds while no node
// offers its workflow. It is not refused: its run resumes as soon as one does.
func TestStoryOfATaskThatNobodyOffersAnyMore(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		first := startNode(t, srv, "node-1")
		h := listen(t, nc, "r1")
		submit(t, nc, "hold", `{"id":"r1"}`)
		for e := (object{}); e["kind"] != "claimed"; {
			e = next(t, h.events, "claim")
		}
		first.kill()
		other := startNodeWith(t, srv, "node-2", &spec{pool: "others", only: []flow.Registration{}})
		must.Do(t, other.conn.Dispatch.Registry.Withdraw(t.Context(), dispatch.DefaultPool, "hold"))
		submit(t, nc, "hold", `{"id":"r1"}`)
		time.Sleep(time.Minute)
		if letters := other.letters(t); len(letters) != 0 {
			t.Errorf("dead letters %v", letters)
		}
		again := startNode(t, srv, "node-3")
		close(again.hold)
		if r := next(t, h.results, "result"); r["state"] != "succeeded" {
			t.Errorf("result %v", r)
		}
		if left := again.pending(t); left != 0 {
			t.Errorf("%d tasks are left", left)
		}
		other.stop()
		again.stop()
	})
}
