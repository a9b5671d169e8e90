package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// written returns the output of a function at 80 columns.
func written(write func(*term.Writer)) string {
	var b bytes.Buffer
	write(term.New(&b, &term.Options{Color: "never"}))
	return b.String()
}

// same compares a text with the wanted one, and checks that no line is wider than a
// terminal.
func same(t *testing.T, what, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
	for line := range strings.Lines(got) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
			t.Errorf("%s: a line of %d characters: %s", what, n, line)
		}
	}
}

// TestWhyARunFailed checks that the answer for a failed run begins with the reason.
func TestWhyARunFailed(t *testing.T) {
	g := lineage.NewGraph()
	at := messages.Record{Schema: lineage.Schema, Tenant: "default", Root: "s1", Session: "s1", Hash: "00", Run: "r1", Time: 1_800_000_000_000, Workflow: "review"}
	task, end := at, at
	task.Commit, task.Kind, task.Summary = 1, messages.KindSubmitted, "run r1 of review submitted"
	end.Commit, end.Kind, end.State, end.Code, end.Reason = 2, messages.KindEnded, string(run.Failed), run.CodeError, "review: no draft was accepted in 3"
	end.Summary = "run failed: review: no draft was accepted in 3"
	if n := g.Add(task, end); n != 2 {
		t.Fatalf("the graph took %d records", n)
	}
	r := must.Get(ReasonOfRun(g, "default", "r1"))(t)
	same(t, "why r1", written(func(w *term.Writer) { WriteReason(w, &r) }), `
run r1
  failed, error: review: no draft was accepted in 3

made by  the client that sent the task
did      run r1 of review submitted
run      r1 of review
version  s1
commit   1, 00
when     2027-01-15 08:00:00 UTC
`)
	kept := session.Usage{Calls: 4, Input: 1200, Output: 34, MicroUSD: 20_500}
	r.WaysOn = []WayOn{
		{Command: "rath resume r1", Step: "4", Kept: kept},
		{Command: "rath session rerun r1 --repeat", Again: kept, Calls: `"deploy" at step 2, which must not happen twice`},
		{Command: "rath resume r1", Refused: "journal: run r1 continues 32 runs, one after the other: malformed; rerun it"},
		{Command: "rath why r1-r1", Next: "r1-r1"},
	}
	got := written(func(w *term.Writer) { WriteReason(w, &r) })
	same(t, "the ways on", got[strings.Index(got, "\nways")+1:], `
ways on:
  rath resume r1
    from step 4: keeps 4 model calls, 1,234 tokens, 0.020500 USD, and makes
    about no model call again
  rath session rerun r1 --repeat
    from the start: makes about 4 model calls, 1,234 tokens, 0.020500 USD
    repeats "deploy" at step 2, which must not happen twice
  rath resume r1
    not possible: journal: run r1 continues 32 runs, one after the other:
    malformed; rerun it
  rath why r1-r1
    run r1-r1 continues it already
`)
}

// TestWriteLive checks the text of a run's current activity or waits, and its short form in
// a list of runs.
func TestWriteLive(t *testing.T) {
	const now = int64(1_000_000_000_000)
	ago := func(seconds int64) int64 { return now - 1000*seconds }
	step := func(s messages.LiveStep) []messages.LiveStep {
		s.Step, s.Began = "2.0", ago(90)
		return []messages.LiveStep{s}
	}
	for what, tc := range map[string]struct {
		live messages.Live
		want string // without the line of the node
		note string
	}{
		"asks":        {messages.Live{State: run.Running, Steps: step(messages.LiveStep{Kind: "model", Name: "coder", Model: "m", Doing: "asks", At: ago(5), Until: now + 60_000, Try: 2, Error: "overloaded"})}, "step     2.0, coder asks m, for 1m30s\nnow      try 2: nothing of the answer has come for 5.0 s; it is given up in 1m0s\nbefore   try 1 failed: overloaded\n", "coder asks m, 1m30s, try 2"},
		"answers":     {messages.Live{State: run.Running, Steps: step(messages.LiveStep{Kind: "model", Doing: "answers", At: ago(1), Try: 1, Tokens: 7, Text: strings.Repeat("line\n", 9), Calls: []string{"grep", "put"}}), More: 2}, "step     2.0, the workflow asks its model, for 1m30s\nnow      the model writes, 7 tokens so far; the last piece came 1.0 s ago\ncalls    grep, put\n  ...\n  line\n  line\n  line\n  line\n  line\n  line\n         and 2 other steps\n", "the workflow asks its model, 1m30s, 7 tokens, and 2 more"},
		"pauses":      {messages.Live{State: run.Running, Steps: step(messages.LiveStep{Kind: "model", Name: "coder", Model: "m", Doing: "pauses", At: now, Until: now + 3000, Try: 2, Error: "busy"})}, "step     2.0, coder asks m, for 1m30s\nnow      waits 3.0 s, then try 3\nbefore   try 2 failed: busy\n", "coder asks m, 1m30s, pauses before try 3"},
		"no model":    {messages.Live{State: run.Running, Steps: step(messages.LiveStep{Kind: "model", Try: 1, Doing: "waits", At: ago(2)})}, "step     2.0, the workflow asks its model, for 1m30s\nnow      waits for a limit of its model, for 2.0 s\n", "the workflow asks its model, 1m30s, waits for a limit of its model"},
		"a command":   {messages.Live{State: run.Running, Steps: step(messages.LiveStep{Kind: "tool", Name: "run_shell_command", Did: "make test", Doing: "works", At: ago(90)})}, "step     2.0, run_shell_command: make test, for 1m30s\nnow      it runs\n", "run_shell_command: make test, 1m30s"},
		"queues":      {messages.Live{State: run.Running, Steps: step(messages.LiveStep{Kind: "tool", Name: "put", Doing: "queues"})}, "step     2.0, put, for 1m30s\nnow      waits for other calls of its round\n", "put, 1m30s"},
		"opens":       {messages.Live{State: run.Running, Steps: step(messages.LiveStep{Kind: "tool", Doing: "opens", At: ago(4)})}, "step     2.0, tool, for 1m30s\nnow      its sandbox is opened, for 4.0 s\n", "tool, 1m30s"},
		"records":     {messages.Live{State: run.Running, Steps: step(messages.LiveStep{Kind: "do", Name: "notes", Doing: "records", At: ago(4)})}, "step     2.0, do notes, for 1m30s\nnow      its outcome is recorded, for 4.0 s\n", "do notes, 1m30s"},
		"own code":    {messages.Live{State: run.Running, Since: ago(30)}, "waits    no step is under way: the workflow's own code has run for 30.0 s\n", "no step is under way: the workflow's own code has run for 30.0 s"},
		"begins":      {messages.Live{State: run.Running}, "waits    its node is beginning or ending it\n", "its node is beginning or ending it"},
		"silent":      {messages.Live{State: run.Running, Silent: true}, "waits    for its node, which does not answer: if it has died, another one takes\n         the run within seconds\n", "for its node, which does not answer: if it has died, another one takes the run within seconds"},
		"behind":      {messages.Live{State: run.Queued, Behind: "r0"}, "waits    for run r0, which holds the session\n", "for run r0, which holds the session"},
		"untaken":     {messages.Live{State: run.Queued, Untaken: true}, "waits    no node has taken its task yet: none offers the workflow, or too many\n         of its tenant wait\n", "no node has taken its task yet: none offers the workflow, or too many of its tenant wait"},
		"no node":     {messages.Live{State: run.Queued, Queue: &messages.LiveQueue{Revision: "7"}}, "waits    no node that lives offers its workflow in revision 7\n", "no node that lives offers its workflow in revision 7"},
		"sent":        {messages.Live{State: run.Queued, Queue: &messages.LiveQueue{Pool: "p", Nodes: 1, Sent: "n1"}}, "waits    node n1 was sent the run and has not answered yet\n", "node n1 was sent the run and has not answered yet"},
		"again":       {messages.Live{State: run.Queued, Queue: &messages.LiveQueue{Pool: "p", Nodes: 1, Again: now + 2000}}, "waits    a node did not take it; it is offered again in 2.0 s\n", "place 1 of 1 for a slot of pool p"},
		"free slots":  {messages.Live{State: run.Queued, Queue: &messages.LiveQueue{Pool: "p", Class: "batch", Ahead: 3, Waiting: 9, Nodes: 2, Free: 1}}, "waits    for a slot of pool p (batch): place 4 of 9; 1 slot free on 2 nodes\n", "place 4 of 9 for a slot of pool p"},
		"one node":    {messages.Live{State: run.Queued, Queue: &messages.LiveQueue{Pool: "p", Class: "batch", Nodes: 1}}, "waits    for a slot of pool p (batch): place 1 of 1; all slots of its node are\n         taken\n", "place 1 of 1 for a slot of pool p"},
		"full":        {messages.Live{State: run.Queued, Queue: &messages.LiveQueue{Pool: "p", Class: "batch", Nodes: 3}}, "waits    for a slot of pool p (batch): place 1 of 1; all slots of its 3 nodes\n         are taken\n", "place 1 of 1 for a slot of pool p"},
		"quarantined": {messages.Live{State: run.Waiting, Quarantine: "leaked a key", Unbegun: 3}, "waits    quarantined: leaked a key\nwaits    3 branches of it for a slot\n", ""},
		"unoffered":   {messages.Live{State: run.Waiting, Unbegun: 3, Unoffered: []messages.LiveUnoffered{{Workflow: "fix", Revision: "2", Branches: 1}, {Workflow: "reserch", Branches: 2}}}, "waits    1 branch of it: no node that lives offers workflow fix in revision 2\nwaits    2 branches of it: no node that lives offers workflow reserch\n", "1 branch of it: no node that lives offers workflow fix in revision 2"},
		"review":      {messages.Live{State: run.NeedsReview, Review: &messages.Review{Reason: "a call was cut off"}}, "waits    for a decision: a call was cut off\n", ""},
	} {
		tc.live.At = now
		got := written(func(w *term.Writer) { WriteLive(w, &LiveRun{Live: &tc.live, Node: "host"}) })
		if tc.live.State == run.Running {
			tc.want = "node     host, attempt 0\n" + tc.want
		}
		same(t, what, got, tc.want)
		if note := LiveNote(&tc.live); note != tc.note {
			t.Errorf("%s: the note is %q, want %q", what, note, tc.note)
		}
	}
	got := written(func(w *term.Writer) {
		WriteLive(w, &LiveRun{Live: &messages.Live{State: run.Waiting, At: now}}, "rath answer r1 yes", "rath answer r1 no --reason TEXT")
	})
	same(t, "answers", got, "answer   rath answer r1 yes\nor       rath answer r1 no --reason TEXT\n")
}

// TestWriteReason checks that a long text is cut, and that all changes of a file are
// listed.
func TestWriteReason(t *testing.T) {
	r := Reason{
		What: "a.txt", Text: strings.Repeat("a line\n", 12), Tool: "put", Call: "c1", Did: "writes a.txt", Session: "s", Commit: 3, Hash: "0123456789abcdef01", After: "0123456789abcdef",
		Time: time.UnixMilli(0), Changes: []FileStep{
			{FileChange: FileChange{Path: "a.txt", Added: 2}, Run: "aaaaaaaaaaaaaaaaaaaa", Step: "0.0", Did: "adds a.txt"}, {FileChange: FileChange{Path: "a.txt", Added: 1, Removed: 2}, Run: "bbbbbbbbbbbbbbbbbbbb", Step: "2.1", Did: "writes a.txt"},
		},
	}
	got := written(func(w *term.Writer) { WriteReason(w, &r) })
	for _, want := range []string{"  a line\n  ... 4 more lines\n", "made by  put, call c1\n", "version  s\n", "commit   3, 0123456789abcdef\n", "files    0123456789ab\n", "\nall changes:\n", "0.0   +2 -0  adds a.txt\n", "2.1   +1 -2  writes a.txt\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %q in it", got, want)
		}
	}
}

// TestWriteImpact checks that long lists show their beginning, and how to see the rest.
func TestWriteImpact(t *testing.T) {
	o := &Impact{What: "agent writes files", Session: "first", Version: 5, Step: "0.0"}
	for i := range 25 {
		o.Changed = append(o.Changed, ImpactFile{Path: fmt.Sprintf("f%02d", i), Added: 1})
		o.Uses = append(o.Uses, ImpactUse{ImpactStep: ImpactStep{Step: run.Path(fmt.Sprint(i + 1)), Did: "reads it"}, How: "read", Path: "f00"})
		o.Sessions = append(o.Sessions, lineage.Reach{Session: "other", Via: messages.KindTool, Parent: "first", Name: "helper", State: "open"})
		o.Written = append(o.Written, ImpactStep{Step: "3.0", Did: "remembers"})
		o.Recalls = append(o.Recalls, ImpactStep{Name: "team", Step: "4", Session: "later", Did: "recalls"})
		o.Steps = append(o.Steps, ImpactStep{Session: "first", Version: 7, Step: "5", Did: "goes on"})
	}
	o.Sessions[0] = lineage.Reach{Session: "other", Via: messages.KindMerged, Parent: "first", State: "open"}
	o.Files = []ImpactFile{{Path: "f00", Added: 2, Removed: 1, Steps: []run.Path{"1", "2", "3", "4", "5"}}, {Before: "0123456789abcdef", After: "fedcba9876543210", Steps: []run.Path{"6"}}}
	part, all := written(func(w *term.Writer) { WriteImpact(w, "first:5", o, false) }), written(func(w *term.Writer) { WriteImpact(w, "first:5", o, true) })
	for _, want := range []string{
		"first:5, step 0.0\n", "changed  f19 +1 -0\nchanged  5 more files\n", "... 5 more uses; --all shows them\n", "merged first", "called first (helper)",
		"... 5 more sessions; --all shows them\n", "memory", "may have been found by later: recalls", "... 30 more notes; --all shows them\n",
	} {
		if !strings.Contains(part, want) && !(strings.HasPrefix(want, "may have") && strings.Contains(all, want)) {
			t.Errorf("%s\nwant %q in it", part, want)
		}
	}
	for _, not := range []string{"FILE  LINES", "goes on"} {
		if strings.Contains(part, not) {
			t.Errorf("%s\nhas %q, which what changed says", part, not)
		}
	}
	for _, want := range []string{"f00", "+2 -1", "1, 2, 3, 4, 1 more", "0123456789ab -> fedcba987654", "goes on"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s\nwant %q in it", all, want)
		}
	}
	if strings.Contains(all, "--all") {
		t.Errorf("all of it names --all:\n%s", all)
	}
}
