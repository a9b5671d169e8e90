package audit_test

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/evidence/audit"
)

func lines(all ...string) []io.Reader {
	return []io.Reader{strings.NewReader(strings.Join(all, "\n") + "\n")}
}

// seen are the records of honest witnesses of the story.
var (
	seenTools = []string{
		`{"call":"r1/2","attempt":1,"tool":"pay","time":"2026-11-20T09:00:00.031Z"}`,
		`{"run":"q1","step":"3","attempt":1,"effect":"non_idempotent"}`,
		`{"run":"q1","step":"3","attempt":3,"effect":"non_idempotent"}`,
	}
	seenModels  = []string{`{"run":"r1","step":"1","attempt":1,"try":1}`, `{"run":"r1","step":"1","attempt":1,"try":2}`, `{"run":"p2","step":"1.a.0","attempt":1}`}
	seenClients = []string{
		`{"op":"submit","tenant":"acme","run":"r1"}`,
		`{"op":"result","tenant":"acme","run":"r1","state":"succeeded","session":"s1","seq":9}`,
		`{"op":"commit","tenant":"acme","session":"s1","seq":2}`,
		`{"op":"control","tenant":"acme","run":"q1","verb":"approve","by":"ann"}`,
		`{"op":"control","tenant":"acme","session":"t1","verb":"message","by":"bob","text":"hurry"}`,
		`{"op":"control","tenant":"acme","run":"q1","verb":"resolve"}`,
		`{"op":"control","tenant":"acme","run":"k1","verb":"cancel"}`,
	}
)

func witnessed(t *testing.T, tools, models, clients []string, hook func(*envelope)) *audit.Report {
	t.Helper()
	return story(newWorld(t, hook)).audited(func(o *audit.Options) {
		o.Tools, o.Models, o.Clients = lines(tools...), lines(models...), lines(clients...)
	})
}

func TestWitnesses(t *testing.T) {
	if r := witnessed(t, seenTools, seenModels, seenClients, nil); !r.OK() {
		t.Errorf("honest witnesses:\n%s", violations(r))
	}
	// An operator confirms that the call of the first attempt took place.
	happened := both(set("t1", 7, "run.resolved", "decision", "happened"), instead("t1", 9, "run.warning", "", object{"run": "q1", "text": "x"}))
	if r := witnessed(t, seenTools[:2], nil, nil, happened); !r.OK() {
		t.Errorf("a resolved call:\n%s", violations(r))
	}
	// A call of a superseded attempt failed, and its tool may never have begun.
	failed := both(set("t1", 11, "step.late", "code", "unavailable"), set("t1", 11, "step.late", "failed", true))
	if r := witnessed(t, seenTools[2:], nil, nil, failed); !r.OK() {
		t.Errorf("a call that failed, which is told late:\n%s", violations(r))
	}
	// An operator quarantines the session of a run, releases it, and raises its budget.
	decided := both(with("t1", 20, "run.quarantined", "", object{"says": "eve", "reason": "odd"}),
		with("t1", 20, "run.quarantined", "", object{"says": "eve", "reason": "fine", "released": true}))
	told := append(slices.Clone(seenClients), `{"op":"control","tenant":"acme","run":"q1","verb":"quarantine","by":"eve","text":"odd"}`,
		`{"op":"control","tenant":"acme","run":"q1","verb":"release","by":"eve","text":"fine"}`)
	if r := witnessed(t, seenTools, nil, told, decided); !r.OK() {
		t.Errorf("decisions that were told:\n%s", violations(r))
	}
	with := func(base []string, more ...string) []string { return append(slices.Clone(base), more...) }
	for _, c := range []struct {
		name, invariant, text  string
		tools, models, clients []string
		hook                   func(*envelope)
	}{
		{name: "an effect twice in an attempt", invariant: audit.NoRepeat, text: "call r1/2 once in attempt 1, and once for each failed try, found 2 executions", tools: with(seenTools, `{"call":"r1/2","attempt":1}`)},
		{name: "a call that was recorded", invariant: audit.ReadClaim, text: "call r1/2 not to run again, attempt 1 recorded it", tools: with(seenTools, `{"call":"r1/2","attempt":2}`)},
		{name: "an attempt that nobody claimed", invariant: audit.NoRepeat, text: "within the 5 attempts", tools: with(seenTools, `{"run":"q1","step":"3","attempt":6}`)},
		{name: "an effect without an intent", invariant: audit.NoRepeat, text: "an intent of attempt 2 before call q1/3", tools: with(seenTools, `{"run":"q1","step":"3","attempt":2,"effect":"non_idempotent"}`)},
		{name: "an effect after its intent", invariant: audit.NoRepeat, text: "to begin before its intent expires, found it began", tools: []string{
			`{"call":"r1/2","attempt":1,"tool":"pay","time":"2026-11-20T10:00:00Z"}`, seenTools[1], seenTools[2],
		}},
		{name: "an outcome that nobody made", invariant: audit.NoRepeat, text: "an execution of call r1/2 by attempt 1", tools: []string{`{"call":"r1/9","attempt":1,"tool":"n"}`}},
		{name: "late evidence of nothing", invariant: audit.NoRepeat, text: "of which there is a late outcome", tools: seenTools[2:]},
		{name: "a request for a recorded step", invariant: audit.ReadClaim, text: "step r1/1 not to run again", models: with(seenModels, `{"run":"r1","step":"1","attempt":2}`)},
		{name: "one try twice", invariant: audit.NoRepeat, text: "step r1/1 once in attempt 1", models: with(seenModels, seenModels[0])},
		{name: "an accepted task is lost", invariant: audit.Acknowledged, text: "run r99, of which the submit was acknowledged", clients: with(seenClients, `{"op":"submit","tenant":"acme","run":"r99"}`)},
		{name: "an accepted task does not end", invariant: audit.OneEnd, text: "one end of run q2", clients: with(seenClients, `{"op":"submit","tenant":"acme","run":"q2"}`), hook: at("t1", 22, func(e *envelope) {
			e.facts = []fact{{kind: "run.warning", data: object{"run": "q2", "text": "x"}}}
		})},
		{name: "a commit is lost", invariant: audit.Acknowledged, text: "the commit, which a client was told of", clients: with(seenClients, `{"op":"commit","tenant":"acme","session":"s1","seq":99}`)},
		{name: "a commit is another one", invariant: audit.Acknowledged, text: "hash aaaaaaaa", clients: with(seenClients, `{"op":"commit","tenant":"acme","session":"s1","seq":2,"hash":"`+headA+`"}`)},
		{name: "a result is another one", invariant: audit.Acknowledged, text: "run r1 to have failed", clients: with(seenClients, `{"op":"result","tenant":"acme","run":"r1","state":"failed"}`)},
		{name: "an approval is lost", invariant: audit.Acknowledged, text: "approve eve of run q1", clients: with(seenClients, `{"op":"control","tenant":"acme","run":"q1","verb":"approve","by":"eve"}`)},
		{name: "a quarantine is lost", invariant: audit.Acknowledged, text: "quarantine eve of run q1", clients: with(seenClients, `{"op":"control","tenant":"acme","run":"q1","verb":"quarantine","by":"eve","text":"odd"}`)},
		{name: "a budget is lost", invariant: audit.Acknowledged, text: "rebudget eve of run q1", clients: with(seenClients, `{"op":"control","tenant":"acme","run":"q1","verb":"rebudget","by":"eve","text":"more"}`)},
		{name: "a cancel is lost", invariant: audit.Acknowledged, text: "cancel of run r1", clients: with(seenClients, `{"op":"control","tenant":"acme","run":"r1","verb":"cancel"}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := witnessed(t, c.tools, c.models, c.clients, c.hook)
			if !slices.ContainsFunc(r.Violations, func(v audit.Violation) bool {
				return v.Invariant == c.invariant && strings.Contains(v.String(), c.text)
			}) {
				t.Errorf("not found: %s with %q; found:\n%s", c.invariant, c.text, violations(r))
			}
		})
	}
}

func TestWitnessInput(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"call":"x","attempt":1}` + "\n" + `{"call":"x"`, ""}, // cut off by a kill
		{`{"call":"x"`, ""},
		{"not json\n{}\n", "line 1"},
		{"\n" + `{"attempt":1}` + "\n", "line 2: an execution needs"},
	} {
		_, err := audit.Run(t.Context(), newWorld(t, nil).messages(), &audit.Options{Schemas: schemas, Tools: []io.Reader{strings.NewReader(c.text)}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := audit.Run(t.Context(), newWorld(t, nil).messages(), &audit.Options{Schemas: schemas, Clients: lines(`{"op":"guess"}`)}); err == nil {
		t.Error("an unknown op was taken")
	}
}

// TestUntaken audits tasks without a log, because they were rejected or cancelled earlier.
func TestUntaken(t *testing.T) {
	w := story(newWorld(t, nil))
	w.other("RESULT", "rath.run.acme.x1.result", object{"code": "malformed", "ended_ms": 1, "run": "x1", "schema": 1, "state": "failed"})
	w.other("RESULT", "rath.run.acme.x2.result", object{"code": "cancelled", "ended_ms": 1, "run": "x2", "schema": 1, "state": "cancelled"})
	w.other("KV_ALIAS", "$KV.ALIAS.acme.run.x2", object{"cancelled": object{"reason": "stop", "run": "x2"}})
	w.other("DLQ", "rath.dlq.acme.fix.task.7-1000000005", object{"run": "x3"})
	w.other("DLQ", "rath.dlq.acme.fix.7", object{"run": "x4"})
	w.other("TASKS", "rath.task.acme.anonymous.fix", object{"id": "x5"})
	told := lines(`{"op":"submit","tenant":"acme","run":"x1"}`, `{"op":"submit","tenant":"acme","run":"x2"}`, `{"op":"submit","tenant":"acme","run":"x3"}`,
		`{"op":"submit","tenant":"acme","run":"x5"}`, `{"op":"result","tenant":"acme","run":"x2","state":"cancelled"}`,
		`{"op":"control","tenant":"acme","run":"x2","verb":"cancel"}`, `{"op":"result","tenant":"acme","run":"x1","state":"failed"}`)
	if r := w.audited(func(o *audit.Options) { o.Clients = told }); !r.OK() {
		t.Error(violations(r))
	}
}

// TestResultsAreKept checks that the audit reports only missing results that cannot have
// expired.
func TestResultsAreKept(t *testing.T) {
	without := func(gone int, marker uint64, late time.Duration) *audit.Report {
		w := story(newWorld(t, nil))
		for range w.messages() {
			break // the results are written
		}
		w.others = slices.DeleteFunc(w.others, func(m audit.Message) bool { return m.Stream == "RESULT" && m.Seq <= uint64(gone) })
		for i := range w.others {
			w.others[i].Time = time.UnixMilli(w.now).Add(late)
		}
		w.others = append(w.others, audit.Message{Stream: "RESULT", Seq: marker})
		return w.audited()
	}
	missed := func(r *audit.Report) int {
		return len(slices.DeleteFunc(r.Violations, func(v audit.Violation) bool {
			return v.Invariant != audit.Results || !strings.Contains(v.Found, "none in RESULT")
		}))
	}
	if n := missed(without(1, 12, 0)); n != 0 {
		t.Errorf("%d results are missed that were removed by age", n)
	}
	if n := missed(without(12, 12, 0)); n != 0 {
		t.Errorf("%d results are missed in a stream whose messages are all too old", n)
	}
	if n := missed(without(12, 0, 0)); n != 12 {
		t.Errorf("%d results are missed in a stream that never had one, want all 12", n)
	}
	if n := missed(without(1, 12, -time.Hour)); n != 1 {
		t.Errorf("%d results are missed of runs that ended since, want 1", n)
	}
}

// TestSecrets stores a credential in each place.
func TestSecrets(t *testing.T) {
	const secret = "sk-12345678"
	for name, put := range map[string]func(*world){
		"chunk":   func(*world) {},
		"skipped": func(*world) {},
		"task":    func(w *world) { w.other("TASKS", "rath.task.acme.anonymous.fix", object{"id": "x", "input": secret}) },
		"subject": func(w *world) {
			w.events = append(w.events, audit.Message{Stream: "EV_1_0", Seq: w.seqs["EV_1_0"] + 1, Subject: "rath.ev.x", Data: []byte(secret)})
		},
		"text": func(w *world) {
			w.others = append(w.others, audit.Message{Stream: "LINEAGE", Seq: w.seqs["LINEAGE"] + 1, Data: []byte(secret), Subject: "x"})
		},
		"record": func(w *world) { w.other("LINEAGE", "rath.lineage.acme.s1.did.s1", object{"summary": secret}) },
		"result": func(w *world) { w.other("RESULT", "rath.run.acme.zz.result", object{"output": secret}) },
		"dlq":    func(w *world) { w.other("DLQ", "rath.dlq.acme.fix", object{"text": secret}) },
		"alias":  func(w *world) { w.other("KV_ALIAS", "$KV.ALIAS.acme.session.name", object{"session": secret}) },
		"header": func(w *world) { w.events[0].Header["X"] = []string{secret} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(e *envelope) {
				if (name == "chunk" || name == "skipped") && e.session == "s1" && e.seq == 2 {
					e.facts[0].data["text"] = "my key is " + secret
				}
				if name == "skipped" && e.session == "s1" && e.seq == 2 {
					e.prev = headA
				}
			})
			story(w)
			put(w)
			r := w.audited(func(o *audit.Options) { o.Secrets = []string{"sk-nowhere", secret} })
			if !slices.ContainsFunc(r.Violations, func(v audit.Violation) bool { return v.Invariant == audit.Secrets }) {
				t.Errorf("not found:\n%s", violations(r))
			}
			if strings.Contains(violations(r), secret) {
				t.Error("the report tells the secret")
			}
		})
	}
}

// TestOpen omits messages that a running system may not have stored yet.
func TestOpen(t *testing.T) {
	w := story(newWorld(t, nil))
	for n := range w.events {
		if n%7 != 0 {
			continue
		}
		part := &world{t: t, seqs: w.seqs, events: w.events[:n], others: w.others}
		if r := part.audited(func(o *audit.Options) { o.Open = true }); !r.OK() {
			t.Errorf("the first %d messages:\n%s", n, violations(r))
		}
	}
}

// TestLimit checks that the report stays within its limit and counts all violations.
func TestLimit(t *testing.T) {
	r := story(newWorld(t, func(e *envelope) { e.header = nil })).audited(func(o *audit.Options) { o.Limit = 3 })
	for _, c := range r.Counts {
		if c.Invariant == audit.OneWriter && (len(r.Violations) != 3 || c.Violations < 30) {
			t.Errorf("%d violations in the report, %d counted", len(r.Violations), c.Violations)
		}
	}
}
