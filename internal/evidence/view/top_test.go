package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestStuckSaysWhatWhySays checks that the page and the answer of why have the same reason
// for a stuck run, and that a run that makes progress, or waits for a user, is not stuck.
func TestStuckSaysWhatWhySays(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	asks := func(d time.Duration, try int) []messages.LiveStep {
		return []messages.LiveStep{{Step: "2", Kind: "model", Name: "coder", Model: "m", Try: try, Doing: "asks", Began: ago(d), At: ago(d)}}
	}
	for name, c := range map[string]struct {
		live  messages.Live
		stuck bool
	}{
		"a model that hangs":        {messages.Live{State: run.Running, Steps: asks(2*time.Minute, 1)}, true},
		"a model that was asked":    {messages.Live{State: run.Running, Steps: asks(time.Second, 1)}, false},
		"a model that failed once":  {messages.Live{State: run.Running, Steps: asks(time.Second, 2)}, true},
		"a node that is silent":     {messages.Live{State: run.Running, Silent: true}, true},
		"no node offers it":         {messages.Live{State: run.Queued, Queue: &messages.LiveQueue{}}, true},
		"a full pool":               {messages.Live{State: run.Queued, Queue: &messages.LiveQueue{Pool: "default", Nodes: 2, Class: "interactive"}}, false},
		"a decision":                {messages.Live{State: run.NeedsReview, Review: &messages.Review{Reason: "it was cut off"}}, true},
		"a person":                  {messages.Live{State: run.Waiting, Waits: []messages.Wait{{Kind: run.WaitApproval}}}, false},
		"quarantine":                {messages.Live{State: run.Queued, Quarantine: "it is odd"}, true},
		"a workflow's own code":     {messages.Live{State: run.Running, Since: ago(time.Minute)}, true},
		"a run that has just begun": {messages.Live{State: run.Running, Since: ago(time.Second)}, false},
	} {
		c.live.At = now.UnixMilli()
		why := Stuck(&c.live)
		if (why != "") != c.stuck {
			t.Errorf("%s: %q", name, why)
		}
		var b bytes.Buffer
		WriteLive(term.New(&b, &term.Options{Env: func(key string) string { return map[string]string{"COLUMNS": "500"}[key] }}), &LiveRun{Live: &c.live})
		for part := range strings.SplitSeq(why, ": ") {
			if !strings.Contains(b.String(), part) {
				t.Errorf("%s: why says\n%snot %q", name, b.String(), part)
			}
		}
	}
}

// TestRatesAndPools checks that rates use the counts between two readings, and that a
// waiting run counts for the pool that offers its workflow.
func TestRatesAndPools(t *testing.T) {
	var c Counts
	for _, r := range []messages.Record{
		{Kind: messages.KindModel, Usage: session.Usage{Input: 30, Output: 10}},
		{Kind: messages.KindTool, Failure: true},
		{Kind: messages.KindChunk},
		{Kind: messages.KindEnded, State: "succeeded"},
		{Kind: messages.KindEnded, State: "failed"},
	} {
		c.Add(&r)
	}
	if got, want := c.Per(2*time.Second), (Rates{Runs: 1, Steps: 1, Tokens: 20, Errors: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	now := time.UnixMilli(100_000)
	pools := PoolsOf(
		[]messages.Node{{Pools: []string{"a"}, Slots: 4, Free: 1}, {Pools: []string{"a"}, Slots: 4, Dead: true}, {}},
		[]messages.Workflow{{Name: "x", Pool: "a"}, {Name: "y", Pool: "b"}},
		[]messages.RunInfo{
			{State: run.Queued, Workflow: "x", Submitted: 99_000},
			{State: run.Queued, Workflow: "x", Submitted: 95_000},
			{State: run.Queued, Workflow: "y", Submitted: 90_000},
			{State: run.Running, Workflow: "x"},
			{State: run.Queued, Workflow: "x", Behind: "other"},
			{State: run.Queued, Workflow: "x", Submitted: 10_000, Due: 200_000},                // its time has not come
			{State: run.Queued, Workflow: "x", Submitted: 10_000, Queued: 10_000, Due: 99_000}, // it has
			{State: run.Queued, Workflow: "x", Submitted: 10_000, Queued: 98_000},              // it was answered
		}, now)
	want := []TopPool{{Pool: "a", Nodes: 1, Slots: 4, Free: 1, Queued: 4, OldestMS: 5000}, {Pool: "b", Queued: 1, OldestMS: 10000}}
	if len(pools) != 2 || pools[0] != want[0] || pools[1] != want[1] {
		t.Errorf("%+v, want %+v", pools, want)
	}
}

// TestRoom checks that only the fullest stream is shown while all have capacity.
func TestRoom(t *testing.T) {
	half := messages.StreamFill{Stream: "EV_1_0", Bytes: 1 << 60, MaxBytes: 1 << 61, Room: messages.RoomAll}
	some := messages.StreamFill{Stream: "EV_1_1", Bytes: 1, MaxBytes: 10, Room: messages.RoomAll}
	full := messages.StreamFill{Stream: "RESULT", Bytes: 9, MaxBytes: 10, Room: messages.RoomOpen}
	for want, streams := range map[string][]messages.StreamFill{
		"": nil,
		"all have room; the fullest is EV_1_0, 50 % full":                                                                 {some, half},
		`RESULT: 90 % full: takes no new runs; open ones go on until it is full; make room with "rath cluster provision"`: {some, full, half},
	} {
		if got := strings.Join(roomText(streams), "\n"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestCapacityText checks that the accepted messages of a stream, and the way to free
// space, depend on the stream's purpose. Only event streams reserve space for ends of runs.
func TestCapacityText(t *testing.T) {
	for want, f := range map[string]messages.StreamFill{
		`90 % full: takes no new runs; make room with "rath cluster prune"`:                                                                       {Stream: "EV_1_0", Bytes: 90, Room: messages.RoomOpen},
		`100 % full: lets runs only end; make room with "rath cluster prune"`:                                                                     {Stream: "EV_1_0", Bytes: 100, Room: messages.RoomEnds},
		`97 % full: takes no new runs; open ones go on until it is full; make room with "rath cluster prune --blobs" or "rath cluster provision"`: {Stream: "BLOB", Bytes: 97, Room: messages.RoomOpen},
		`100 % full: takes nothing; make room with "rath cluster prune --blobs" or "rath cluster provision"`:                                      {Stream: "BLOB", Bytes: 100, Room: messages.RoomOpen},
		`100 % full: takes nothing; make room with "rath cluster provision"`:                                                                      {Stream: "RESULT", Bytes: 100, Room: messages.RoomOpen},
	} {
		f.MaxBytes = 100
		if got := CapacityText(f); got != want {
			t.Errorf("%s: %q, want %q", f.Stream, got, want)
		}
	}
}

// TestRetriesAreNoStandstill checks that runs between two tries of a model call are counted
// separately, and that the rates show their period.
func TestRetriesAreNoStandstill(t *testing.T) {
	pauses := &messages.Live{State: run.Running, Steps: []messages.LiveStep{{Step: "2", Kind: "model", Name: "coder", Model: "m", Try: 2, Doing: "pauses", Error: "full"}}}
	asks := &messages.Live{State: run.Running, Steps: []messages.LiveStep{{Step: "2", Kind: "model", Name: "coder", Model: "m", Try: 2, Doing: "asks"}}}
	if !Retries(pauses) || Retries(asks) || Stuck(pauses) == "" {
		t.Errorf("a pause is between two tries: %v, a request: %v", Retries(pauses), Retries(asks))
	}
	top := Top{Tenant: "default", OverMS: 5000, Stuck: []TopStuck{{Run: "a", State: run.Running, Why: "w"}, {Run: "b", State: run.Running, Why: "x", Retries: true}}}
	var b bytes.Buffer
	WriteTop(term.New(&b, nil), &top)
	for _, want := range []string{"\n1 run stuck, 1 run between two tries of a model\n", "rates    over 5.0 s: 0 runs/s"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestReplayCountsAll checks that the verdict counts the steps that did not fit into the
// answer.
func TestReplayCountsAll(t *testing.T) {
	r := &messages.Replay{Matches: true, Truncated: true, Runs: []messages.ReplayedRun{{Run: "r", Workflow: "w", State: run.Succeeded, Steps: []messages.ReplayStep{{Path: "0", Verdict: "matches"}}, Omitted: 4999}}}
	var b bytes.Buffer
	if got, want := WriteReplay(term.New(&b, nil), r, true), "matches: 5,000 of 5,000 steps in 1 run"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestManyStuck checks that a page of thousands of runs with the same wait is short, and
// states that it includes only the newest runs.
func TestManyStuck(t *testing.T) {
	top := Top{Tenant: "default", Runs: map[run.State]int{run.Queued: 1000}, More: true, Unasked: true, Pools: []TopPool{{Pool: "gpu", Queued: 1000, OldestMS: 90_000}}}
	for i := range 64 {
		top.Stuck = append(top.Stuck, TopStuck{Run: run.ID(fmt.Sprint("r", i)), State: run.Queued, Workflow: "later", Why: "no node that lives offers its workflow"})
	}
	top.Stuck = append(top.Stuck, TopStuck{Run: "odd", State: run.Running, Workflow: "agent", Why: "its node is silent"})
	var b bytes.Buffer
	WriteTop(term.New(&b, nil), &top)
	for _, want := range []string{
		"65 runs stuck, and maybe more: not all were asked\n", "run      r0 and 63 others of later, queued\n", "run      odd of agent, running\n",
		"gpu   0      0/0   1000+   1m30s+\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if n := strings.Count(b.String(), top.Stuck[0].Why); n != 1 {
		t.Errorf("%q stands %d times in\n%s", top.Stuck[0].Why, n, b.String())
	}
}
