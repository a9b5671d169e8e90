package audit_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/audit"
)

func TestHealthy(t *testing.T) {
	r := story(newWorld(t, nil)).audited()
	if !r.OK() {
		t.Errorf("violations in a healthy system:\n%s", violations(r))
	}
	for _, c := range r.Counts {
		if c.Checked == 0 && c.Invariant != audit.Acknowledged && c.Invariant != audit.Secrets {
			t.Errorf("%s was never looked at", c.Invariant)
		}
	}
	if r.Sessions != 13 || r.Runs != 12 || r.Open != 0 || r.Foreign != 0 {
		t.Errorf("%d sessions, %d runs, %d open, %d foreign", r.Sessions, r.Runs, r.Open, r.Foreign)
	}
}

// at returns a hook that changes one commit.
func at(session string, seq uint64, change func(*envelope)) func(*envelope) {
	return func(e *envelope) {
		if e.session == session && e.seq == seq {
			change(e)
		}
	}
}

// set returns a hook that changes a field of a fact of a kind in a commit.
func set(session string, seq uint64, kind, field string, value any) func(*envelope) {
	return at(session, seq, func(e *envelope) { e.fact(kind).data[field] = value })
}

func (e *envelope) fact(kind string) *fact {
	i := slices.IndexFunc(e.facts, func(f fact) bool { return f.kind == kind })
	if i < 0 {
		panic("no " + kind + " in commit of " + e.session)
	}
	return &e.facts[i]
}

// later moves a fact to the end of another commit.
func later(session string, from, to uint64, kind string) func(*envelope) {
	var moved fact
	return func(e *envelope) {
		switch {
		case e.session == session && e.seq == from:
			moved = *e.fact(kind)
			e.facts = []fact{{kind: "run.warning", data: object{"run": "w1", "text": "x"}, time: moved.time}}
		case e.session == session && e.seq == to:
			e.facts = append(e.facts, moved)
		}
	}
}

// without drops facts of a kind from a commit.
func without(session string, seq uint64, kind string) func(*envelope) {
	return at(session, seq, func(e *envelope) {
		e.facts = slices.DeleteFunc(e.facts, func(f fact) bool { return f.kind == kind })
	})
}

// with adds a fact to a commit.
func with(session string, seq uint64, kind, batch string, data object) func(*envelope) {
	return at(session, seq, func(e *envelope) { e.facts = append(e.facts, fact{kind: kind, batch: batch, data: data}) })
}

// instead replaces all facts of a commit.
func instead(session string, seq uint64, kind, batch string, data object) func(*envelope) {
	return at(session, seq, func(e *envelope) {
		e.facts = []fact{{kind: kind, batch: batch, data: data, time: e.facts[0].time}}
	})
}

func both(hooks ...func(*envelope)) func(*envelope) {
	return func(e *envelope) {
		for _, h := range hooks {
			h(e)
		}
	}
}

// asksFor returns a hook that sets the schema of the only question in a commit.
func asksFor(session string, seq uint64, schema string) func(*envelope) {
	return at(session, seq, func(e *envelope) {
		e.fact("run.waiting").data["for"] = []any{object{"kind": "approval", "path": "4", "schema": schema}}
	})
}

func replace(old, by string) func([]byte) []byte {
	return func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(by), 1) }
}

func chunkOf(text string) object { return object{"kind": "user", "text": text} }

func doneOf(run, path, kind string, attempt int) object {
	return object{"attempt": attempt, "input": "i", "kind": kind, "name": "n", "path": path, "run": run}
}

func tryOf(run, path string) object {
	d := doneOf(run, path, "do", 1)
	d["code"], d["retry"] = "error", 1000
	return d
}

// calls adds n steps to a commit that use 100 tokens each.
func calls(session string, seq uint64, run, below string, n int) func(*envelope) {
	return at(session, seq, func(e *envelope) {
		for i := range n {
			path := fmt.Sprintf("%s.%d", below, 10+i)
			d := doneOf(run, path, "model", map[string]int{"f1": 2, "p4": 1}[run])
			d["usage"] = object{"calls": 1, "input": 100}
			e.facts = append(e.facts, fact{kind: "step.done", batch: run + "/" + path, data: d})
		}
	})
}

// TestViolations breaks a healthy system in one place per case.
func TestViolations(t *testing.T) {
	link := func(e *envelope, kind string) object {
		switch kind {
		case "session.opened":
			return e.fact(kind).data["parents"].([]any)[0].(object)
		case "session.joined":
			return e.fact(kind).data["parents"].([]any)[0].(object)["link"].(object)
		case "session.rejected":
			return e.fact(kind).data["branch"].(object)
		case "run.received":
			return e.fact(kind).data["branch"].(object)["link"].(object)
		}
		return e.fact(kind).data["result"].(object)
	}
	relink := func(session string, seq uint64, kind, field string, value any) func(*envelope) {
		return at(session, seq, func(e *envelope) { link(e, kind)[field] = value })
	}
	for _, c := range []struct {
		name      string
		invariant string
		text      string
		hook      func(*envelope)
	}{
		// Chain.
		{"a byte is not as it is hashed", audit.Chain, "want prev", at("s1", 3, func(e *envelope) { e.prev = strings.Repeat("ab", 32) })},
		{"a number is left out", audit.Chain, "want commit 3, found commit 4", at("s1", 3, func(e *envelope) { e.seq = 4 })},
		{"white space", audit.Chain, "canonical form", at("s1", 3, func(e *envelope) { e.raw = replace(`,"events"`, ` ,"events"`) })},
		{"keys out of order", audit.Chain, "canonical form", at("s1", 3, func(e *envelope) { e.raw = replace(`"attempt":1,"call":"r1/2"`, `"call":"r1/2","attempt":1`) })},
		{"a float", audit.Chain, "canonical form", at("s1", 3, func(e *envelope) { e.raw = replace(`"attempt":1`, `"attempt":1.0`) })},
		{"two streams", audit.Chain, "one stream", at("s1", 3, func(e *envelope) { e.stream, e.subject = "EV_1_1", "rath.ev.1.1.acme.s1" })},
		{"a subject of no stream", audit.Chain, "want a subject", at("s1", 3, func(e *envelope) { e.subject = "rath.ev.1.1.acme.s1" })},
		{"another session's commit", audit.Chain, "one of acme/s9", at("s1", 3, func(e *envelope) { e.session = "s9" })},
		{"the beginning is missing", audit.Chain, "begins with commit 1", at("t1", 1, func(e *envelope) { e.drop = true })},
		// Format.
		{"a field of another type", audit.Format, `attempt: type: one has type "string"`, set("s1", 3, "step.intent", "attempt", "one")},
		{"a field is missing", audit.Format, "required", at("s1", 3, func(e *envelope) { delete(e.fact("step.intent").data, "call") })},
		{"an unknown kind", audit.Format, "unknown kind", at("s1", 3, func(e *envelope) { e.facts[0].kind = "step.guess" })},
		{"a later schema", audit.Format, "schema 2", at("s1", 3, func(e *envelope) { e.raw = replace(`"schema":1`, `"schema":2`) })},
		{"a row that is not there", audit.Format, "the row", without("s1", 2, "session.chunk")},
		{"a batch of another step", audit.Format, "batch r1/2", at("s1", 4, func(e *envelope) { e.facts[1].batch = "r1/9" })},
		// One writer.
		{"no compare-and-set", audit.OneWriter, "no such header", at("s1", 3, func(e *envelope) { e.header = nil })},
		{"compare-and-set of another state", audit.OneWriter, "Nats-Expected-Last-Subject-Sequence 2, found 7", at("s1", 3, func(e *envelope) { e.header["Nats-Expected-Last-Subject-Sequence"] = []string{"7"} })},
		{"a message id", audit.OneWriter, "no message id", at("s1", 3, func(e *envelope) { e.header["Nats-Msg-Id"] = []string{"x"} })},
		{"stored twice", audit.OneWriter, "commit 3 again", at("s1", 3, func(e *envelope) { e.twice = true })},
		{"two writers", audit.OneWriter, "two writers", at("s1", 4, func(e *envelope) { e.seq = 3 })},
		{"an epoch without its writer", audit.OneWriter, "epoch 1, of the last writer.opened", at("s1", 3, func(e *envelope) { e.epoch = 2 })},
		{"an epoch that does not grow", audit.OneWriter, "an epoch above 1", both(set("t1", 5, "writer.opened", "epoch", 1), at("t1", 5, func(e *envelope) { e.epoch = 1 }))},
		{"a claim of somebody else", audit.OneWriter, "a claim by the writer", set("t1", 5, "run.claimed", "incarnation", "n9")},
		{"an attempt is left out", audit.OneWriter, "want attempt 2", set("t1", 5, "run.claimed", "attempt", 3)},
		{"a lower attempt goes on", audit.OneWriter, "attempt 3, which claimed the session", set("t1", 10, "step.done", "attempt", 2)},
		{"an attempt of an older epoch", audit.OneWriter, "a claim in epoch 3 before", both(without("t1", 15, "run.claimed"), at("t1", 15, func(e *envelope) {
			e.facts = append(e.facts, fact{kind: "run.warning", data: object{"run": "q1", "text": "x"}, time: e.facts[0].time})
		}))},
		{"it goes on after it was given back", audit.OneWriter, "a claim after the run was given back", instead("t1", 19, "step.done", "q1/9", doneOf("q1", "9", "do", 4))},
		{"two runs hold a session", audit.OneWriter, "run q1 to let the session go", instead("t1", 20, "run.claimed", "", object{
			"attempt": 1, "epoch": 4, "home": object{"session": "t1", "tenant": "acme"}, "incarnation": "n4", "run": "q9",
		})},
		{"content without a claim", audit.OneWriter, "a claim of the session by the run of batch x9/1", at("s1", 2, func(e *envelope) { e.facts[0].batch = "x9/1" })},
		{"nobody opened the log", audit.OneWriter, "writer.opened before all else", at("c1", 1, func(e *envelope) { e.facts, e.epoch = e.facts[1:3], 0 })},
		{"a wait of an older epoch", audit.OneWriter, "a claim in epoch 3 before run.waiting", at("t1", 12, func(e *envelope) {
			e.facts = append([]fact{{kind: "writer.opened", data: object{"epoch": 3, "incarnation": "n9"}, time: e.facts[0].time}}, e.facts...)
			e.epoch = 3
		})},
		{"a timely outcome called late", audit.OneWriter, "step.late of an attempt", set("t1", 11, "step.late", "attempt", 3)},
		// One end.
		{"two ends", audit.OneEnd, "run.ended (succeeded) again", with("s1", 9, "run.ended", "", object{"attempt": 1, "run": "r1", "state": "succeeded", "workflow": "fix"})},
		{"a step after the end", audit.OneEnd, "found step.done 9", with("s1", 9, "step.done", "r1/9", doneOf("r1", "9", "do", 1))},
		{"a claim after the end", audit.OneEnd, "run.claimed, attempt 2", with("s1", 9, "run.claimed", "", object{
			"attempt": 2, "epoch": 1, "home": object{"session": "s1", "tenant": "acme"}, "incarnation": "n1", "run": "r1",
		})},
		{"a message after the end", audit.OneEnd, "run.received (message)", with("s1", 9, "run.received", "", object{"kind": "message", "n": 1, "run": "r1", "text": "x"})},
		{"a message beside the run that holds the session", audit.Waits, "in the inbox of the run that holds the session, r1", with("s1", 3, "run.received", "", object{"id": "i1", "kind": "message", "n": 0, "run": ""})},
		{"an id without its message", audit.Waits, "the chunk of the message after its id", with("s1", 9, "run.received", "", object{"id": "i1", "kind": "message", "n": 0, "run": ""})},
		{"a message to an idle session twice", audit.Waits, "signal i1 taken once", at("s1", 9, func(e *envelope) {
			for range 2 {
				e.facts = append(e.facts, fact{kind: "run.received", data: object{"id": "i1", "kind": "message", "n": 0, "run": ""}, time: e.facts[0].time},
					fact{kind: "session.chunk", data: chunkOf("x"), time: e.facts[0].time})
			}
		})},
		{"an end at a version that the session has not", audit.Results, "that of the session, found run.ended with version 77", set("s1", 9, "run.ended", "version", 77)},
		{"an end with other files", audit.Results, "those of the session, found run.ended with files bbbbbbbb", set("t1", 20, "run.ended", "head", strings.Repeat("b", 64))},
		{"an end that forgets the files", audit.Results, "files aaaaaaaa…, those of the session, found run.ended with files none", set("t1", 20, "run.ended", "version", 3)},
		{"two homes", audit.OneEnd, "run.submitted once", with("c1", 2, "run.submitted", "", object{"digest": "d", "task": object{"run": "r1", "workflow": "fix"}})},
		{"success after a cancel", audit.OneEnd, "state cancelled", set("c1", 4, "run.ended", "state", "succeeded")},
		{"an intent after a cancel", audit.OneEnd, "no intent after", with("c1", 3, "step.intent", "k1/2", object{
			"attempt": 1, "call": "k1/2", "expires": 9_795_165_200_000, "input": "i", "name": "pay", "path": "2", "run": "k1",
		})},
		{"a wait after a cancel", audit.OneEnd, "run.ended after run.cancel_requested, found run.waiting", with("c1", 3, "run.waiting", "", object{
			"attempt": 1, "for": []any{object{"kind": "message", "path": "2"}}, "run": "k1",
		})},
		{"a review after a cancel", audit.OneEnd, "run.ended after run.cancel_requested, found run.review", with("c1", 3, "run.review", "", object{
			"attempt": 1, "code": "poison", "expires": int64(9_795_165_200_000), "reason": "x", "run": "k1",
		})},
		{"content after a cancel", audit.OneEnd, "no content of a run after run.cancel_requested", with("c1", 3, "session.chunk", "k1/2", chunkOf("x"))},
		{"an end elsewhere", audit.OneEnd, "run.ended in its home", set("c2", 2, "run.ended", "state", "succeeded")},
		{"a home that knows nothing", audit.OneEnd, "home t1 of the run", set("c2", 1, "run.claimed", "home", object{"session": "t1", "tenant": "acme"})},
		{"a claim of a run that nobody submitted", audit.OneEnd, "run.submitted before run.claimed", without("t1", 21, "run.submitted")},
		{"content after the run of a branch", audit.OneEnd, "nothing but its closing", with("p2", 3, "session.chunk", "", chunkOf("x"))},
		{"a task for a branch that ended", audit.OneEnd, "nothing but its closing", with("p2", 3, "run.submitted", "", object{"digest": "d", "task": object{"run": "z1", "workflow": "fix"}})},
		// No silent repeat.
		{"an effect without an intent", audit.NoRepeat, `run.resolved "happened" for step 2`, instead("s1", 3, "run.warning", "", object{"run": "r1", "text": "x"})},
		{"an intent of another attempt", audit.NoRepeat, `run.resolved "happened" for step 3`, instead("t1", 9, "run.warning", "", object{"run": "q1", "text": "x"})},
		{"a second intent that nobody allowed", audit.NoRepeat, `run.resolved "again" for step 3`, set("t1", 7, "run.resolved", "decision", "happened")},
		{"an intent within the life of another", audit.NoRepeat, "to have expired", with("s1", 3, "step.intent", "r1/2", object{
			"attempt": 1, "call": "r1/2", "expires": 9_795_165_200_000, "input": "i", "name": "pay", "path": "2", "run": "r1",
		})},
		{"an intent that was too old", audit.NoRepeat, "that had not expired", set("s1", 3, "step.intent", "expires", 1)},
		{"success beside a call of which nobody knows", audit.NoRepeat, "it succeeded with 1 intents open", instead("s1", 4, "run.warning", "", object{"run": "r1", "text": "x"})},
		{"a try without a try before", audit.NoRepeat, "try 1 of step 8 before the next one", with("s1", 5, "step.done", "r1/8.try.2", tryOf("r1", "8.try.2"))},
		{"a try after the outcome", audit.ReadClaim, "step 2 not to be tried again", with("s1", 5, "step.done", "r1/2.try.1", tryOf("r1", "2.try.1"))},
		{"a try elsewhere", audit.Format, "an error at the path of a failed try", with("s1", 5, "step.done", "r1/8", tryOf("r1", "8"))},
		{"a step twice", audit.NoRepeat, "step 2 recorded once", with("s1", 5, "step.done", "r1/2", doneOf("r1", "2", "tool", 1))},
		{"a step in two logs", audit.NoRepeat, "recorded in one log", set("s2", 2, "step.done", "path", "1")},
		{"an intent for a recorded step", audit.ReadClaim, "step 3 not to run again, attempt 3", with("t1", 11, "step.intent", "q1/3", object{
			"attempt": 3, "call": "q1/3", "expires": 9_795_165_200_000, "input": "i", "name": "pay", "path": "3", "run": "q1",
		})},
		// Waits.
		{"claimed while it waits", audit.Waits, "before a waiting run is claimed", instead("t1", 14, "run.claimed", "", object{
			"attempt": 4, "epoch": 2, "home": object{"session": "t1", "tenant": "acme"}, "incarnation": "n2", "run": "q1",
		})},
		{"claimed where it waits before the answer", audit.Waits, "before a waiting run is claimed", at("t1", 25, func(e *envelope) { e.facts[0], e.facts[1] = e.facts[1], e.facts[0] })},
		{"claimed where it waits by an answer that is not all", audit.Waits, "before a waiting run is claimed", at("t1", 25, func(e *envelope) {
			e.fact("run.received").data["kind"] = "message"
			delete(e.fact("run.received").data, "wake")
		})},
		{"claimed where it waits and once more", audit.OneWriter, "a claim within its epoch", with("t1", 25, "run.claimed", "", object{
			"attempt": 3, "epoch": 4, "home": object{"session": "t1", "tenant": "acme"}, "incarnation": "n4", "run": "q3",
		})},
		{"claimed where it waits by another writer", audit.OneWriter, "a claim by the writer", set("t1", 25, "run.claimed", "incarnation", "n5")},
		{"gone on as the attempt that waited", audit.OneWriter, "nothing but of attempt 2", set("t1", 26, "step.done", "attempt", 1)},
		{"a wake left out where it waits", audit.Waits, "want wake 1, found wake 2", set("t1", 25, "run.received", "wake", 2)},
		{"woken twice where it waits", audit.Waits, "a wake of a run that waits only", at("t1", 25, func(e *envelope) { e.facts[2].data["wake"] = 2 })},
		{"claimed in review", audit.Waits, "before a run in review is claimed", instead("t1", 7, "run.warning", "", object{"run": "q1", "text": "x"})},
		{"a wake number twice", audit.Waits, "want wake 1, found wake 2", set("t1", 14, "run.received", "wake", 2)},
		{"a wake too early", audit.Waits, "once all has come", set("t1", 13, "run.received", "wake", 1)},
		{"the first of several does not wake it", audit.Waits, "it would wait for ever", at("t1", 12, func(e *envelope) {
			d := e.fact("run.waiting").data
			d["any"], d["for"] = true, []any{object{"kind": "approval", "path": "4"}, object{"kind": "message", "path": "5"}}
		})},
		{"nothing wakes it", audit.Waits, "it would wait for ever", at("t1", 14, func(e *envelope) { delete(e.fact("run.received").data, "wake") })},
		{"a wake of a run that runs", audit.Waits, "a wake of a run that waits only", instead("t1", 11, "run.received", "", object{"kind": "message", "n": 1, "run": "q1", "wake": 1})},
		{"a place in the inbox twice", audit.Waits, "want place 2 in the inbox", set("t1", 14, "run.received", "n", 1)},
		{"a signal twice", audit.Waits, "signal m1 taken once", set("t1", 14, "run.received", "id", "m1")},
		{"a question answered twice", audit.Waits, "found reject eve", with("t1", 14, "run.received", "", object{"by": "eve", "kind": "reject", "n": 3, "path": "4", "run": "q1"})},
		{"an answer to no question", audit.Waits, "a question at step 9", set("t1", 14, "run.received", "path", "9")},
		{"a timer that nobody set", audit.Waits, "takes this answer, found timer", set("t1", 14, "run.received", "kind", "timer")},
		{"a timer before its time", audit.Waits, "takes this answer, found timer", both(set("t1", 14, "run.received", "kind", "timer"), at("t1", 12, func(e *envelope) {
			e.fact("run.waiting").data["for"] = []any{object{"due": int64(9_795_165_200_000), "kind": "approval", "path": "4"}}
		}))},
		{"an answer of another type", audit.Waits, "an answer to the question at step 4 that is of type string, found 2026", both(set("t1", 14, "run.received", "value", "2026"), asksFor("t1", 12, `{"type":"string"}`))},
		{"an answer without a field", audit.Waits, `that is an object with "n", found {}`, both(set("t1", 14, "run.received", "value", "{}"), asksFor("t1", 12, `{"type":["null","object"],"required":["n"]}`))},
		{"an answer that is missing", audit.Waits, "that is JSON", asksFor("t1", 12, `{"type":"object"}`)},
		{"an answer of another kind", audit.Waits, "takes this answer, found respond", set("t1", 14, "run.received", "kind", "respond")},
		{"a step while it waits", audit.Waits, "no step while the run waits", instead("t1", 13, "step.done", "q1/9", doneOf("q1", "9", "do", 3))},
		{"an inbox that is not there", audit.Waits, "an inbox of at most 2", set("t1", 17, "step.done", "inbox", 7)},
		{"success in review", audit.Waits, "a run that succeeds to run", instead("t1", 7, "run.ended", "", object{"attempt": 2, "run": "q1", "state": "succeeded", "workflow": "fix"})},
		{"a review without an end", audit.Waits, "expires some day", set("t1", 6, "run.review", "expires", 0)},
		{"resolved, but in no review", audit.Waits, "run.resolved of a run in review", instead("t1", 6, "run.warning", "", object{"run": "q1", "text": "x"})},
		{"a wait for what has come", audit.Waits, "has come already", instead("t1", 17, "run.waiting", "", object{"attempt": 4, "for": []any{object{"kind": "message", "path": "5"}}, "run": "q1"})},
		{"a review for poison of a run that lost nothing", audit.Waits, "three attempts in a row to be lost while the run was alone, found a review for poison after 0 of 2", set("t1", 6, "run.review", "code", "poison")},
		{"a suspect that lost nothing", audit.Waits, "a group of at most 0 after 0 attempts that were lost", set("t1", 8, "run.claimed", "group", 1)},
		{"a review of a run that waits", audit.Waits, "no review of a run that waits", with("t1", 12, "run.review", "", object{
			"attempt": 3, "code": "poison", "expires": int64(9_795_165_200_000), "reason": "x", "run": "q1",
		})},
		{"claimed in quarantine", audit.Waits, "the quarantine of the session", with("t1", 18, "run.quarantined", "", object{"reason": "odd"})},
		{"quarantined twice", audit.Waits, "set, or lifted, once", both(with("t1", 20, "run.quarantined", "", object{"reason": "odd"}), with("t1", 20, "run.quarantined", "", object{"reason": "odd"}))},
		// Graph.
		{"a parent that is not there", audit.Graph, "no such session", relink("s2", 1, "session.opened", "session", "s99")},
		{"a commit that is not there", audit.Graph, "commit 70 of s1", relink("s2", 1, "session.opened", "seq", 70)},
		{"another hash", audit.Graph, "as its parent, hash", relink("s2", 1, "session.opened", "hash", headA)},
		{"another version", audit.Graph, "want version 3 of commit 5 of s1", relink("s2", 1, "session.opened", "version", 9)},
		{"another hash in a join", audit.Graph, "what it joins", relink("s1", 8, "session.joined", "hash", headA)},
		{"another hash in a result", audit.Graph, "ended with", relink("s1", 9, "run.ended", "hash", headA)},
		{"its own future", audit.Graph, "a cycle", both(relink("s1", 8, "session.joined", "session", "s1"), relink("s1", 8, "session.joined", "seq", 9))},
		{"another root", audit.Graph, "root s1 of its parent", at("s2", 1, func(e *envelope) { e.root = "s2" })},
		{"the root changes", audit.Graph, "root s1 as in commit 1", at("s1", 4, func(e *envelope) { e.root = "s2" })},
		{"not opened", audit.Graph, "session.opened in commit 1", without("t1", 1, "session.opened")},
		{"opened twice", audit.Graph, "session.opened once", with("t1", 2, "session.opened", "", object{"kind": "leaf"})},
		{"content after the end of a branch", audit.Graph, "no content after session.closed", with("s2", 3, "session.chunk", "", chunkOf("x"))},
		{"a task for a closed session", audit.Graph, "no task for a session that was closed", with("s2", 3, "run.submitted", "", object{"digest": "d", "task": object{"run": "z1", "workflow": "fix"}})},
		{"an open branch", audit.Graph, "an open branch", instead("s2", 3, "run.released", "", object{"attempt": 1, "reason": "x", "run": "r1"})},
		{"an end without a reason", audit.Graph, "a reason why", set("s2", 3, "session.closed", "reason", "")},
		{"a rejection without a reason", audit.Graph, "a reason why branch s2", set("s1", 6, "session.rejected", "reason", "")},
		{"closed by nobody", audit.Graph, "session t1 to record", set("s2", 3, "session.closed", "by", object{"session": "t1", "tenant": "acme"})},
		{"nobody made it", audit.Graph, "step 3 of the run that opened it", at("s1", 5, func(e *envelope) { delete(e.fact("step.done").data, "links") })},
		// Branch results.
		{"a report of another state", audit.BranchResults, "the report of branch p3 to say failed", at("p1", 3, func(e *envelope) {
			e.fact("run.received").data["branch"].(object)["state"] = "succeeded"
		})},
		{"a report of other steps", audit.BranchResults, "the report of branch p3 to say 0 steps", at("p1", 3, func(e *envelope) {
			e.fact("run.received").data["branch"].(object)["steps"] = 7
		})},
		{"an outcome of another state", audit.BranchResults, "the outcome of branch p3 to say failed", at("p1", 5, func(e *envelope) {
			d := e.fact("step.done").data
			d["value"] = strings.Replace(d["value"].(string), `"state":"failed"`, `"state":"succeeded"`, 1)
		})},
		{"a report of an older commit", audit.BranchResults, "to name commit 3", relink("p1", 4, "run.received", "seq", 2)},
		{"a report twice", audit.BranchResults, "one report of branch p2", at("p1", 4, func(e *envelope) {
			again := *e.fact("run.received")
			again.data = object{"branch": again.data["branch"], "id": "other", "kind": "branch", "n": 3, "path": "1.gather", "run": "f1"}
			e.facts = append(e.facts, again)
		})},
		{"a report for another step", audit.BranchResults, "for the step that gathers it, found one of p3 for step 7.gather", set("p1", 3, "run.received", "path", "7.gather")},
		{"a report of somebody else's branch", audit.BranchResults, "found one of p3", at("p1", 3, func(e *envelope) {
			r := e.fact("run.received")
			r.data = object{"branch": r.data["branch"], "id": "p3", "kind": "branch", "n": 1, "path": "1.gather", "run": "w1"}
		})},
		{"an outcome is left out", audit.BranchResults, "the outcomes of all 3 branches of step 1, found 2", at("p1", 5, func(e *envelope) {
			d := e.fact("step.done").data
			v := d["value"].(string)
			d["value"] = v[:strings.LastIndex(v, ",{")] + "]"
		})},
		{"an outcome twice", audit.BranchResults, "the outcome of a branch of step 1, once, found that of p4", at("p1", 5, func(e *envelope) {
			d := e.fact("step.done").data
			v := d["value"].(string)
			d["value"] = strings.TrimSuffix(v, "]") + v[strings.LastIndex(v, ",{"):]
		})},
		{"branches that no step opened", audit.BranchResults, "run.fanout in the batch of step.done 1", at("p1", 2, func(e *envelope) { e.fact("run.fanout").batch = "" })},
		{"a branch that is no fork", audit.BranchResults, "a fork of commit 1 of p1, found a leaf", at("p2", 1, func(e *envelope) {
			e.fact("session.opened").data = object{"kind": "leaf", "name": "a", "run": "f1", "step": "1.a"}
		})},
		{"a branch that another step opened", audit.BranchResults, "step 1.a of run f1 opened, found step 9.z", set("p2", 1, "session.opened", "step", "9.z")},
		{"a branch that runs something else", audit.BranchResults, "workflow fix as its fan-out says, found evil", at("p2", 1, func(e *envelope) {
			e.fact("run.submitted").data["task"].(object)["workflow"] = "evil"
		})},
		{"a branch of other runs", audit.BranchResults, "the ancestors [{ f1 p1}]", at("p2", 1, func(e *envelope) {
			b := e.fact("run.submitted").data["task"].(object)["branch"].(object)
			b["ancestors"] = append([]any{object{"run": "r1", "session": "s1"}}, b["ancestors"].([]any)...)
		})},
		{"the end is told elsewhere", audit.BranchResults, "the parent run to be told of the end, {1.gather f1 p1}", at("p2", 3, func(e *envelope) {
			e.fact("run.ended").data["parent"].(object)["session"] = "s1"
		})},
		{"a branch given up in silence", audit.BranchResults, "to be given up", without("p1", 5, "run.disposed")},
		{"another base", audit.BranchResults, "base commit 1 of p1", at("p2", 1, func(e *envelope) {
			e.fact("run.submitted").data["task"].(object)["branch"].(object)["base"].(object)["version"] = 0
		})},
		{"another parent is told", audit.BranchResults, "the parent run", at("p2", 3, func(e *envelope) {
			e.fact("run.ended").data["parent"].(object)["run"] = "f9"
		})},
		{"another version at the end", audit.BranchResults, "version 2, that of the session", set("p2", 3, "run.ended", "version", 7)},
		{"a branch that nobody disposed of", audit.BranchResults, "neither, and the run has succeeded", at("p1", 6, func(e *envelope) {
			e.fact("run.disposed").data["branches"] = []any{object{"session": "p2", "state": "merged"}}
		})},
		{"closed in another state", audit.BranchResults, "session.closed as merged", set("p2", 4, "session.closed", "state", "adopted")},
		{"disposed of twice", audit.BranchResults, "disposed of once", with("p1", 6, "run.disposed", "f1/2", object{
			"branches": []any{object{"reason": "x", "session": "p4", "state": "rejected"}}, "run": "f1",
		})},
		{"a branch around itself", audit.BranchResults, "at most 32 fan-outs around the branch", at("p1", 2, func(e *envelope) {
			d := e.fact("run.fanout").data
			d["branches"] = append(d["branches"].([]any), object{"name": "d", "session": "f1"})
		})},
		{"it lies within others than its fan-out says", audit.BranchResults, `want a branch within ["fix"] as its fan-out says`, set("p1", 2, "run.fanout", "within", []any{"fix"})},
		{"nobody opened it", audit.BranchResults, "a run.fanout that opened", without("p1", 2, "run.fanout")},
		{"a branch that did not wait", audit.BranchResults, "no branch but the first before run.spread of step 1, found a log of branch b", instead("u1", 3, "run.warning", "", object{"run": "w1", "text": "x"})},
		{"let begin twice", audit.BranchResults, "to be let begin once", at("u1", 3, func(e *envelope) { e.facts = append(e.facts, e.facts[0]) })},
		{"let begin with other data", audit.BranchResults, "to repeat a warm run.fanout at step 1", set("u1", 3, "run.spread", "budget", object{"steps": 11, "tokens": 900})},
		{"let begin what did not wait", audit.BranchResults, "to repeat a warm run.fanout at step 1", at("u1", 2, func(e *envelope) { delete(e.fact("run.fanout").data, "warm") })},
		{"let begin after the join was decided", audit.Waits, "while the run is queued", later("u1", 3, 5, "run.spread")},
		{"let begin without a cause", audit.BranchResults, "or its report before, found neither", without("u2", 2, "run.warmed")},
		{"let begin by another branch", audit.BranchResults, "run.warmed of the first branch", with("u3", 2, "run.warmed", "u3/1.b.0", object{
			"parent": object{"path": "1.gather", "run": "w1", "session": "u1"}, "run": "u3",
		})},
		{"let begin before the answer", audit.BranchResults, "run.warmed in the batch of a model's answer", at("u2", 2, func(e *envelope) { e.fact("run.warmed").batch = "" })},
		{"another is told of the answer", audit.BranchResults, "for the run that opened it", at("u2", 2, func(e *envelope) {
			e.fact("run.warmed").data["parent"].(object)["run"] = "f1"
		})},
		{"the first does not know that others wait", audit.BranchResults, "warm true as its fan-out says", at("u2", 1, func(e *envelope) {
			delete(e.fact("run.submitted").data["task"].(object)["branch"].(object), "warm")
		})},
		{"nobody waits for the first", audit.BranchResults, "branches that wait for the first one", at("u1", 2, func(e *envelope) {
			d := e.fact("run.fanout").data
			d["branches"] = d["branches"].([]any)[:1]
		})},
		// Budgets.
		{"branches get too much", audit.Budgets, "3 branches to get at most 3000 tokens", set("p1", 2, "run.fanout", "budget", object{"steps": 10, "tokens": 1001})},
		{"branches get so much that it overflows", audit.Budgets, "3 branches to get at most 3000 tokens", set("p1", 2, "run.fanout", "budget", object{"steps": 10, "tokens": int64(6_148_914_691_236_517_206)})},
		{"branches get no limit", audit.Budgets, "no limit", set("p1", 2, "run.fanout", "budget", object{"steps": 10})},
		{"a budget that was lowered", audit.Budgets, "3 branches to get at most 900 tokens", with("p1", 1, "run.rebudgeted", "", object{"budget": object{"steps": 90, "tokens": 900}, "run": "f1"})},
		{"a branch takes more", audit.Budgets, "that its fan-out gave", at("p2", 1, func(e *envelope) {
			e.fact("run.submitted").data["task"].(object)["budget"] = object{"tokens": 5000}
		})},
		{"two calls beyond the limit", audit.Budgets, "at most one call beyond 1000 tokens", both(
			set("s1", 2, "step.done", "usage", object{"calls": 1, "input": 2000}), set("s2", 2, "step.done", "usage", object{"calls": 1, "input": 2000}))},
		{"a branch that was given up spent for nothing", audit.Budgets, "at most 3000 tokens for the run and its 3 branches", both(
			calls("p1", 6, "f1", "2", 27), calls("p4", 2, "p4", "1.c", 8))},
		{"what a branch told late is not in the usage", audit.Budgets, "a usage of at least what its steps, the reports of its branches and its unrecorded calls say", set("p1", 8, "run.ended", "usage", object{"calls": 1, "input": 100, "output": 20})},
		{"more is estimated than was used", audit.Budgets, "what is estimated to be a part of the usage", set("s1", 9, "run.ended", "lost", object{"input": 900})},
		{"what a step used is not in the usage", audit.Budgets, "a usage of at least what its steps", set("s1", 9, "run.ended", "usage", object{"calls": 1})},
		{"what a branch told is not in the steps", audit.Budgets, "at least the 7 steps that its branches told", at("p1", 3, func(e *envelope) {
			e.fact("run.received").data["branch"].(object)["steps"] = 7
		})},
		// Tenants, files, blobs.
		{"a parent of another tenant", audit.Tenant, "names tenant evil", relink("s2", 1, "session.opened", "tenant", "evil")},
		{"a home of another tenant", audit.Tenant, "names tenant evil", set("c2", 1, "run.claimed", "home", object{"session": "c1", "tenant": "evil"})},
		{"a commit of another tenant", audit.Tenant, "one of evil/s1", at("s1", 3, func(e *envelope) { e.tenant = "evil" })},
		{"other files than the step before left", audit.Workspace, "step 2 to start from files aaaaaaaa", set("t1", 3, "step.done", "head_before", strings.Repeat("b", 64))},
		{"other files than the step says it left", audit.Workspace, "of the session after step 1, as it says", set("t1", 2, "step.done", "head_after", strings.Repeat("b", 64))},
		{"data that are not there", audit.Blobs, "found nothing", at("s3", 2, func(e *envelope) { e.noBlobs = true })},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := story(newWorld(t, c.hook)).audited()
			if !slices.ContainsFunc(r.Violations, func(v audit.Violation) bool {
				return v.Invariant == c.invariant && strings.Contains(v.String(), c.text)
			}) {
				t.Errorf("not found: %s with %q; found:\n%s", c.invariant, c.text, violations(r))
			}
			for _, v := range r.Violations {
				if strings.ContainsAny(v.String(), "\n\r") {
					t.Errorf("more than a line: %q", v)
				}
			}
		})
	}
}
