package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestMain(m *testing.M) { flowtest.Main(m) }

// reviewer approves a patch that names the world.
func reviewer(q run.Question) (any, error) {
	if q.Name != "commit" {
		return nil, nil // no answer serves it: the test fails
	}
	return flow.Approval{Approved: strings.Contains(q.Detail, "+Hello, world!"), Reason: "Name the world."}, nil
}

// TestSurvivesCrashes stops the whole task at every commit, of the branches too. The
// patch is committed under one id, wherever it crashed.
func TestSurvivesCrashes(t *testing.T) {
	var mu sync.Mutex
	commits := map[string]bool{}
	flowtest.CrashEverywhere(t, func() flow.Workflow {
		return newChange(request, llm.Provider{}, func(_ context.Context, id, patch string) error {
			mu.Lock()
			defer mu.Unlock()
			commits[id+"\n"+patch] = true
			return nil
		})
	}, session.New(), "model.txtar", &flowtest.Options{Answer: reviewer})
	if len(commits) != 1 {
		t.Errorf("%d different commits: %v", len(commits), commits)
	}
}

// TestFaults: streams that break off are asked for again, wherever it crashes besides.
func TestFaults(t *testing.T) {
	flowtest.CrashEverywhere(t, func() flow.Workflow {
		return newChange(request, llm.Provider{}, func(context.Context, string, string) error { return nil })
	}, session.New(), "model.txtar", &flowtest.Options{Answer: reviewer, Faults: []flowtest.Fault{
		{Kind: flowtest.ModelBreaksOff, Name: "coder", Call: 1, Tries: 2},
		{Kind: flowtest.ModelBreaksOff, Name: "judge", Tries: 1},
	}})
}

// TestInput: a node that lacks a requirement reports it before a run begins.
func TestInput(t *testing.T) {
	_, err := registration().NewFor(flow.Info{Input: []byte(`"friendlier"`)})
	if err == nil || !strings.Contains(err.Error(), "CHANGE_COMMITS") {
		t.Errorf("without a directory: %v", err)
	}
	t.Setenv("CHANGE_COMMITS", t.TempDir())
	for input, ok := range map[string]bool{`"friendlier"`: true, `""`: false, `{}`: false} {
		if _, err := registration().NewFor(flow.Info{Input: []byte(input)}); (err == nil) != ok {
			t.Errorf("input %s: %v", input, err)
		}
	}
}

func TestStory(t *testing.T) {
	var out bytes.Buffer
	must.Do(t, change(t.Context(), strings.NewReader("Name the world.\ny\n"), &out, t.TempDir()))
	question := `Commit this patch?
diff --git a/greeting.txt b/greeting.txt
--- a/greeting.txt
+++ b/greeting.txt
@@ -1 +1 @@
-Hello.
+%s

yes (y), or what to do instead: 
`
	want := fmt.Sprintf(question, "Hello!") + fmt.Sprintf(question, "Hello, world!") + "1 patch committed: The greeting is changed.\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("the story (-want +got):\n%s", diff)
	}
	if err := change(t.Context(), strings.NewReader(""), &out, t.TempDir()); err == nil || !strings.Contains(err.Error(), "ended before an answer") {
		t.Errorf("without an answer: %v", err)
	}
}
