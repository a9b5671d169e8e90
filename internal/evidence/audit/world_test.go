package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// The tests write logs by hand, without code of the system.

// object is JSON data.
type object = map[string]any

// fact is an event to be written in a commit.
type fact struct {
	kind  string
	batch string
	data  object
	blob  bool // kept outside of the commit
	child bool // the end of a run in a session that is not its home
	time  int64
}

// envelope is a commit before it is encoded; hooks may change every part of it.
type envelope struct {
	session, tenant, root string
	seq, epoch            uint64
	prev                  string
	facts                 []fact
	header                map[string][]string
	subject               string
	stream                string
	raw                   func([]byte) []byte // replaces the stored bytes
	twice                 bool                // stored again
	drop                  bool                // never stored
	noBlobs               bool
	instead               map[int]object // data of facts that are stored instead
	skip, again           map[int]bool   // facts that are not stored, or twice
}

// logbook writes the log of one session.
type logbook struct {
	w       *world
	id      string
	tenant  string
	root    string
	seq     uint64
	last    uint64
	token   uint64
	hash    string
	epoch   uint64
	version uint64
	runs    map[string]uint64 // attempt
}

// world is a set of streams.
type world struct {
	t       testing.TB
	hook    func(*envelope)
	logs    map[string]*logbook
	events  []audit.Message
	others  []audit.Message
	seqs    map[string]uint64
	results []object
	now     int64
}

func newWorld(t testing.TB, hook func(*envelope)) *world {
	return &world{t: t, hook: hook, logs: map[string]*logbook{}, seqs: map[string]uint64{}, now: 1_795_165_200_000}
}

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

// log returns the log of a session: a root, or a fork in the tree of root.
func (w *world) log(id, root string) *logbook {
	l := &logbook{w: w, id: id, tenant: "acme", root: root, hash: zeros, runs: map[string]uint64{}}
	w.logs[id] = l
	return l
}

// canonicalJSON writes data with sorted keys and without white space.
func canonicalJSON(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	must.Do(t, e.Encode(v))
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// parse reads the data of a fact.
func parse(t testing.TB, text string) object {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v object
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// ev makes a fact; in the data, words that begin with @ are replaced by the values of the
// pairs.
func (l *logbook) ev(kind, data string, pairs ...any) fact {
	for i := 0; i < len(pairs); i += 2 {
		data = strings.ReplaceAll(data, pairs[i].(string), fmt.Sprint(pairs[i+1]))
	}
	return fact{kind: kind, data: parse(l.w.t, data)}
}

// in puts facts into the batch of a step.
func in(batch string, facts ...fact) []fact {
	for i := range facts {
		facts[i].batch = batch
	}
	return facts
}

// open begins an incarnation of the writer.
func (l *logbook) open(node string) fact {
	l.epoch++
	return l.ev("writer.opened", `{"epoch":@e,"incarnation":"@n"}`, "@e", l.epoch, "@n", node)
}

// link returns a link to the latest commit.
func (l *logbook) link() string {
	return fmt.Sprintf(`{"hash":%q,"seq":%d,"session":%q,"tenant":%q,"token":%d,"version":%d}`, l.hash, l.seq, l.id, l.tenant, l.token, l.version)
}

// unborn returns a link to a session that does not exist yet.
func unborn(id string, version uint64) string {
	return fmt.Sprintf(`{"hash":%q,"seq":0,"session":%q,"tenant":"acme","token":0,"version":%d}`, zeros, id, version)
}

// commit stores facts.
func (l *logbook) commit(groups ...any) {
	w := l.w
	w.t.Helper()
	e := &envelope{session: l.id, tenant: l.tenant, root: l.root, seq: l.seq + 1, epoch: l.epoch, prev: l.hash, stream: "EV_1_0"}
	for _, g := range groups {
		switch v := g.(type) {
		case fact:
			e.facts = append(e.facts, v)
		case []fact:
			e.facts = append(e.facts, v...)
		}
	}
	w.now += 10
	for i := range e.facts {
		if e.facts[i].time == 0 {
			e.facts[i].time = w.now
		}
	}
	e.subject = "rath.ev.1.0." + l.tenant + "." + l.id
	e.header = map[string][]string{"Nats-Expected-Last-Subject-Sequence": {fmt.Sprint(l.last)}}
	if w.hook != nil {
		w.hook(e)
	}
	if e.drop {
		l.seq++ // as if it had been stored
		return
	}
	raw, blobs := e.encode(w.t)
	if !e.noBlobs {
		w.events = append(w.events, blobs...)
	}
	if e.raw != nil {
		raw = e.raw(raw)
	}
	for range 1 + b2i(e.twice) {
		w.seqs[e.stream]++
		w.events = append(w.events, audit.Message{
			Stream: e.stream, Seq: w.seqs[e.stream], Subject: e.subject, Time: time.UnixMilli(w.now), Header: e.header, Data: raw,
		})
		l.last, l.token = w.seqs[e.stream], w.seqs[e.stream]
	}
	l.seq, l.hash = l.seq+1, hashed(raw)
	for _, f := range e.facts {
		switch f.kind {
		case "session.opened":
			if k := f.data["kind"]; k == "fork" || k == "implicit" || k == "detach" {
				l.version = number(f.data["parents"].([]any)[0].(object)["version"])
			}
		case "session.chunk", "session.placed", "session.joined":
			l.version++
		}
	}
	w.derive(l, e)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func number(v any) uint64 {
	n, err := strconv.ParseUint(fmt.Sprint(v), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func hashed(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (e *envelope) encode(t testing.TB) (raw []byte, blobs []audit.Message) {
	events := []any{}
	for i, f := range e.facts {
		if by, ok := e.instead[i]; ok {
			f.data = by
		}
		o := object{"kind": f.kind, "schema": 1, "time": f.time}
		if f.batch != "" {
			o["batch"] = f.batch
		}
		data := canonicalJSON(t, f.data)
		if f.blob {
			o["blob"] = object{"digest": hashed(data), "size": len(data)}
			blobs = append(blobs, audit.Message{Stream: "BLOB", Subject: "rath.blob." + e.tenant + "." + hashed(data), Data: data})
		} else {
			o["data"] = json.RawMessage(data)
		}
		if e.skip[i] {
			continue
		}
		if events = append(events, o); e.again[i] {
			events = append(events, o)
		}
	}
	return canonicalJSON(t, object{
		"epoch": e.epoch, "events": events, "format": 1, "prev": e.prev, "root": e.root, "seq": e.seq, "session": e.session, "tenant": e.tenant,
	}), blobs
}

// recordKind is the kind of the record of each kind of event.
var recordKind = map[string]string{
	"session.opened": "opened", "session.chunk": "chunk", "session.placed": "placed", "session.joined": "merged", "session.rejected": "rejected",
	"session.closed": "closed", "session.archived": "archived", "session.restored": "restored", "run.submitted": "submitted", "run.claimed": "claimed", "run.released": "released", "run.review": "review",
	"run.resolved": "resolved", "run.cancel_requested": "cancel", "run.warning": "warning", "run.waiting": "waiting", "run.received": "answered",
	"run.fanout": "fanned_out", "run.spread": "spread", "run.quarantined": "quarantined", "run.rebudgeted": "rebudgeted", "run.disposed": "disposed", "run.ended": "ended", "step.intent": "intent", "step.late": "late", "step.done": "did",
}

// derive writes the lineage of a commit, and the results of its runs.
func (w *world) derive(l *logbook, e *envelope) {
	stored := object{
		"commit": l.seq, "epoch": e.epoch, "hash": l.hash, "partition": 0, "root": l.root, "schema": 1, "seq": l.token, "session": l.id, "tenant": l.tenant,
	}
	var records []any
	subject := "rath.lineage." + l.tenant + "." + l.root + ".tree"
	for k, f := range e.facts {
		kind := recordKind[f.kind]
		told := f.batch != "" && slices.Contains([]string{"chunk", "placed", "merged", "rejected", "fanned_out"}, kind) &&
			slices.ContainsFunc(e.facts, func(o fact) bool { return o.kind == "step.done" && o.batch == f.batch })
		if kind == "" || told {
			continue
		}
		switch {
		case f.child:
			kind = "released"
		case kind == "opened" && (f.data["kind"] == "fork" || f.data["kind"] == "implicit"):
			kind = "forked"
		}
		record := object{"k": k, "kind": kind, "summary": "x", "time": f.time}
		maps.Copy(record, tells(f))
		records = append(records, record)
		if kind == "quarantined" || kind == "restored" {
			subject = "rath.lineage." + l.tenant + "." + l.root + "." + kind + "." + l.id
		}
		if f.kind == "run.ended" && !f.child {
			r := object{
				"schema": 1, "run": f.data["run"], "state": f.data["state"], "session": l.id, "ended_ms": f.time, "workflow": f.data["workflow"],
				"chain": object{"hash": l.hash, "seq": l.seq, "session": l.id},
			}
			maps.Copy(r, pick(f.data, "attempt", "code", "error", "output", "usage"))
			if v, ok := f.data["result"].(object); ok {
				r["session"], r["version"] = v["session"], v["version"]
			}
			w.results = append(w.results, object{"subject": "rath.run." + l.tenant + "." + f.data["run"].(string) + ".result", "body": r})
		}
		if f.kind == "run.submitted" && f.data["task"].(object)["branch"] == nil {
			w.other("KV_ALIAS", "$KV.ALIAS."+l.tenant+".run."+f.data["task"].(object)["run"].(string), object{"session": l.id, "digest": f.data["digest"]})
		}
	}
	if stored["records"] = records; records != nil {
		w.other("LINEAGE", subject, stored)
	}
}

// tells returns the fields of an event's record in addition to its identity.
func tells(f fact) object {
	switch f.kind {
	case "session.opened":
		edges := []any{}
		parents, _ := f.data["parents"].([]any) // a leaf has none
		for _, p := range parents {
			edge := pick(p.(object), "hash", "session", "version")
			edge["commit"] = p.(object)["seq"]
			edges = append(edges, edge)
		}
		return object{"parents": edges}
	case "session.closed":
		if why, _ := f.data["reason"].(string); why == "it only judged" || strings.HasPrefix(why, "notes ") {
			return object{"state": "scratch"}
		}
		return pick(f.data, "state")
	case "run.submitted":
		return pick(f.data["task"].(object), "run")
	case "run.ended":
		if f.child {
			return pick(f.data, "run")
		}
		return pick(f.data, "run", "state")
	}
	return pick(f.data, "run")
}

func pick(o object, names ...string) object {
	out := object{}
	for _, n := range names {
		if v, ok := o[n]; ok {
			out[n] = v
		}
	}
	return out
}

// other stores a message of a stream without events.
func (w *world) other(stream, subject string, v any) {
	w.seqs[stream]++
	w.others = append(w.others, audit.Message{Stream: stream, Seq: w.seqs[stream], Subject: subject, Data: canonicalJSON(w.t, v)})
}

// messages yields everything, the event streams first.
func (w *world) messages() iter.Seq2[audit.Message, error] {
	for _, r := range w.results {
		w.other("RESULT", r["subject"].(string), r["body"])
	}
	w.results = nil
	all := slices.Concat(w.events, w.others, []audit.Message{{Stream: "LINEAGE"}, {Stream: "RESULT"}, {Stream: "KV_ALIAS"}})
	return func(yield func(audit.Message, error) bool) {
		for _, m := range all {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// schemaFiles are the files of the schemas that the audit reads.
var (
	schemaFiles = os.DirFS("../../../messages/schema")
	schemas     = func() *audit.Schemas {
		s, err := audit.ReadSchemas(schemaFiles)
		if err != nil {
			panic(err)
		}
		return s
	}()
)

// audited returns the report of an audit of the world.
func (w *world) audited(change ...func(*audit.Options)) *audit.Report {
	w.t.Helper()
	o := &audit.Options{Schemas: schemas}
	for _, c := range change {
		c(o)
	}
	r := must.Get(audit.Run(w.t.Context(), w.messages(), o))(w.t)
	return r
}

func violations(r *audit.Report) string {
	var b strings.Builder
	for _, v := range r.Violations {
		b.WriteString(v.String() + "\n")
	}
	return b.String()
}
