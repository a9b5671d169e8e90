package messages_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

func schemaOf(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	text := must.Get(messages.SchemaOf(name))(t)
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return &s
}

func resolved(t testing.TB, name string) *jsonschema.Resolved {
	t.Helper()
	r, err := schemaOf(t, name).Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

func validate(r *jsonschema.Resolved, data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	return r.Validate(v)
}

var (
	digest = blob.Sum([]byte("files")).String()
	usage  = session.Usage{CacheRead: 1, CacheWrite: 2, Calls: 3, Input: 4, MicroUSD: 5, Output: 6}
	ref    = messages.Ref{Commit: 3, Hash: digest, Session: "s1", Version: 4}
	moment = time.Date(2026, 11, 20, 15, 4, 5, 678_000_000, time.UTC)
	place  = session.Placement{Backend: "local", Epoch: 1, Head: blob.Sum([]byte("files")), Isolation: "landlock", Spec: "."}
)

func fullRecord() messages.Record {
	return messages.Record{
		Again: "cut", Finish: "length", Word: "w", Agent: "coder", Attempt: 1, BranchOf: &messages.Place{Run: "r0", Session: "s0", Step: "2.gather"}, Branches: []messages.Ref{ref}, Due: 1,
		Ends:  []run.BranchOutcome{{Reason: "why", Session: "s2", State: "cancelled"}},
		Waits: []messages.Wait{{Branches: []session.ID{"s2"}, Due: 1, Kind: "approval", Name: "deploy", Need: 1, Step: "3", Title: "Deploy?", Wants: "yes or no"}}, Wake: 1, By: "s1", Says: "ann", Call: "c1", Calls: 1, Candidates: []string{"write"}, Code: run.CodeError, Commit: 3, Durability: "lazy", Effect: "sandboxed",
		Elapsed: 12, Epoch: 1, Failure: true, Hash: digest, Head: digest, HeadFrom: digest, Home: "s1", K: 1, Kind: messages.KindTool, Model: "m", Name: "n", Node: "node-a",
		Parents: []messages.Ref{ref}, Partition: 1, Policy: "adopt", Reason: "why", Result: &ref, Revision: "r1", Role: "tool_result", Root: "s1", Rows: 1,
		Run: "r1", Schema: 1, Seq: 9, Session: "s1", Source: "fix.go:1", State: "running", Step: "1.0", Summary: "coder edits slug.sh", Tenant: "acme",
		Time: 1, Tool: "edit_file", Usage: usage, Version: 4, Via: "fork", Workflow: "fix",
	}
}

func fullTask() messages.Task {
	return messages.Task{
		ID: "run-1", Session: "s1", Input: json.RawMessage(`{"q":1.5}`), Model: "m", Tools: []string{"edit_file"}, Workspace: digest,
		Budget: messages.Budget{MicroUSD: 1, Steps: 2, TimeMS: 3, Tokens: 4}, Deadline: moment.Add(time.Hour), NotBefore: moment, ForkOf: "s0:3", Revision: "r1",
		Sandbox: messages.Sandbox{Allow: "CLAUDE.md", Backend: "local", Image: "i", Limits: "pids=9", Network: "none", Services: []sandbox.Service{
			{Name: "web", Command: []string{"sh", "-c", "serve"}, Port: 8000, Timeout: 9 * time.Millisecond, Outside: true},
			{Name: "db", Command: []string{"db"}, Ready: []string{"sh", "-c", "db ping"}},
		}},
	}
}

var picture = session.Image{Digest: blob.Sum([]byte("picture")), Size: 7, Type: "image/png"}

var linked = session.Link{Ref: session.Ref{Key: session.Key{Tenant: "acme", ID: "s2"}, Version: 4}, Seq: 3, Hash: commitlog.HashOf([]byte("x")), Token: 7}

var noteOrigin = memory.Origin{Session: "s1", Version: 4, Run: "r1", Step: "2.0", User: "ana"}

func fullBranch() *journal.Branch {
	return &journal.Branch{
		Ancestors: []journal.Ancestor{{Path: "1", Run: "r0", Session: "s0"}}, Base: linked, Name: "a", Path: "2.a", Remote: true, Root: "s0", WarmsCache: true, Within: []string{"w"},
	}
}

func fullReceived() *journal.SignalReceived {
	return &journal.SignalReceived{
		Event: new(fullEvent()),
		Asked: "q", AskedRevision: "r1",
		Branch: &journal.BranchEnd{Code: "error", Error: "x", Link: linked, State: run.Failed, Steps: 3, Usage: usage}, By: "ana", Says: "ann", ID: "i", Interrupt: true, Kind: journal.Report, N: 1,
		Path: "2.gather", Reason: "r", Revision: "r1", Run: "r1", Text: "t", Value: "1", Wake: 1, Workflow: "fix",
	}
}

func fullDone(kind string) journal.StepCompleted {
	return journal.StepCompleted{
		Again: journal.AgainCut, Finish: "length", Word: "w",
		Attempt: 1, Call: "c", Code: "error", Effect: "sandboxed", Elapsed: 1, Error: "x", Failed: true, HeadAfter: place.Head, HeadBefore: place.Head, Images: []session.Image{picture}, Inbox: 1, Input: "i",
		Given: place.Head,
		Kind:  kind, Links: []session.Link{linked}, Model: "m", Name: "n", Path: "1", Prompt: place.Head, Revision: "r1", Row: true, Run: "r1", Services: []journal.ServiceLog{{Log: "l", More: 1, Name: "web"}},
		Lost: usage, Source: "f.go:1", Steps: 2, Summary: "s", Usage: usage, Value: "{}",
	}
}

// full has a value with every field set for each schema that has a Go type.
func full() map[string]any {
	task := fullTask()
	inner := fullTask()
	inner.Input = nil
	info := messages.RunInfo{
		Quarantine: "odd",
		Branch:     "a", BranchOf: &messages.Place{Run: "r0", Session: "s0", Step: "2.gather"}, Due: 1,
		Waits: []messages.Wait{{Branches: []session.ID{"s2"}, Due: 1, Kind: "approval", Name: "deploy", Need: 1, Step: "3", Title: "Deploy?", Wants: "yes or no"}}, Schemas: map[run.Path]json.RawMessage{"3": json.RawMessage(`{"type":"object"}`)},
		Run: "r1", State: run.Failed, Workflow: "fix", Revision: "r1", Session: "s1", Root: "s1", Attempt: 1, Node: "n1", Behind: "r0", Cancelled: true, Code: "error",
		Reason: "why", Result: &ref, Review: &messages.Review{Step: "1", Call: "c", Tool: "t", Code: "needs_review", Reason: "why", Revision: "1"}, Steps: 3,
		Sessions: []session.ID{"s1"}, Usage: usage, Warnings: []string{"w"}, Submitted: 1, Started: 2, Ended: 3,
	}
	branch := messages.GraphSession{
		Session: "s2", Version: 4, Root: "s1", Via: "fork", Name: "fast", Parents: []messages.Ref{ref}, Head: digest, Disposition: "rejected", Reason: "why",
		By: "s1", Usage: usage, Opened: 1, Last: 2, Runs: []run.ID{"r1"},
	}
	chunk := messages.Chunk{
		Index: 1, Kind: session.ToolResult, Text: "x", Truncated: true, Calls: []session.ToolCall{{ID: "1", Name: "n", Args: "{}"}}, CallID: "c", Name: "n",
		Failed: true, Body: digest, Images: []session.Image{picture}, Agent: "a", Workflow: "w", Node: "n", Run: "r1", Step: "1", Time: 1, Placement: place, Usage: usage, Session: "s1", Version: 2,
	}
	workflow := messages.Workflow{Name: "fix", Description: "d", Revision: "r1", Pool: "default", Class: messages.ClassBatch, Input: json.RawMessage(`{"type":"object"}`), Type: "*fix.Fix", Left: 1, Parts: []messages.WorkflowPart{{
		Path: "Code", Kind: "agent", Branch: true, Name: "coder", Description: "d", Revision: "1", Model: "m", Memory: "team", Tools: []string{"edit"}, MCP: []string{"git"},
		MaxRounds: 64, MaxContext: 1000, Budget: messages.Budget{MicroUSD: 1, Steps: 2, TimeMS: 3, Tokens: 4},
	}}}
	node := messages.Node{
		Incarnation: "node-a-1", Name: "node-a", Pools: []string{"default"}, Slots: 4, Free: 3, Version: "v1", PID: 7, Isolation: "landlock", Durability: "fsync",
		Full: []messages.StreamFill{
			{Stream: "EV_1_0", Bytes: 9, MaxBytes: 10, Room: messages.RoomOpen},
			{Stream: messages.FullDisk, Bytes: 10, MaxBytes: 10, Room: messages.RoomNone, Reason: "no space left on device"},
		},
		Gaps: []string{"EV_1_0"}, Draining: true, Gossip: "10.0.0.1:7946", Dead: true, Silent: 1, Offers: []string{"fix@r1"}, Started: 1,
	}
	event := fullRecord()
	return map[string]any{
		"task.v1":    task,
		"control.v1": messages.Control{Reason: "r", By: "ann", Decision: run.Happened, Value: json.RawMessage(`{"ok":true}`), Step: "1", Text: "t"},
		"answer.v1":  wire.Answer{Done: true, Note: "queued", Error: &wire.Error{Code: "error", Text: "x"}},
		"imported.v1": wire.ImportAnswer{
			Answer:   wire.Answer{Done: true, Note: "goes on", Error: &wire.Error{Code: "error", Text: "x"}},
			Imported: []messages.Imported{{Session: "s1", Rows: 2, Kind: "archive", Created: "2026-07-01", Closed: true, Note: "was there already"}},
		},
		"repaired.v1": wire.RepairAnswer{
			Answer:   wire.Answer{Done: true, Note: "goes on", Error: &wire.Error{Code: "error", Text: "x"}},
			Repaired: messages.Repaired{From: 3, Published: 2, Removed: 1}, Partitions: 4,
		},
		"error.v1": wire.Error{Code: "not_found", Text: "no"},
		"result.v1": messages.Result{
			Schema: 1, Run: "r1", State: run.Succeeded, Workflow: "fix", Session: "s1", Version: 9, Output: "done", Code: "error", Error: "x", Attempt: 1,
			Usage: usage, Lost: usage, Workspace: digest, Chain: &messages.Chain{Hash: digest, Seq: 9, Session: "s1"}, EndedMS: 1,
			Statement: "rath run 1\n", Signature: "-----BEGIN SSH SIGNATURE-----\n",
		},
		"delta.v1": messages.Delta{
			Run: "r1", Session: "s1", Step: "1", Attempt: 1, Try: 2, N: 1, Void: true, Start: &messages.StepStart{Kind: "tool", Name: "grep", Did: "greps"}, Agent: "a", Text: "t", Reasoning: "r", Call: &messages.CallDelta{Index: 0, ID: "i", Name: "n", Args: "{"},
		},
		"stream-event.v1": messages.StreamEvent{
			Kind: messages.EventStepDone, Place: &messages.EventPlace{Partition: 1, Seq: 2, K: 3}, Record: messages.KindTool, StepKind: journal.StepTool,
			Run: "r1", Session: "s1", Root: "s0", Commit: 4, Workflow: "fix", Step: "1.0", Attempt: 1, State: "running", Code: run.CodeError, Failed: true, Reason: "why", Time: 5,
			Agent: "a", Tool: "grep", Call: "c1", Calls: 1, Model: "m", Name: "n", Role: "tool_result", By: "ann", Via: "web", Node: "node-a",
			Text: "t", Try: 2, N: 3, From: 4, Reasoning: "r", CallPart: &messages.CallDelta{Index: 0, ID: "i", Name: "n", Args: "{"},
			Usage: usage, Cost: "free", Elapsed: 6, Finish: "stop", Waits: event.Waits, Due: 7, Branches: []messages.Ref{ref}, BranchOf: event.BranchOf,
			Parents: []messages.Ref{ref}, Ends: event.Ends, HeadBefore: digest, HeadAfter: digest, Result: &ref,
		},
		"record.v1":    event,
		"event.v1":     event,
		"query.v1":     wire.Query{Run: "r1", Session: "s1:4", States: []run.State{run.Running}, Workflow: "fix", Where: "tool=grep", Limit: 5, After: 9, Cursor: "end", Format: "svg", All: true, Memory: "team", URI: "memory://user", Text: "x", AfterNote: "memory://user/a"},
		"runs.v1":      wire.Runs{Runs: []messages.RunInfo{info}, Next: 3, Waiting: 2, Submitted: 9, Behind: 4},
		"run.v1":       info,
		"session.v1":   messages.Session{Session: "s1", Version: 4, Root: "s1", Opened: "fork", Name: "n", Parents: []messages.Ref{ref}, Closed: "rejected", Reason: "why", Placement: place, Usage: usage, Total: 9, Chunks: []messages.Chunk{chunk}, Next: 4},
		"graph.v1":     messages.Graph{Root: "s1", Roots: []session.ID{"s1"}, Tree: []messages.GraphSession{branch}, Picture: "x", Next: 1},
		"lineage.v1":   messages.LineagePage{Records: []messages.LineageRecord{{Cursor: "AQ", Record: event}}, Next: "AQ", More: true},
		"workflow.v1":  workflow,
		"workflows.v1": wire.Workflows{Workflows: []messages.Workflow{workflow}},
		"node.v1":      node,
		"nodes.v1":     wire.Nodes{Nodes: []messages.Node{node}, Streams: node.Full},
		"replay.v1": messages.Replay{Matches: true, Node: "n", Truncated: true, Runs: []messages.ReplayedRun{{
			Run: "r1", Branch: "a", BranchOf: "r0", Workflow: "fix", Session: "s1", State: run.Failed, Code: "2", Revisions: []string{"1"}, Differs: "why",
			Steps: []messages.ReplayStep{{Path: "1", Verdict: "differs", Recorded: "do a", Asked: "do b", Input: true, Summary: "x"}},
		}}},
		"blob.v1": wire.Blob{Data: []byte("x"), List: true},
		"memory.v1": wire.Memory{
			Memories: []string{"team"}, URIs: []string{"memory://user/a"}, Notes: []wire.Note{{URI: "memory://user/a", Text: "x", Origin: noteOrigin}}, TooLarge: []string{"memory://user/b"}, More: true, Text: "x",
			Hits: []memory.Hit{{URI: "memory://user/a", Snippet: "x", Session: "s1", Origin: noteOrigin, Score: 1}},
		},
		"tasks.v1":   wire.Tasks{Tasks: []wire.KnownTask{{Run: "r1", Digest: "d", Refused: "deadline"}}},
		"missing.v1": wire.Missing{Missing: []blob.Digest{blob.Sum([]byte("x"))}},
		"commits.v1": messages.Commits{Commits: []messages.StoredCommit{{Token: 1, Commit: "{}"}}, Next: &messages.CommitPosition{Seq: 1, Token: 2, Hash: blob.Digest{}.String()}},
		"live.v1": messages.Live{
			Run: "r1", State: run.Running, Session: "s1", Node: "n", Attempt: 1, At: 9, More: 1, Since: 8, Silent: true, Behind: "r0", Untaken: true, Unbegun: 2, Due: 7,
			Unoffered: []messages.LiveUnoffered{{Workflow: "fix", Revision: "1", Branches: 1}},
			Steps: []messages.LiveStep{{
				Step: "1", Kind: journal.StepModel, Name: "a", Did: "x", Model: "m", Doing: "asks", Began: 1, At: 2, Until: 3, Try: 2, Error: "e", Text: "t", From: 3, N: 2, Bytes: 1, Tokens: 1, Calls: []string{"grep"},
			}},
			Queue: &messages.LiveQueue{Pool: "default", Revision: "1", Class: messages.ClassBatch, Ahead: 1, Waiting: 2, Nodes: 3, Free: 0, Sent: "n", Again: 4},
			Limit: &messages.LiveLimit{Limit: "1 at a time for acme", Holders: []run.ID{"r0"}, Before: []run.ID{"r2"}, Ahead: 1},
			Waits: event.Waits, Review: info.Review, Quarantine: "why",
		},
		"tool.v1":        messages.Tool{Name: "deploy", Description: "d", Effect: "idempotent", Input: json.RawMessage(`{"type":"object"}`), TimeoutMS: 5},
		"alias.v1":       translate.Alias{Session: "s1", Digest: "d", Ended: "d", Cancelled: &journal.CancelRequested{By: "b", Says: "c", Reason: "r", Run: "r1"}, Refused: "malformed", Request: "q"},
		"dead-letter.v1": messages.DeadLetter{Schema: 1, Code: "malformed", Reason: "why", Subject: "rath.task.acme.anonymous.fix", Run: "r1", Text: "x", Base64: []byte{1}, Bytes: 1, Truncated: true, TimeMS: 1},
		"tools.v1":       wire.Tools{Tools: []messages.Tool{{Name: "deploy", Description: "d", Effect: "idempotent", Input: json.RawMessage(`{"type":"object"}`), TimeoutMS: 5}}},
		"tool-cancel.v1": wire.ToolCancel{ID: "c1", Attempt: 1, Reason: "enough"},
		"tool-call.v1":   messages.ToolCall{ID: "c1", Attempt: 1, Args: json.RawMessage(`{}`)},
		"tool-answer.v1": messages.ToolAnswer{Body: json.RawMessage(`[1.5]`), IsError: true},
		"dead-letters.v1": wire.DeadLetters{
			Letters: []messages.StoredLetter{{At: 1, Letter: messages.DeadLetter{
				Schema: 1, Code: "malformed", Reason: "why", Subject: "rath.task.acme.anonymous.fix", Run: "r1", Text: "x", Base64: []byte{1}, Bytes: 1, Truncated: true, TimeMS: 1,
			}}}, Next: 1,
		},
		"letter-end.v1": wire.LetterEnd{Schema: 1, At: 1, End: messages.LetterRetried, By: "b", Says: "c", Reason: "r", Run: "r1-r1", TimeMS: 1},
		"work.v1": translate.Work{
			Tenant: "acme", Session: "s1", Run: "r1", Workflow: "fix", Revision: "r1", Cancel: &journal.CancelRequested{By: "b", Says: "c", Close: "cancelled", Reason: "r", Run: "r1", Settle: "s1"},
			Received: fullReceived(), Close: &run.BranchOutcome{Reason: "r", Session: "s2", State: session.ClosedCancelled}, Tick: true,
			Quarantine: &journal.Quarantined{By: "b", Says: "c", ID: "i", Next: &journal.Offer{Revision: "r1", Run: "r2", Workflow: "fix"}, Reason: "r", Released: true},
			Rebudget:   &journal.Rebudgeted{Budget: run.Budget{Tokens: 1, Time: 5, Steps: 1, MicroUSD: 1}, By: "b", Says: "c", Reason: "r", Run: "r1"}, Late: new(fullDone(journal.StepTool)),
			Settle:  new(fullSettled().Part),
			Branch:  fullBranch(),
			Resolve: &journal.Resolved{By: "b", Says: "c", Decision: run.Again, Path: "1", Reason: "r", Revision: "r1", Run: "r1", Value: "1", Workflow: "fix"}, Task: &inner, Input: "{}",
		},
	}
}

// TestSchemasDescribeTheTypes compares both sides field by field. It validates a full
// value, and an empty one that leaves out all optional fields.
func TestSchemasDescribeTheTypes(t *testing.T) {
	samples := full()
	for _, name := range messages.Schemas() {
		t.Run(name, func(t *testing.T) {
			s := schemaOf(t, name)
			if s.Schema != "https://json-schema.org/draft/2020-12/schema" || s.Title == "" || s.Description == "" || !strings.HasPrefix(s.ID, "urn:rath:schema:") {
				t.Errorf("$schema %q, $id %q, title %q, description %q", s.Schema, s.ID, s.Title, s.Description)
			}
			r := resolved(t, name)
			if name == "commit.v1" || name == "records.v1" {
				return // TestCommitSchema, TestRecordsSchema
			}
			v, ok := samples[name]
			if !ok {
				t.Fatal("no Go type is compared with this schema")
			}
			compare(t, name, s, s, reflect.TypeOf(v), map[string]string{"delta.v1": "provisional"}[name])
			data := must.Get(messages.Encode(v))(t)
			takes(t, s, r, data)
		})
		delete(samples, name)
	}
	for name := range samples {
		t.Errorf("%s has no schema", name)
	}
}

// takes checks that a schema accepts data, and rejects it without any of its required
// fields: each of them is always written.
func takes(t *testing.T, s *jsonschema.Schema, r *jsonschema.Resolved, data []byte) {
	t.Helper()
	if err := validate(r, data); err != nil {
		t.Errorf("the schema refuses %s:\n%v", data, err)
	}
	for _, required := range s.Required {
		var fields map[string]json.RawMessage
		must.Do(t, json.Unmarshal(data, &fields))
		delete(fields, required)
		less := must.Get(json.Marshal(fields))(t)
		if validate(r, less) == nil {
			t.Errorf("without %s the schema takes it", required)
		}
	}
}

// compare demands the same fields of a schema and a type, at every depth.
func compare(t *testing.T, at string, root, s *jsonschema.Schema, typ reflect.Type, extra string) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	s = deref(root, s)
	switch typ.Kind() {
	case reflect.Slice:
		if typ.Elem().Kind() != reflect.Uint8 && s.Items != nil {
			compare(t, at+"[]", root, s.Items, typ.Elem(), "")
		}
		return
	case reflect.Struct:
	default:
		return
	}
	if reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return // a time
	}
	want := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(typ) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "" && name != "-" {
			want[name] = f
		}
	}
	for name := range s.Properties {
		if _, ok := want[name]; !ok && name != extra {
			t.Errorf("%s: the schema has a field %s, %s has none", at, name, typ)
		}
	}
	for name, f := range want {
		p := s.Properties[name]
		if p == nil {
			t.Errorf("%s: %s has a field %s, the schema has none", at, typ, name)
			continue
		}
		_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if optional := strings.Contains(options, "omit"); optional == slices.Contains(s.Required, name) && !strings.HasPrefix(at, "query") && !strings.HasPrefix(at, "control") {
			if !(len(f.Index) > 1) { // of an embedded pointer, which may be nil
				t.Errorf("%s: field %s is optional in one and required in the other", at, name)
			}
		}
		compare(t, at+"."+name, root, p, f.Type, "")
	}
}

func deref(root, s *jsonschema.Schema) *jsonschema.Schema {
	for s.Ref != "" || len(s.AnyOf) > 0 {
		if len(s.AnyOf) > 0 {
			s = s.AnyOf[0]
			continue
		}
		s = root.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
	}
	return s
}

// TestDecodersAndSchemasAgree checks possible bodies of clients against both: the
// decoder and the schema reject the same bodies, except for the rules that a schema
// cannot express.
func TestDecodersAndSchemasAgree(t *testing.T) {
	task := func(data []byte) error { _, err := messages.DecodeTask(data); return err }
	control := func(data []byte) error { _, err := messages.DecodeControl(data); return err }
	query := func(data []byte) error { _, err := wire.DecodeQuery(data); return err }
	tool := func(data []byte) error { _, err := wire.DecodeTool(data); return err }
	long := strings.Repeat("x", 70<<10)
	tests := []struct {
		schema string
		decode func([]byte) error
		ok     bool
		body   string
	}{
		{"task", task, true, `{"id":"r1"}`},
		{"task", task, true, `{"id":"r1","input":null,"model":null,"tools":null,"budget":null,"deadline":null}`},
		{"task", task, true, `{"id":"r1","input":[1.5,{"a":null}],"budget":{},"tools":[]}`},
		{"task", task, true, `{"id":"r1","fork_of":"s1"}`},
		{"task", task, true, `{"id":"r1","deadline":"2026-11-20T15:04:05+01:00"}`},
		{"task", task, false, `{}`},
		{"task", task, false, `[]`},
		{"task", task, false, `"r1"`},
		{"task", task, false, `{"id":""}`},
		{"task", task, false, `{"id":7}`},
		{"task", task, false, `{"id":"a b"}`},
		{"task", task, false, `{"ID":"r1"}`},
		{"task", task, false, `{"id":"` + strings.Repeat("a", 65) + `"}`},
		{"task", task, false, `{"id":"r1","tenant":"acme"}`},
		{"task", task, false, `{"id":"r1","session":"a.b"}`},
		{"task", task, false, `{"id":"r1","tools":"edit"}`},
		{"task", task, false, `{"id":"r1","tools":["a","a"]}`},
		{"task", task, false, `{"id":"r1","tools":[1]}`},
		{"task", task, false, `{"id":"r1","workspace":"beef"}`},
		{"task", task, false, `{"id":"r1","workspace":"` + strings.ToUpper(digest) + `"}`},
		{"task", task, false, `{"id":"r1","budget":5}`},
		{"task", task, false, `{"id":"r1","budget":{"tokens":-1}}`},
		{"task", task, false, `{"id":"r1","budget":{"tokens":"5"}}`},
		{"task", task, false, `{"id":"r1","budget":{"tokens":1.5}}`},
		{"task", task, false, `{"id":"r1","budget":{"token":5}}`},
		{"task", task, false, `{"id":"r1","budget":{"time_ms":99999999999999}}`},
		{"task", task, false, `{"id":"r1","deadline":"tomorrow"}`},
		{"task", task, false, `{"id":"r1","deadline":1700000000}`},
		{"task", task, false, `{"id":"r1","fork_of":"s1:x"}`},
		{"task", task, false, `{"id":"r1","fork_of":{"session":"s1"}}`},
		{"task", task, false, `{"id":"r1","model":"` + long + `"}`},
		{"control", control, true, `{}`},
		{"control", control, true, `{"decision":"again","reason":"x","by":"ann","value":{"n":1.5}}`},
		{"control", control, false, `{"reson":"x"}`},
		{"control", control, false, `{"reason":5}`},
		{"control", control, false, `{"reason":"` + long + `"}`},
		{"control", control, false, `[]`},
		{"query", query, true, `{}`},
		{"query", query, true, `{"run":"@last","limit":10,"states":["running"],"format":"svg"}`},
		{"query", query, true, `{"where":"state=failed and not agent=critic"}`},
		{"query", query, false, `{"where":5}`},
		{"query", query, false, `{"states":["lost"]}`},
		{"query", query, false, `{"limit":-1}`},
		{"query", query, false, `{"limit":100000}`},
		{"query", query, false, `{"format":"png"}`},
		{"query", query, false, `{"session":"a/b"}`},
		{"query", query, false, `{"after":-1}`},
		{"tool", tool, true, `{"name":"deploy"}`},
		{"tool", tool, false, `{"name":"de ploy"}`},
		{"tool", tool, false, `{"name":"deploy","effect":"none"}`},
		{"tool", tool, false, `{}`},
	}
	for _, tt := range tests {
		r := resolved(t, tt.schema+".v1")
		body := tt.body
		if len(body) > 100 {
			body = body[:100] + "..."
		}
		if err := tt.decode([]byte(tt.body)); (err == nil) != tt.ok {
			t.Errorf("decoder of %s: %s: %v", tt.schema, body, err)
		}
		if err := validate(r, []byte(tt.body)); (err == nil) != tt.ok {
			t.Errorf("schema of %s: %s: %v", tt.schema, body, err)
		}
	}
}

// TestCommitSchema validates commits as they are stored, with every kind of
// event.
func TestCommitSchema(t *testing.T) {
	r := resolved(t, "commit.v1")
	link := linked
	key := session.Key{Tenant: "acme", ID: "s1"}
	offer := &journal.Offer{Revision: "r1", Run: "r2", Workflow: "fix"}
	chunk := session.Result("c1", "edit_file", `{}`, true).WithOpaque("o").WithBody(blob.Ref{Digest: place.Head, Size: 3}).WithImages(picture).Of(session.Origin{
		Agent: "a", Workflow: "w", Node: "n", Run: "r1", Step: "1", Time: moment, Placement: place, Usage: usage,
	})
	submitted := journal.Submitted{Behind: "r0", Digest: "d", Limit: fullLimit()}
	submitted.Task.Run, submitted.Task.Workflow, submitted.Task.Input, submitted.Task.Tools, submitted.Task.Branch = "r1", "fix", "1.5", []string{"t"}, fullBranch()
	submitted.Task.After, submitted.Task.Priority, submitted.Task.Class = []journal.Predecessor{{Any: true, Run: "r0", Session: "s0"}}, -1, run.ClassBatch
	submitted.Task.Budget, submitted.Task.Workspace, submitted.Task.Deadline = run.Budget{Tokens: 1, Time: 5, Steps: 1, MicroUSD: 1}, place.Head, 5
	fanOut := journal.FanOut{
		Ancestors: []journal.Ancestor{{Path: "1", Run: "r0", Session: "s0"}}, Base: link, Branches: []journal.FanOutBranch{{Input: "{}", Name: "a", Revision: "r", Session: "s2", Workflow: "w"}},
		Budget: run.Budget{Tokens: 1, Time: 5, Steps: 1, MicroUSD: 1}, Deadline: 1, Path: "2", Revision: "r", Root: "s0", Run: "r1", WarmFirst: true, Within: []string{"w"}, Workflow: "w",
	}
	payloads := []struct {
		kind string
		data any
	}{
		{journal.KindWriter, journal.WriterOpened{Durability: "lazy", Edition: 1, Epoch: 1, Incarnation: "n"}},
		{journal.KindSubmitted, submitted},
		{journal.KindAwaited, journal.Awaited{By: "r2", Ended: &journal.RunEnd{Code: "error", Run: "r1", Session: "s1", State: run.Failed}, Run: "r1", Session: "s2"}},
		{journal.KindGranted, journal.Granted{Revision: "r", Run: "r1", Workflow: "w"}},
		{journal.KindLimitRequested, journal.LimitRequested{KeyState: journal.KeyState{Due: 1, Open: 1}, Limit: *fullLimit(), NotBefore: 1, Priority: -1, Run: "r1", Session: "s1", Workflow: "w"}},
		{journal.KindLimitDecided, journal.LimitDecided{KeyState: journal.KeyState{Due: 1, Open: 1}, Rejected: "r", Run: "r1", Session: "s1"}},
		{journal.KindLimitReleased, journal.LimitReleased{KeyState: journal.KeyState{Due: 1, Open: 1}, Run: "r1", Session: "s1"}},
		{journal.KindLimitSet, journal.LimitSet{KeyState: journal.KeyState{Due: 1, Open: 1}, By: "b", Limit: *fullLimit(), Says: "c"}},
		{journal.KindLimitBlocked, journal.LimitBlocked{KeyState: journal.KeyState{Due: 1, Open: 1}, Path: "1.quota.0", Quota: 1, Run: "r1", Session: "s1", Until: 1}},
		{journal.KindKeyClosed, journal.KeyClosed{By: "b"}},
		{journal.KindEventPublished, journal.EventPublished{KeyState: journal.KeyState{Due: 1, Open: 1}, Event: fullEvent()}},
		{journal.KindEventAwaited, journal.EventAwaited{KeyState: journal.KeyState{Due: 1, Open: 1}, For: []journal.Wait{{After: 1, Due: 1, Kind: run.WaitEvent, Log: "s1", Path: "1", Since: 1}}, N: 1, Run: "r1", Session: "s1"}},
		{journal.KindEventDelivered, journal.EventDelivered{KeyState: journal.KeyState{Due: 1, Open: 1}, Event: fullEvent(), To: []journal.EventReceiver{{Path: "1", Run: "r1", Session: "s1"}}}},
		{journal.KindEventReleased, journal.EventReleased{KeyState: journal.KeyState{Due: 1, Open: 1}, N: 1, Run: "r1", Session: "s1"}},
		{journal.KindClaimed, journal.Claimed{Attempt: 1, Epoch: 1, Home: key, Incarnation: "n", Revision: "r", Run: "r1", Workflow: "w"}},
		{journal.KindReleased, journal.Released{Attempt: 1, Lost: usage, Next: offer, Reason: "r", Revision: "r", Run: "r1", Step: "3", Workflow: "w"}},
		{journal.KindReview, journal.Review{Attempt: 1, Call: "c", Code: "needs_review", Expires: 1, Name: "n", Path: "1", Reason: "r", Revision: "v1", Run: "r1"}},
		{journal.KindResolved, journal.Resolved{By: "b", Says: "c", Decision: run.Happened, ID: "i", Path: "1", Reason: "r", Revision: "r", Run: "r1", Value: "1", Workflow: "w"}},
		{journal.KindCancel, journal.CancelRequested{By: "b", Says: "c", Close: session.ClosedCancelled, ID: "i", Reason: "r", Run: "r1", Settle: "s1"}},
		{journal.KindWarning, journal.Warning{Run: "r1", Text: "t"}},
		{journal.KindEnded, journal.Ended{
			Awaits: []session.ID{"s1"}, AwaitedBy: []journal.Ancestor{{Run: "r2", Session: "s2"}},
			Attempt: 1, Branches: []session.ID{"s3"}, Children: []session.ID{"s2"}, Code: "error", Error: "x", Head: place.Head, Limit: &journal.LimitPlace{Log: "s2", Run: "r1"}, Lost: usage, Next: offer, Output: "o",
			Parent: &journal.Ancestor{Path: "2.gather", Run: "r0", Session: "s0"}, Result: &link, Run: "r1", Settle: "s1", State: run.Succeeded, Steps: 5, Usage: usage, Version: 4, Workflow: "w",
		}},
		{journal.KindSettled, fullSettled()},
		{journal.KindRunWaiting, journal.RunWaiting{Left: []session.ID{"s2"}, Any: true, Attempt: 1, For: []journal.Wait{{
			Since: 1, After: 1, Key: "k", Log: "s1",
			Branches: []session.ID{"s2"}, Detail: "d", Due: 1, Edits: true, Kind: run.WaitApproval, Name: "n", Need: 1, Path: "3", Schema: "{}", Title: "t",
		}}, Revision: "r", Run: "r1"}},
		{journal.KindSignalReceived, *fullReceived()},
		{journal.KindSignalReceived, journal.SignalReceived{By: "b", Says: "c", ID: "i", Kind: journal.Message}},
		{journal.KindFanOut, fanOut},
		{journal.KindBranchesReleased, fanOut},
		{journal.KindCacheWarmed, journal.CacheWarmed{Parent: journal.Ancestor{Path: "2.gather", Run: "r0", Session: "s0"}, Run: "r1"}},
		{journal.KindBranchOutcomes, journal.BranchOutcomes{Branches: []run.BranchOutcome{{Reason: "r", Session: "s2", State: session.ClosedMerged}}, Run: "r1"}},
		{journal.KindStepStarted, journal.StepStarted{Attempt: 1, Call: "c", Expires: 1, Input: "i", Name: "n", Path: "1", Run: "r1"}},
		{journal.KindStepCompleted, fullDone(journal.StepTool)},
		{journal.KindLate, fullDone(journal.StepTool)},
		{journal.KindStepCompleted, fullDone(journal.StepGather)},
		{journal.KindQuarantined, journal.Quarantined{By: "b", Says: "c", Next: offer, Reason: "r", Released: true}},
		{journal.KindRebudgeted, journal.Rebudgeted{Budget: run.Budget{Tokens: 1, Time: 5, Steps: 1, MicroUSD: 1}, By: "b", Says: "c", ID: "i", Reason: "r", Run: "r1"}},
	}
	events := []session.Event{
		session.OpenedEvent(session.Opening{Kind: session.OpenFork, Name: "n", Parents: []session.Link{link}, Run: "r1", Step: "1"}),
		session.ChunkEvent(chunk),
		session.ChunkEvent(session.AssistantText("x", session.ToolCall{ID: "1", Name: "n", Args: "{"})),
		session.PlacedEvent(place),
		session.JoinedEvent(session.Join{Policy: session.JoinAdopt, Parents: []session.Part{{From: 1, Link: link, To: 2}}, Placement: place, Reason: "r", Usage: usage}),
		commitlog.RejectedEvent(commitlog.Rejection{Branch: link, Reason: "r", State: session.ClosedRejected}),
		session.ClosedEvent(session.Closing{By: key, Reason: "r", State: session.ClosedRejected}),
		{Kind: session.KindChunk, Schema: 1, Blob: blob.Ref{Digest: place.Head, Size: 40000}},
		{Kind: "vendor.note", Schema: 3, Data: `{"any":"thing"}`},
	}
	for _, p := range payloads {
		e := must.Get(journal.NewEvent(p.kind, p.data))(t)
		events = append(events, e)
	}
	s := schemaOf(t, "commit.v1")
	compareEvents(t, s, payloads)
	for _, e := range events {
		e.Time, e.Batch = moment, "r1/1"
		raw := must.Get(commitlog.Encode(commitlog.Commit{Key: key, Root: "s1", Seq: 1, Epoch: 1, Events: []session.Event{e}}))(t)
		if err := validate(r, raw); err != nil {
			t.Errorf("the schema refuses %s:\n%v", raw, err)
		}
		if e.Data == "" || e.Kind == "vendor.note" {
			continue
		}
		broken := strings.Replace(string(raw), `"data":{`, `"data":{"surplus":1,`, 1)
		if validate(r, []byte(broken)) == nil {
			t.Errorf("%s: the schema takes a field that there is not", e.Kind)
		}
	}
}

func fullEvent() journal.Published {
	return journal.Published{At: 1, By: "b", ID: "i", Key: "k", Name: "n", Says: "s", Seq: 1, Value: "1"}
}

func fullLimit() *journal.Limit {
	return &journal.Limit{Concurrency: 1, Holder: "r0", Key: []string{"acme", ""}, Log: "s2", Per: 1000, Rate: 1, Reject: true}
}

func compareEvents(t *testing.T, s *jsonschema.Schema, payloads []struct {
	kind string
	data any
},
) {
	t.Helper()
	for _, p := range payloads {
		def := s.Defs[p.kind]
		if def == nil {
			t.Errorf("the schema has no definition of %s", p.kind)
			continue
		}
		typ := reflect.TypeOf(p.data)
		fields := slices.DeleteFunc(reflect.VisibleFields(typ), func(f reflect.StructField) bool { return f.Anonymous })
		for _, field := range fields {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if def.Properties[name] == nil {
				t.Errorf("%s: the schema has no field %s", p.kind, name)
			}
			if strings.Contains(options, "omit") == slices.Contains(def.Required, name) {
				t.Errorf("%s: field %s is optional in one and required in the other", p.kind, name)
			}
		}
		if n := len(fields); len(def.Properties) != n {
			t.Errorf("%s: the schema has %d fields, the type %d", p.kind, len(def.Properties), n)
		}
	}
}

func TestSchemaOfUnknown(t *testing.T) {
	if _, err := messages.SchemaOf("nothing.v1"); err == nil || !strings.Contains(err.Error(), "task.v1") {
		t.Errorf("got %v, want an error that lists the schemas", err)
	}
}

// TestRecordsSchema: a stored message has the fields of a record, those that all
// records of a commit share beside them.
func TestRecordsSchema(t *testing.T) {
	s, one := schemaOf(t, "records.v1"), schemaOf(t, "record.v1")
	inner := s.Defs["record"]
	for name := range one.Properties {
		outside, inside := s.Properties[name] != nil, inner.Properties[name] != nil
		if outside == inside && name != "epoch" {
			t.Errorf("%s: beside the records %v, in them %v", name, outside, inside)
		}
		if slices.Contains(one.Required, name) && !slices.Contains(s.Required, name) && !slices.Contains(inner.Required, name) {
			t.Errorf("%s is required of a record, and not here", name)
		}
	}
	if extra := len(s.Properties) + len(inner.Properties) - len(one.Properties) - len([]string{"records", "epoch"}); extra != 0 {
		t.Errorf("%d fields that a record does not have", extra)
	}
	full := fullRecord()
	placed := full
	placed.K, placed.Kind, placed.Epoch = full.K+1, messages.KindPlaced, full.Epoch+1
	data := must.Get(lineage.EncodeStored([]messages.Record{full, placed}))(t)
	takes(t, s, resolved(t, "records.v1"), data)
}

// fullSettled has a value in each field.
func fullSettled() journal.Settled {
	spent := journal.Spending{Lost: session.Usage{Input: 1}, Steps: 2, Usage: session.Usage{Calls: 1, Input: 3, Output: 4}}
	return journal.Settled{
		N: 1, Parent: &journal.Ancestor{Path: "2.gather", Run: "r0", Session: "s0"}, Run: "r1", Told: spent, Total: spent,
		Part: journal.Part{Counted: spent, From: "s2", N: 2, Spent: spent},
	}
}
