package lineage_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestDeriveDemo(t *testing.T) {
	var out bytes.Buffer
	for _, r := range playDemo(t).records() {
		raw, err := lineage.EncodeRecord(&r)
		must.Do(t, err)
		back, err := lineage.Decode(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if again, err := lineage.EncodeRecord(&back); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("decoded and encoded again:\n%s\nwant\n%s (%v)", again, raw, err)
		}
		if sorted := sortKeys(t, raw); sorted != string(raw) {
			t.Errorf("keys are not sorted:\n%s\nwant\n%s", raw, sorted)
		}
		out.Write(raw)
		out.WriteByte('\n')
	}
	golden(t, "demo.records.jsonl", out.Bytes())
}

// sortKeys sorts the keys of an object by encoding it as a map.
func sortKeys(t *testing.T, raw []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	must.Do(t, d.Decode(&v))
	text := must.Get(canonical.Marshal(v))(t)
	return text
}

// entry returns a commit of the given events, as a log would yield it.
func entry(t *testing.T, seq uint64, events ...session.Event) commitlog.Entry {
	t.Helper()
	c := commitlog.Commit{Key: session.Key{Tenant: "acme", ID: "s1"}, Root: "s1", Seq: seq, Epoch: 1}
	for _, e := range events {
		e.Time = time.UnixMilli(1700000000000)
		c.Events = append(c.Events, e)
	}
	raw := must.Get(commitlog.Encode(c))(t)
	return commitlog.Entry{Commit: c, At: commitlog.Position{Seq: seq, Token: seq, Hash: commitlog.HashOf(raw)}, Raw: string(raw)}
}

func runEvent(t *testing.T, kind string, payload any) session.Event {
	t.Helper()
	e := must.Get(journal.NewEvent(kind, payload))(t)
	return e
}

// TestDeriveSummaries shows the summary of each kind of event.
func TestDeriveSummaries(t *testing.T) {
	link := session.Link{Ref: session.Ref{Key: session.Key{Tenant: "acme", ID: "s2"}, Version: 4}, Seq: 3, Hash: commitlog.HashOf([]byte("x"))}
	ref := session.Key{Tenant: "acme", ID: "s1"}
	done := func(d journal.StepCompleted) session.Event {
		d.Run, d.Attempt, d.Path = "r1", 1, "1"
		return runEvent(t, journal.KindStepCompleted, d)
	}
	suspended := func(w ...journal.Wait) session.Event {
		return runEvent(t, journal.KindRunWaiting, journal.RunWaiting{Attempt: 1, For: w, Run: "r1"})
	}
	received := func(v journal.SignalReceived) session.Event {
		v.Run, v.N = "r1", 1
		return runEvent(t, journal.KindSignalReceived, v)
	}
	branch := journal.Submitted{}
	branch.Task.Run, branch.Task.Workflow = "s1", "fix"
	branch.Task.Branch = &journal.Branch{Ancestors: []journal.Ancestor{{Run: "r1", Session: "s0"}}, Base: link, Name: "fast", Path: "2.fast", Root: "s0"}
	queued := journal.Submitted{Behind: "r0"}
	queued.Task.Run, queued.Task.Workflow = "r1", "fix"
	tests := []struct {
		name    string
		event   session.Event
		kind    messages.Kind
		summary string
	}{
		{"leaf", session.OpenedEvent(session.Opening{Kind: session.OpenLeaf}), messages.KindOpened, "session opens"},
		{"fork", session.OpenedEvent(session.Opening{Kind: session.OpenFork, Name: "fast", Parents: []session.Link{link}}), messages.KindForked, "fork of s2 at 4 (fast)"},
		{"implicit", session.OpenedEvent(session.Opening{Kind: session.OpenImplicit, Parents: []session.Link{link}}), messages.KindForked, "implicit fork of s2 at 4"},
		{"detach", session.OpenedEvent(session.Opening{Kind: session.OpenDetach, Parents: []session.Link{link}}), messages.KindDetached, "detached from s2 at 4"},
		{"concatenate", session.OpenedEvent(session.Opening{Kind: session.OpenMerge, Parents: []session.Link{link, link}}), messages.KindConcatenated, "concatenates s2 at 4 and s2 at 4"},
		{"compress", session.OpenedEvent(session.Opening{Kind: session.OpenCompress, Parents: []session.Link{link}}), messages.KindOpened, "summary of s2 at 4"},
		{"call", session.OpenedEvent(session.Opening{Kind: session.OpenCall, Name: "grep-0", Parents: []session.Link{link}}), messages.KindOpened, "called by s2 at 4 (grep-0)"},
		{"import", session.OpenedEvent(session.Opening{Kind: session.OpenImport, Name: "old.jsonl"}), messages.KindImported, `imports "old.jsonl"`},
		{"user", session.ChunkEvent(session.UserText("please\n fix  it")), messages.KindChunk, `user asks "please fix it"`},
		{"workspace", session.ChunkEvent(session.UserText("The files say\n- [\"Use zip.\",\"AGENTS.md\"]\nSkills of the workspace, by name:\n- [\"a\",\"b\",\"c\"]\n- [\"d\",\"e\",\"f\"]\nLeft out:\n- [\"x\"]").Of(session.Origin{Agent: journal.ByWorkspace})), messages.KindChunk, "workspace says AGENTS.md, 2 skills"},
		{"hook", session.ChunkEvent(session.UserText("You are not done").Of(session.Origin{Agent: journal.ByHook})), messages.KindChunk, `hook says "You are not done"`},
		{"summary", session.ChunkEvent(session.UserText("It is half done").Of(session.Origin{Agent: "coder"})), messages.KindChunk, `coder sums up "It is half done"`},
		{"system", session.ChunkEvent(session.SystemText("be terse")), messages.KindChunk, `system instructs "be terse"`},
		{"assistant", session.ChunkEvent(session.AssistantText("done").Of(session.Origin{Agent: "coder"})), messages.KindChunk, `coder says "done"`},
		{"calls", session.ChunkEvent(session.AssistantText("", call("1", "grep"), call("2", "grep"), call("3", "cat")).Of(session.Origin{Agent: "coder"})), messages.KindChunk, "coder calls grep x2, cat"},
		{"result", session.ChunkEvent(session.Result("1", "grep", `{"secret":"text"}`, false)), messages.KindChunk, "grep answers"},
		{"failed result", session.ChunkEvent(session.Result("1", "grep", `{}`, true)), messages.KindChunk, "grep answers with an error"},
		{"placed", session.PlacedEvent(session.Placement{Backend: "local", Isolation: "landlock", Spec: "/home/me/key", Head: blob.Sum([]byte("x"))}), messages.KindPlaced, "goes to local (landlock), files at 2d711642b726"},
		{"adopted", session.JoinedEvent(session.Join{Policy: session.JoinAdopt, Parents: []session.Part{{Link: link}}, Reason: "tests pass"}), messages.KindAdopted, `adopts s2 "tests pass"`},
		{"merged", session.JoinedEvent(session.Join{Policy: session.JoinSinceAncestor, Parents: []session.Part{{Link: link}, {Link: link}}}), messages.KindMerged, "merges s2, s2"},
		{"rejected", commitlog.RejectedEvent(commitlog.Rejection{Branch: link, Reason: "breaks empty input", State: session.ClosedRejected}), messages.KindRejected, `REJECTED s2 "breaks empty input"`},
		{"closed", session.ClosedEvent(session.Closing{By: ref, Reason: "breaks \"empty\" input", State: session.ClosedRejected}), messages.KindClosed, `REJECTED "breaks 'empty' input"`},
		{"archived", commitlog.ArchivedEvent(commitlog.Archival{By: "ana", File: "default-s1.json"}), messages.KindArchived, "session archived as default-s1.json"},
		{"restored", commitlog.RestoredEvent(commitlog.Restoration{By: "ana", Reason: "needed"}), messages.KindRestored, "session goes on, by ana: needed"},

		{"tool", done(journal.StepCompleted{Kind: journal.StepTool, Name: "edit_file", Summary: "edits slug.sh"}), messages.KindTool, "edit_file edits slug.sh"},
		{"tool without summary", done(journal.StepCompleted{Kind: journal.StepTool, Name: "edit_file", HeadAfter: blob.Sum([]byte("y"))}), messages.KindTool, "edit_file changes files"},
		{"tool error", done(journal.StepCompleted{Kind: journal.StepTool, Name: "grep", Code: "timeout", Error: "after 5 s"}), messages.KindTool, `grep fails: timeout "after 5 s"`},
		{"model error", done(journal.StepCompleted{Kind: journal.StepModel, Name: "coder", Code: "rate_limit", Error: "429"}), messages.KindModel, `coder fails: rate_limit "429"`},
		{"do", done(journal.StepCompleted{Kind: journal.StepDo, Name: "deploy"}), messages.KindDid, "workflow did deploy"},
		{"branched", done(journal.StepCompleted{Kind: journal.StepFork, Links: []session.Link{link}, Source: "fix.go:41"}), messages.KindBranched, "branches s2 (implicit, fix.go:41)"},
		{"recalled", done(journal.StepCompleted{Kind: journal.StepRecall, Name: "local", Summary: "recalls 2 notes"}), messages.KindRecalled, "memory recalls 2 notes"},
		{"remembered", done(journal.StepCompleted{Kind: journal.StepRemember, Name: "local"}), messages.KindRemembered, "memory remembers"},
		{"compressed", done(journal.StepCompleted{Kind: journal.StepCompress, Name: "scribe", Summary: "compresses 9 chunks into one"}), messages.KindCompressed, "scribe compresses 9 chunks into one"},
		{"selected among", done(journal.StepCompleted{
			Kind: journal.StepSelection, Name: "auto", Summary: "selects review", Value: `{"answer":"1, it has to be read","candidates":["write","review"],"choice":1}`,
		}), messages.KindSelected, "auto selects review"},
		{"selected", done(journal.StepCompleted{Kind: journal.StepSelection, Name: "router", Summary: "selects review"}), messages.KindSelected, "router selects review"},
		{"fanned out", done(journal.StepCompleted{Kind: journal.StepFanOut, Links: []session.Link{link, link}}), messages.KindFannedOut, "fans out into 2 branches: s2, s2"},
		{"spread", runEvent(t, journal.KindBranchesReleased, journal.FanOut{Run: "r1", Path: "2", WarmFirst: true, Branches: []journal.FanOutBranch{
			{Name: "a", Session: "s2"}, {Name: "b", Session: "s3"}, {Name: "c", Session: "s4"},
		}}), messages.KindSpread, "spreads to 2 more branches"},
		{"fan-out event", runEvent(t, journal.KindFanOut, journal.FanOut{Run: "r1", Path: "2", Branches: []journal.FanOutBranch{
			{Name: "a", Session: "s2"}, {Name: "b", Session: "s3"}, {Name: "c", Session: "s4"},
		}}), messages.KindFannedOut, "fans out into 3 branches: a, b, c"},
		{
			"gathered", done(journal.StepCompleted{Kind: journal.StepGather, Value: `[{"name":"a","state":"succeeded"},{"name":"b","state":"succeeded"},{"name":"c","state":"cancelled"}]`}),
			messages.KindGathered, "2 of 3 branches joined; c cancelled",
		},
		{"gathered without outcomes", done(journal.StepCompleted{Kind: journal.StepGather, Links: []session.Link{link}}), messages.KindGathered, "joins 1 branch"},
		{"started", done(journal.StepCompleted{Kind: journal.StepStart, Name: "pay", Summary: "starts run r2 of pay"}), messages.KindStarted, "workflow starts run r2 of pay"},
		{"got an outcome", done(journal.StepCompleted{Kind: journal.StepResult, Name: "r2"}), messages.KindAwaited, "workflow waited for run r2"},
		{"outcome", runEvent(t, journal.KindSignalReceived, journal.SignalReceived{Kind: journal.Outcome, Run: "r1", Path: "2", Ended: &journal.RunEnd{Run: "r2", State: run.Failed, Error: "no money"}}), messages.KindReported, "run r2 failed: no money"},
		{"awaited", done(journal.StepCompleted{Kind: journal.StepAwait, Name: "approval"}), messages.KindAwaited, "workflow waited for approval"},
		{"intent", runEvent(t, journal.KindStepStarted, journal.StepStarted{Run: "r1", Path: "1", Name: "deploy"}), messages.KindIntent, "deploy is about to start, once"},
		{"late", runEvent(t, journal.KindLate, journal.StepCompleted{Run: "r1", Path: "1", Attempt: 2, Kind: journal.StepTool, Name: "deploy"}), messages.KindLate, "deploy answered attempt 2 too late: kept as evidence"},

		{
			"waits for approval", suspended(journal.Wait{Kind: run.WaitApproval, Path: "3", Title: "Publish?", Due: 1700604800000}), messages.KindWaiting,
			"waits for approval: Publish? (until 2023-11-21 22:13 UTC)",
		},
		{"waits for a call", suspended(journal.Wait{Kind: run.WaitApproval, Path: "3.0", Name: "deploy"}), messages.KindWaiting, "waits for approval: deploy"},
		{"waits for a response", suspended(journal.Wait{Kind: run.WaitResponse, Path: "3", Title: "Which region?"}), messages.KindWaiting, "waits for response: Which region?"},
		{"waits for a message", suspended(journal.Wait{Kind: run.WaitMessage, Path: "3"}), messages.KindWaiting, "waits for a message"},
		{"waits until", suspended(journal.Wait{Kind: run.WaitTimer, Path: "3", Due: 1700604800000}), messages.KindWaiting, "waits until 2023-11-21 22:13 UTC"},
		{"waits for branches", suspended(journal.Wait{Kind: run.WaitBranches, Path: "3", Branches: []session.ID{"a", "b", "c"}, Need: 2}), messages.KindWaiting, "waits for 2 of 3 branches"},
		{
			"waits for one of two", runEvent(t, journal.KindRunWaiting, journal.RunWaiting{Any: true, Attempt: 1, Run: "r1", For: []journal.Wait{
				{Kind: run.WaitApproval, Path: "3.on.0", Title: "Deploy?"}, {Kind: run.WaitTimer, Path: "3.on.1", Due: 1700604800000},
			}}), messages.KindWaiting,
			"waits for approval: Deploy? or until 2023-11-21 22:13 UTC",
		},
		{
			"waits for two", suspended(journal.Wait{Kind: run.WaitApproval, Path: "3.0", Title: "Deploy?"}, journal.Wait{Kind: run.WaitApproval, Path: "3.1"}), messages.KindWaiting,
			"waits for approval: Deploy? and 1 more",
		},
		{"approved", received(journal.SignalReceived{Kind: journal.Approve, Path: "3", By: "ana", Reason: "looks good"}), messages.KindAnswered, "approved by ana: looks good"},
		{"approved with an edit", received(journal.SignalReceived{Kind: journal.Approve, Path: "3", By: "ana", Value: `{"n":2}`}), messages.KindAnswered, "approved by ana, edited"},
		{"approved with an edit and why", received(journal.SignalReceived{Kind: journal.Approve, Path: "3", By: "ana", Reason: "too many", Value: `{"n":2}`}), messages.KindAnswered, "approved by ana, edited: too many"},
		{"rejected by", received(journal.SignalReceived{Kind: journal.Refuse, Path: "3", Reason: "too risky"}), messages.KindAnswered, "rejected by somebody: too risky"},
		{"responded", received(journal.SignalReceived{Kind: journal.Respond, Path: "3", By: "ana", Value: `"eu-1"`}), messages.KindAnswered, `answered by ana: "eu-1"`},
		{"message", received(journal.SignalReceived{Kind: journal.Message, By: "ana", Text: "use tabs"}), messages.KindMessage, `ana says "use tabs"`},
		{"interrupt", received(journal.SignalReceived{Kind: journal.Message, Interrupt: true, Text: "stop"}), messages.KindMessage, `user interrupts: "stop"`},
		{"due", received(journal.SignalReceived{Kind: journal.Timer, Path: "3"}), messages.KindDue, "the time of step 3 has come"},
		{
			"reported", received(journal.SignalReceived{Kind: journal.Report, Path: "2.gather", Branch: &journal.BranchEnd{Link: link, State: run.TimedOut, Error: "too slow"}}), messages.KindReported,
			"branch s2 timed out: too slow",
		},
		{"disposed", runEvent(t, journal.KindBranchOutcomes, journal.BranchOutcomes{Run: "r1", Branches: []run.BranchOutcome{
			{Session: "s2", State: session.ClosedCancelled, Reason: "2 are enough"}, {Session: "s3", State: session.ClosedCancelled, Reason: "2 are enough"},
		}}), messages.KindDisposed, `CANCELLED s2, s3 "2 are enough"`},
		{"disposed in two ways", runEvent(t, journal.KindBranchOutcomes, journal.BranchOutcomes{Run: "r1", Branches: []run.BranchOutcome{
			{Session: "s2", State: session.ClosedMerged}, {Session: "s3", State: session.ClosedFailed, Reason: "no luck"},
		}}), messages.KindDisposed, "MERGED s2; FAILED s3"},
		{"branch", runEvent(t, journal.KindSubmitted, branch), messages.KindSubmitted, "branch fast of run r1 submitted"},
		{
			"another revision", runEvent(t, journal.KindReleased, journal.Released{Run: "r1", Workflow: "fix", Revision: "v1", Step: "4", Reason: "x"}), messages.KindReleased,
			`run parks for a node with revision "v1": step 4 is another one here`,
		},
		{"quarantined", runEvent(t, journal.KindQuarantined, journal.Quarantined{By: "ana", Reason: "leaks the key"}), messages.KindQuarantined, "ana quarantines the session: leaks the key"},
		{"readmitted", runEvent(t, journal.KindQuarantined, journal.Quarantined{Released: true, Reason: "it was a fake"}), messages.KindReadmitted, "somebody lets the session go on: it was a fake"},
		{
			"rebudgeted", runEvent(t, journal.KindRebudgeted, journal.Rebudgeted{By: "ana", Run: "r1", Budget: run.Budget{Tokens: 50_000, Steps: 20, Time: time.Hour}}), messages.KindRebudgeted,
			"ana sets the budget: 50,000 tokens, 20 steps, 1h0m0s",
		},
		{"unlimited", runEvent(t, journal.KindRebudgeted, journal.Rebudgeted{Run: "r1", Reason: "it matters"}), messages.KindRebudgeted, `somebody sets the budget: no limit "it matters"`},
		{"queued", runEvent(t, journal.KindSubmitted, queued), messages.KindQueued, "run r1 of fix waits behind r0"},
		{"claimed", runEvent(t, journal.KindClaimed, journal.Claimed{Attempt: 1, Run: "r1", Home: ref}), messages.KindClaimed, "run starts"},
		{"elsewhere", runEvent(t, journal.KindClaimed, journal.Claimed{Attempt: 2, Run: "r1", Home: session.Key{Tenant: ref.Tenant, ID: "home"}}), messages.KindClaimed, "run works on this session"},
		{"scratch", commitlog.RejectedEvent(commitlog.Rejection{Branch: link, Reason: journal.OnlyJudged, State: session.ClosedRejected}), messages.KindRejected, `SCRATCH s2 "it only judged"`},
		{"resumed", runEvent(t, journal.KindClaimed, journal.Claimed{Attempt: 3, Run: "r1", Home: ref}), messages.KindClaimed, "run goes on, attempt 3"},
		{"released", runEvent(t, journal.KindReleased, journal.Released{Run: "r1", Reason: "shutdown", Workflow: "fix"}), messages.KindReleased, "run parks: shutdown"},
		{"review", runEvent(t, journal.KindReview, journal.Review{Run: "r1", Reason: "deploy was cut off", Code: run.CodeReview}), messages.KindReview, "run needs review: deploy was cut off"},
		{"resolved", runEvent(t, journal.KindResolved, journal.Resolved{Run: "r1", By: "ann", Decision: run.Again, Reason: "not in the target"}), messages.KindResolved, `ann decides: again "not in the target"`},
		{"cancel", runEvent(t, journal.KindCancel, journal.CancelRequested{Run: "r1", Reason: "too dear"}), messages.KindCancel, `run is asked to stop: "too dear"`},
		{"cancel by a user", runEvent(t, journal.KindCancel, journal.CancelRequested{Run: "r1", By: "ana", Says: "ann", ID: "c1", Reason: "too dear"}), messages.KindCancel, `run is asked to stop by ana (says to be ann): "too dear"`},
		{"cancel by a run", runEvent(t, journal.KindCancel, journal.CancelRequested{Run: "r1", By: "r0", Reason: "too slow"}), messages.KindCancel, `run is asked to stop: "too slow"`},
		{"warning", runEvent(t, journal.KindWarning, journal.Warning{Run: "r1", Text: "did you shadow s?"}), messages.KindWarning, "run warns: did you shadow s?"},
		{"status", runEvent(t, journal.KindStatus, journal.Status{N: 1, Run: "r1", Value: `{"done":3}`}), messages.KindStatus, `run is at "{'done':3}"`},
		{"ended", runEvent(t, journal.KindEnded, journal.Ended{Run: "r1", State: run.Succeeded, Workflow: "fix", Usage: session.Usage{Calls: 6, Input: 4000, Output: 120}}), messages.KindEnded, "run succeeded, 6 model calls, 4,120 tokens"},
		{"settled", runEvent(t, journal.KindSettled, journal.Settled{N: 1, Run: "r1", Part: journal.Part{From: "s2", N: 1, Spent: journal.Spending{Usage: session.Usage{Input: 22}}}, Total: journal.Spending{Usage: session.Usage{Input: 1022}}}), messages.KindSettled, "session s2 reports 22 tokens of the run, which used 1,022"},
		{"ended elsewhere", runEvent(t, journal.KindEnded, journal.Ended{Run: "r1", State: run.Cancelled}), messages.KindReleased, "run lets the session go: cancelled"},
		{"failed", runEvent(t, journal.KindEnded, journal.Ended{Run: "r1", State: run.TimedOut, Workflow: "fix", Code: run.CodeDeadline, Error: "deadline exceeded"}), messages.KindEnded, "run timed out: deadline exceeded"},
	}
	if rs, err := lineage.Derive(entry(t, 2, runEvent(t, journal.KindSignalReceived, journal.SignalReceived{ID: "m1", Kind: journal.Message}))); err != nil || len(rs) != 0 {
		t.Errorf("a message that no run got has %d records besides that of its chunk, %v", len(rs), err)
	}
	seen := map[messages.Kind]bool{messages.KindSubmitted: true} // in TestDeriveDemo
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rs, err := lineage.Derive(entry(t, 2, tt.event))
			if err != nil || len(rs) != 1 {
				t.Fatalf("Derive: %d records, %v", len(rs), err)
			}
			if rs[0].Kind != tt.kind || rs[0].Summary != tt.summary {
				t.Errorf("got %s %q, want %s %q", rs[0].Kind, rs[0].Summary, tt.kind, tt.summary)
			}
			raw, err := lineage.EncodeRecord(&rs[0])
			must.Do(t, err)
			if _, err := lineage.Decode(raw); err != nil {
				t.Error(err)
			}
			if strings.Contains(string(raw), "secret") || strings.Contains(string(raw), "/home/me") {
				t.Errorf("the record carries what stays in the log: %s", raw)
			}
		})
		seen[tt.kind] = true
	}
	for _, k := range messages.Kinds() {
		if !seen[k] {
			t.Errorf("no event was shown that becomes %s", k)
		}
		if k.Doc() == "" {
			t.Errorf("kind %s has no documentation", k)
		}
	}
}

func TestDeriveUnknownGoesOn(t *testing.T) {
	future := session.Event{Kind: "session.telepathy", Schema: 1, Data: `{}`}
	for _, e := range []session.Event{
		future,
		{Kind: "run.teleported", Schema: 1, Data: `{}`},
		{Kind: "step.imagined", Schema: 1, Data: `{}`},
		{Kind: "writer.retired", Schema: 1, Data: `{}`},
		{Kind: session.KindChunk, Schema: 2, Data: `{"kind":"user","text":"x"}`},
	} {
		rs, err := lineage.Derive(entry(t, 2, e, session.ChunkEvent(session.UserText("hello"))))
		if !errors.Is(err, session.ErrTooOld) {
			t.Errorf("%s schema %d: error %v, want ErrTooOld", e.Kind, e.Schema, err)
		}
		if len(rs) != 1 || rs[0].Kind != messages.KindChunk || rs[0].K != 1 {
			t.Errorf("%s: the event after it became %+v", e.Kind, rs)
		}
	}
	if rs, err := lineage.Derive(entry(t, 2, session.Event{Kind: "vendor.note", Schema: 7, Data: `{}`})); err != nil || len(rs) != 0 {
		t.Errorf("another namespace: %d records, %v; want none", len(rs), err)
	}
	spilled := session.Event{Kind: session.KindChunk, Schema: 1, Blob: blob.Ref{Digest: blob.Sum([]byte("x")), Size: 1}}
	if _, err := lineage.Derive(entry(t, 2, spilled)); err == nil || !strings.Contains(err.Error(), "not loaded") {
		t.Errorf("spilled data that was not loaded: %v", err)
	}
}

// TestSummariesAreOneShortLine holds for any text, hostile or not.
func TestSummariesAreOneShortLine(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("long ", 400), strings.Repeat("x", 5000), "a\x1b[2Jb\rc\nd\te", "\u202egnirts desrever", strings.Repeat("語", 300),
		"\u2028line\u2029separators", "nul\x00", strings.Repeat("\u0301", 400), "",
	} {
		for _, e := range []session.Event{
			session.ChunkEvent(session.UserText(text)),
			commitlog.RejectedEvent(commitlog.Rejection{Reason: text, State: "rejected", Branch: session.Link{Ref: session.Ref{Key: session.Key{ID: "s2"}}}}),
			runEvent(t, journal.KindStepCompleted, journal.StepCompleted{Run: "r1", Path: "1", Kind: journal.StepTool, Name: "t", Summary: strings.ToValidUTF8(text, "")}),
			runEvent(t, journal.KindWarning, journal.Warning{Run: "r1", Text: text}),
			runEvent(t, journal.KindStatus, journal.Status{Run: "r1", Value: strings.ToValidUTF8(text, "")}),
		} {
			rs := must.Get(lineage.Derive(entry(t, 2, e)))(t)
			s := rs[0].Summary
			if n := utf8.RuneCountInString(s); n > lineage.MaxSummary {
				t.Errorf("%d characters: %q", n, s)
			}
			if n := utf8.RuneCountInString(rs[0].Reason); n > lineage.MaxReason {
				t.Errorf("reason of %d characters", n)
			}
			for _, r := range s {
				if r < 0x20 || r == 0x7f || r == 0x202e || r == 0x2028 || r == 0x2029 {
					t.Errorf("control character %U in %q", r, s)
				}
			}
		}
	}
}

func TestCredentialsAreMasked(t *testing.T) {
	for _, secret := range []string{
		"sk-abcdefghijklmnopqrstuvwx", "sk-proj-aaaabbbbccccddddeeee", "ghp_abcdefghijklmnopqrstuv", "github_pat_11ABCDEFG0abcdefghij",
		"AKIAIOSFODNN7EXAMPLE", "xoxb-1234567890-abcdef", "Bearer abcdefghijklmnop123", "password=hunter2hunter2", "api_key: 0123456789abcdef",
		"OPENAI_API_KEY=zzzzzzzzzzzz", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghij", "https://me:hunter2hunter@",
		"SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY", "-----BEGIN PRIVATE KEY----- MIIEvQIBADAN",
	} {
		for _, text := range []string{secret, "use " + secret + " please", strings.Repeat("x ", 40) + secret} {
			rs := must.Get(lineage.Derive(entry(t, 2, session.ChunkEvent(session.UserText(text)),
				session.ClosedEvent(session.Closing{State: "rejected", Reason: text}))))(t)
			for _, r := range rs {
				raw := must.Get(lineage.EncodeRecord(&r))(t)
				if core := secret[len(secret)-9:]; strings.Contains(string(raw), core) {
					t.Errorf("%q got into %s", core, raw)
				}
			}
		}
	}
	for _, plain := range []string{"3 tokens: fine", "a basic understanding of keys", "time 12:30", "s1:4 is good"} {
		rs, err := lineage.Derive(entry(t, 2, session.ChunkEvent(session.UserText(plain))))
		if err != nil || !strings.Contains(rs[0].Summary, plain) {
			t.Errorf("%q became %q (%v)", plain, rs[0].Summary, err)
		}
	}
}

func TestSubjects(t *testing.T) {
	r := messages.Record{Tenant: "acme", Root: "s1", Session: "s2", Kind: messages.KindForked}
	if got, want := lineage.StoredSubject([]messages.Record{r}), "rath.lineage.acme.s1.tree"; got != want {
		t.Errorf("StoredSubject() = %q, want %q", got, want)
	}
	quarantine := messages.Record{Tenant: "acme", Root: "s1", Session: "s2", Kind: messages.KindQuarantined}
	if got, want := lineage.StoredSubject([]messages.Record{r, quarantine}), "rath.lineage.acme.s1.quarantined.s2"; got != want {
		t.Errorf("StoredSubject() = %q, want %q", got, want)
	}
	if got, want := lineage.TailSubject(&r), "rath.tail.acme.s1.forked.s2"; got != want {
		t.Errorf("TailSubject() = %q, want %q", got, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := `{"commit":1,"epoch":1,"hash":"","k":0,"kind":"opened","partition":0,"root":"s1","schema":1,"session":"s1","summary":"","tenant":"acme","time":0}`
	must.Get(lineage.Decode([]byte(good)))(t)
	if r, err := lineage.Decode([]byte(strings.Replace(good, `"k":0`, `"k":0,"later":true`, 1))); err != nil || r.Session != "s1" {
		t.Errorf("a field of a later release: %v", err)
	}
	for from, to := range map[string]string{
		`"acme"`: `"a.b"`, `"commit":1`: `"commit":0`, `"opened"`: `"teleported"`, `"root":"s1"`: `"root":"*"`, `"schema":1`: `"schema":0`, `"k":0`: `"k":-1`,
	} {
		if _, err := lineage.Decode([]byte(strings.Replace(good, from, to, 1))); !errors.Is(err, lineage.ErrMalformed) {
			t.Errorf("with %s: %v, want ErrMalformed", to, err)
		}
	}
	if _, err := lineage.Decode([]byte(strings.Replace(good, `"schema":1`, `"schema":3`, 1))); !errors.Is(err, session.ErrTooOld) {
		t.Error("a later schema is not ErrTooOld")
	}
}

// TestStored stores the records of commits, and reads them back.
func TestStored(t *testing.T) {
	all := playDemo(t).records()
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && all[to].Session == all[from].Session && all[to].Commit == all[from].Commit {
			to++
		}
		records := all[from:to]
		from = to
		data, err := lineage.EncodeStored(records)
		must.Do(t, err)
		if sorted := sortKeys(t, data); sorted != string(data) {
			t.Errorf("keys are not sorted:\n%s\nwant\n%s", data, sorted)
		}
		back, err := lineage.DecodeStored(data)
		if diff := cmp.Diff(records, back); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", data, err, diff)
		}
	}
	r := messages.Record{Schema: 1, Tenant: "acme", Root: "s1", Session: "s1", Kind: messages.KindChunk, Commit: 1, Epoch: 1, Hash: "h"}
	placed, other := r, r
	placed.K, placed.Kind, placed.Epoch = 1, messages.KindPlaced, 7
	other.K, other.Commit = 1, 2
	data := must.Get(lineage.EncodeStored([]messages.Record{r, placed}))(t)
	if back, err := lineage.DecodeStored(data); err != nil || len(back) != 2 || back[0].Epoch != 1 || back[1].Epoch != 7 {
		t.Errorf("a lease with a higher epoch: %v, %v", back, err)
	}
	for name, bad := range map[string][]messages.Record{"none": nil, "too many": make([]messages.Record, lineage.MaxStored+1), "of two commits": {r, other}} {
		if data, err := lineage.EncodeStored(bad); err == nil {
			t.Errorf("%s: %s", name, data)
		}
	}
	for from, to := range map[string]string{`"k":1`: `"k":0`, `"commit":1`: `"commit":0`, `"acme"`: `"a.b"`, `"chunk"`: `"teleported"`} {
		if _, err := lineage.DecodeStored([]byte(strings.Replace(string(data), from, to, 1))); !errors.Is(err, lineage.ErrMalformed) {
			t.Errorf("with %s: %v, want ErrMalformed", to, err)
		}
	}
	if _, err := lineage.DecodeStored([]byte(`{"records":[],"schema":1}`)); !errors.Is(err, lineage.ErrMalformed) {
		t.Errorf("no records: %v, want ErrMalformed", err)
	}
	if _, err := lineage.DecodeStored([]byte(strings.Replace(string(data), `"schema":1`, `"schema":3`, 1))); !errors.Is(err, session.ErrTooOld) {
		t.Error("a later schema is not ErrTooOld")
	}
}

func FuzzDecodeStored(f *testing.F) {
	for _, r := range playDemo(f).records() {
		raw := must.Get(lineage.EncodeStored([]messages.Record{r}))(f)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		records, err := lineage.DecodeStored(raw)
		if err != nil {
			return
		}
		again, err := lineage.EncodeStored(records)
		if err != nil {
			return // not encodable as canonical JSON
		}
		back, err := lineage.DecodeStored(again)
		if diff := cmp.Diff(records, back); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", again, err, diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, r := range playDemo(f).records() {
		raw := must.Get(lineage.EncodeRecord(&r))(f)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := lineage.Decode(raw)
		if err != nil {
			return
		}
		g := lineage.NewGraph()
		if n := g.Add(r, r); n != 1 {
			t.Errorf("%d records", n)
		}
		if _, err := g.Tree(r.Key(), nil); err != nil {
			t.Error(err)
		}
		p, err := g.Picture(r.Key(), nil)
		must.Do(t, err)
		wellFormed(t, p.SVG())
	})
}

func BenchmarkDerive(b *testing.B) {
	entries := playDemo(b).entries()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		must.Get(lineage.Derive(entries[i%len(entries)]))(b)
		i++
	}
}

// TestSelectionIsTold checks that the record of a selection has its candidates.
func TestSelectionIsTold(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf("w%d", i)
	}
	value := must.Get(json.Marshal(map[string]any{"answer": "7, because", "candidates": many, "choice": 7}))(t)
	usage := session.Usage{Calls: 1, Input: 9, Output: 2}
	rs := must.Get(lineage.Derive(entry(t, 2, runEvent(t, journal.KindStepCompleted, journal.StepCompleted{
		Kind: journal.StepSelection, Name: "auto", Path: "1", Run: "r1", Value: string(value), Usage: usage, Model: "m", Summary: "selects w7",
	}))))(t)
	r := rs[0]
	if r.Reason != "7, because" || !slices.Equal(r.Candidates, many[:lineage.MaxCandidates]) || r.Usage != usage || r.Model != "m" {
		t.Errorf("%+v", r)
	}
}
