package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

func TestMain(m *testing.M) { flowtest.Main(m) }

func TestKeepsWhatIsAccepted(t *testing.T) {
	s := flowtest.Run(t, newFix(), session.New(session.UserText(request)), "model.txtar", nil)
	if s.Text() != "ACCEPT" {
		t.Errorf("it ends with %q", s.Text())
	}
	var coded int
	for _, c := range s.Chunks() {
		if c.Origin().Agent == "coder" {
			coded++
		}
	}
	if coded != 3 { // a call, its result and an answer: those of one attempt
		t.Errorf("the session holds %d rows of the coder, want 3", coded)
	}
}

// TestSurvivesCrashes stops the workflow at every commit and demands the same
// rows, files and branches as without a crash.
func TestSurvivesCrashes(t *testing.T) {
	flowtest.CrashEverywhere(t, func() flow.Workflow { return newFix() }, session.New(session.UserText(request)), "model.txtar", nil)
}

func TestStory(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	must.Do(t, fix(t.Context(), &out, dir))
	want := `rejected: 2.0 is the next major version, not the next minor one (VERSION is 2.0)
adopted: the verifier accepts it (VERSION is 1.10)
result: VERSION is 1.10, after 8 rows
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("the story (-want +got):\n%s", diff)
	}
	// The session works on a copy of the directory.
	if data, err := os.ReadFile(filepath.Join(dir, "repo", "VERSION")); err != nil || string(data) != "1.9\n" {
		t.Errorf("the user's own VERSION is %q, %v", data, err)
	}
}

// TestREADME keeps the workflow in the README the one that is tested here.
func TestREADME(t *testing.T) {
	readme := must.Get(os.ReadFile(filepath.Join("..", "..", "README.md")))(t)
	source := must.Get(os.ReadFile("fix.go"))(t)
	_, rest, found := strings.Cut(string(readme), "```go\n")
	block, _, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		t.Fatal("README.md has no Go block")
	}
	if !strings.Contains(string(source), block) {
		t.Errorf("the Go block of README.md is not in fix.go any more:\n%s", block)
	}
}
