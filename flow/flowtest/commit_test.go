package flowtest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/session"
)

// TestCommitCrashEverywhere: the notes that a model takes after each answer of an agent
// are written once, with names and an origin that a crash at any commit does not change.
func TestCommitCrashEverywhere(t *testing.T) {
	newWorkflow := func() flow.Workflow {
		agent := &flow.Agent{Name: "helper", Prompt: "You help.", Memory: "m", Commit: true}
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := agent.Forward(ctx, s)
			if err != nil {
				return s, err
			}
			return agent.Forward(ctx, s.With(session.UserText("and now in green")))
		})
	}
	var stores []*notebook.InMemory
	o := &flowtest.Options{Memory: func() memory.Store {
		stores = append(stores, notebook.New(nil))
		return stores[len(stores)-1]
	}}
	flowtest.CrashEverywhere(t, newWorkflow, session.New(session.UserText("a theme?")), "testdata/commit.txtar", o)
	if len(stores) < 20 {
		t.Fatalf("%d worlds", len(stores))
	}
	var want []string
	for i, m := range stores {
		var got []string
		for n := range m.Notes() {
			if n.Origin.Session != "home" || n.Origin.Run != "test" || n.Origin.Step == "" {
				t.Errorf("%s is from %+v", n.URI, n.Origin)
			}
			got = append(got, fmt.Sprintf("%s %s %s", n.URI, n.Origin.Step, n.Text))
		}
		if i == 0 {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("a crash leaves\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	var texts []string
	for _, line := range want {
		uri, rest, _ := strings.Cut(line, " ")
		_, text, _ := strings.Cut(rest, " ")
		texts = append(texts, uri[:strings.LastIndex(uri, "/")]+" "+text)
	}
	slices.Sort(texts)
	if want := []string{
		"memory://user/memories/notes Works in UTC.",
		"memory://user/memories/preferences Changed from dark to green.",
		"memory://user/memories/preferences Prefers a dark theme.",
	}; !slices.Equal(texts, want) {
		t.Errorf("the notes are %q, want %q", texts, want)
	}
}

// TestNoNotesCrashEverywhere: if a model takes no notes, its session ends with the
// reason, in the same text after a crash at any commit.
func TestNoNotesCrashEverywhere(t *testing.T) {
	t.Parallel()
	for _, said := range []string{"refused", "useless"} {
		t.Run(said, func(t *testing.T) {
			newWorkflow := func() flow.Workflow { return &flow.Agent{Name: "helper", Memory: "m", Commit: true} }
			o := &flowtest.Options{Memory: func() memory.Store { return notebook.New(nil) }}
			flowtest.CrashEverywhere(t, newWorkflow, session.New(session.UserText(said)), "testdata/commit-refused.txtar", o)
		})
	}
}

// TestCommitIsBounded: a session of any length and a model that answers too much lead to
// a bounded request and bounded notes; an invalid answer ends no agent.
func TestCommitIsBounded(t *testing.T) {
	m := notebook.New(nil)
	o := &flowtest.Options{Memory: func() memory.Store { return m }}
	long := session.New(session.SystemText("secret system row"), session.UserText(strings.Repeat("old words ", 20_000)), session.UserText("a long talk"))
	var uris []string
	flowtest.Run(t, flow.Func(func(ctx context.Context, s session.Session) (_ session.Session, err error) {
		uris, err = flow.CommitNotes(ctx, s, "m", &flow.Agent{Name: "notes"})
		return s.With(session.UserText("end")), err
	}), long, "testdata/commit-bounded.txtar", o)
	if len(uris) != 8 {
		t.Errorf("%d notes, want 8", len(uris))
	}
	for _, uri := range uris {
		if text, err := m.Read(t.Context(), uri); err != nil || len(text) > 2<<10 {
			t.Errorf("a note of %d bytes: %v", len(text), err)
		}
	}

	useless := &flow.Agent{Name: "helper", Memory: "m", Commit: true}
	out := flowtest.Run(t, useless, session.New(session.UserText("useless")), "testdata/commit-bounded.txtar", o)
	if out.Text() != "answered" {
		t.Errorf("the agent said %q", out.Text())
	}
	if again, err := m.List(t.Context(), "memory://"); err != nil || len(again) != 8 {
		t.Errorf("there are %q: %v", again, err)
	}
}
