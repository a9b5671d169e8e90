package audit_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// change edits a message of a stream without events.
func change(w *world, stream string, n int, edit func(*audit.Message, object)) {
	i := 0
	for k := range w.others {
		m := &w.others[k]
		if m.Stream != stream {
			continue
		}
		if i++; i != n {
			continue
		}
		var o object
		must.Do(w.t, json.Unmarshal(m.Data, &o))
		edit(m, o)
		m.Data = canonicalJSON(w.t, o)
		return
	}
	w.t.Fatalf("no message %d in %s", n, stream)
}

func drop(w *world, stream string, n int) {
	i := 0
	w.others = slices.DeleteFunc(w.others, func(m audit.Message) bool {
		if m.Stream == stream {
			i++
		}
		return m.Stream == stream && i == n
	})
}

// TestProjections breaks data derived from logs.
func TestProjections(t *testing.T) {
	field := func(stream string, n int, name string, value any) func(*world) {
		return func(w *world) { change(w, stream, n, func(_ *audit.Message, o object) { o[name] = value }) }
	}
	// record changes the first record of a kind.
	record := func(kind string, edit func(object)) func(*world) {
		return func(w *world) {
			n := 0
			for _, m := range w.others {
				if m.Stream != "LINEAGE" {
					continue
				}
				if n++; !strings.Contains(string(m.Data), `"kind":"`+kind+`"`) {
					continue
				}
				change(w, "LINEAGE", n, func(_ *audit.Message, o object) {
					all := o["records"].([]any)
					i := slices.IndexFunc(all, func(r any) bool { return r.(object)["kind"] == kind })
					edit(all[i].(object))
				})
				return
			}
			t.Fatalf("no record of kind %s", kind)
		}
	}
	said := func(kind, name string, value any) func(*world) {
		return record(kind, func(o object) { o[name] = value })
	}
	for _, c := range []struct {
		name, invariant, text string
		edit                  func(*world)
	}{
		{"a commit is missing", audit.Lineage, "want a record of event", func(w *world) { drop(w, "LINEAGE", 5) }},
		{"a record is missing", audit.Lineage, "want a record of event", func(w *world) {
			change(w, "LINEAGE", 1, func(_ *audit.Message, o object) { o["records"] = o["records"].([]any)[1:] })
		}},
		{"no records", audit.Lineage, "as in records.v1", field("LINEAGE", 1, "records", []any{})},
		{"records of another commit", audit.Lineage, "hash", field("LINEAGE", 3, "hash", headA)},
		{"records of no commit", audit.Lineage, "no such commit", field("LINEAGE", 3, "commit", 700)},
		{"a record of no event", audit.Lineage, "events, found event 40", said("claimed", "k", 40)},
		{"a record twice", audit.Lineage, "a record of an event above", func(w *world) {
			change(w, "LINEAGE", 1, func(_ *audit.Message, o object) {
				all := o["records"].([]any)
				o["records"] = append(all, all[0])
			})
		}},
		{"a record of another kind", audit.Lineage, "found kind chunk", said("claimed", "kind", "chunk")},
		{"records elsewhere", audit.Lineage, "want subject", func(w *world) {
			change(w, "LINEAGE", 3, func(m *audit.Message, _ object) { m.Subject = "rath.lineage.evil.s1.claimed.s1" })
		}},
		{"records out of order", audit.Lineage, "for the first time", func(w *world) {
			w.others[2].Data, w.others[12].Data = w.others[12].Data, w.others[2].Data
			w.others[2].Subject, w.others[12].Subject = w.others[12].Subject, w.others[2].Subject
		}},
		{"records of another partition", audit.Lineage, "partition and seq", field("LINEAGE", 3, "partition", 4)},
		{"records of another epoch", audit.Lineage, "epoch 1 of the commit", field("LINEAGE", 3, "epoch", 2)},
		{"a record of another epoch", audit.Lineage, "epoch 1 of the commit", said("claimed", "epoch", 2)},
		{"a record of another run", audit.Lineage, "a run that the log tells of, found run r99", record("claimed", func(o object) { o["run"] = "r99" })},
		{"a task of another run", audit.Lineage, "a run that the log tells of, found run r99", record("submitted", func(o object) { o["run"] = "r99" })},
		{"an end of another run", audit.Lineage, "a run that the log tells of, found run r99", record("ended", func(o object) { o["run"] = "r99" })},
		{"an end told otherwise", audit.Lineage, "state succeeded of run.ended, found failed", record("ended", func(o object) { o["state"] = "failed" })},
		{"a branch closed otherwise", audit.Lineage, "of session.closed, found succeeded", record("closed", func(o object) { o["state"] = "succeeded" })},
		{"an edge to another session", audit.Lineage, "the parents of the session", record("forked", func(o object) { o["parents"].([]any)[0].(object)["session"] = "s9" })},
		{"an edge to another version", audit.Lineage, "the parents of the session", record("forked", func(o object) { o["parents"].([]any)[0].(object)["version"] = 77 })},
		{"a fork without an edge", audit.Lineage, "the parents of the session", record("forked", func(o object) { delete(o, "parents") })},
		{"a record that is none", audit.Lineage, "as in records.v1", said("claimed", "kind", 4)},
		{"a result is missing", audit.Results, "none in RESULT", func(w *world) { drop(w, "RESULT", 1) }},
		{"a result of another state", audit.Results, "state succeeded", field("RESULT", 1, "state", "failed")},
		{"a result of another commit", audit.Results, "the chain to end", field("RESULT", 1, "chain", object{"hash": headA, "seq": 9, "session": "s1"})},
		{"a result with another output", audit.Results, "the output", field("RESULT", 1, "output", "nothing")},
		{"a result with another finish", audit.Results, `finish ["" ""]`, field("RESULT", 1, "finish", "length")},
		{"a result of another version", audit.Results, "s1:", field("RESULT", 1, "version", 1)},
		{"two results", audit.Results, "one result", func(w *world) {
			for _, m := range w.others {
				if m.Stream == "RESULT" {
					w.seqs["RESULT"]++
					m.Seq = w.seqs["RESULT"]
					w.others = append(w.others, m)
					return
				}
			}
		}},
		{"a result of no run", audit.Results, "a run in the logs", func(w *world) {
			w.other("RESULT", "rath.run.acme.r99.result", object{"ended_ms": 1, "run": "r99", "schema": 1, "state": "succeeded"})
		}},
		{"a cancel of no run without a request", audit.Results, "a run in the logs", func(w *world) {
			w.other("RESULT", "rath.run.acme.r99.result", object{"ended_ms": 1, "run": "r99", "schema": 1, "state": "cancelled"})
		}},
		{"an alias of another session", audit.Aliases, "the alias to name", field("KV_ALIAS", 1, "session", "s9")},
		{"an alias of a run that is nowhere", audit.Aliases, "run r99, of which there is an alias", func(w *world) {
			w.other("KV_ALIAS", "$KV.ALIAS.acme.run.r99", object{"digest": "d", "session": "s9"})
			w.other("TASKS", "rath.task.acme.anonymous.fix", object{"id": "x5"})
		}},
		{"an alias is missing", audit.Aliases, "none in ALIAS", func(w *world) { drop(w, "KV_ALIAS", 1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := story(newWorld(t, nil))
			for range w.messages() {
				break // the results are written
			}
			c.edit(w)
			r := w.audited()
			if !slices.ContainsFunc(r.Violations, func(v audit.Violation) bool {
				return v.Invariant == c.invariant && strings.Contains(v.String(), c.text)
			}) {
				t.Errorf("not found: %s with %q; found:\n%s", c.invariant, c.text, violations(r))
			}
		})
	}
}
