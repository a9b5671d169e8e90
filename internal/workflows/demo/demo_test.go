package demo_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/workflows/demo"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
)

func TestMain(m *testing.M) {
	scratch.InMemory()
	flowtest.Main(m)
}

// bench runs the demo on one log and one memory.
type bench struct {
	rt    *inprocess.Runtime
	log   commitlog.Memory
	notes memory.Store
	n     int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	model := must.Get(demo.Model(0))(t)
	b := &bench{notes: notebook.New(nil)}
	values := journal.NewValues(&b.log)
	b.rt = &inprocess.Runtime{Runtime: engine.Runtime{
		Store: journal.NewStore(&b.log, &journal.StoreOptions{Values: values}), Values: values,
		Models: llm.ByKind(map[string]llm.Models{demo.Kind: model}),
		Memory: func(context.Context, session.Tenant, string) (memory.Store, error) { return b.notes, nil },
		Workspaces: lease.Workspaces{
			Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess,
			Backends: map[string]sandbox.Backend{"local": local.New(&local.Options{State: filepath.Join(t.TempDir(), "boxes")})},
		},
	}}
	return b
}

// story runs the demo once and counts the branches by outcome.
func (b *bench) story(t *testing.T) (adopted, rejected int) {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, demo.Unpack(dir))
	b.n++
	s := must.Get(b.rt.Run(t.Context(), demo.New(llm.Provider{Kind: demo.Kind}), session.New(session.UserText(demo.Input)).To("local", dir)))(t)
	for _, k := range b.log.Keys() {
		v := must.Get(b.rt.Runtime.Values.At(t.Context(), session.Ref{Key: k}))(t)
		if v.Root() != s.Root() {
			continue
		}
		for _, c := range v.SinceFork() {
			t.Logf("%s %s %s by %s: %s", k.ID, v.Closing().State, c.Kind(), c.Origin().Agent, c.Text())
		}
		switch v.Closing().State {
		case session.ClosedAdopted:
			adopted++
		case session.ClosedRejected:
			rejected++
		}
	}
	return adopted, rejected
}

func TestSecondRunKnowsTheLesson(t *testing.T) {
	b := newBench(t)
	if adopted, rejected := b.story(t); adopted != 1 || rejected != 1 {
		t.Fatalf("first run: %d adopted, %d rejected, want 1 and 1", adopted, rejected)
	}
	if adopted, rejected := b.story(t); adopted != 1 || rejected != 0 {
		t.Fatalf("second run: %d adopted, %d rejected, want 1 and 0", adopted, rejected)
	}
	// Without the note the first story happens again.
	must.Do(t, b.notes.Delete(t.Context(), "memory://"))
	if adopted, rejected := b.story(t); adopted != 1 || rejected != 1 {
		t.Fatalf("after the note was removed: %d adopted, %d rejected, want 1 and 1", adopted, rejected)
	}
}

// TestTasks: a task cannot make the demo read any directory, nor send a key of the node to
// a server.
func TestTasks(t *testing.T) {
	root := t.TempDir()
	g := demo.Registration(root)
	for input, ok := range map[string]bool{
		``:                                true,
		`{"dir":"` + root + `/mine"}`:     true,
		`{"dir":"/etc"}`:                  false,
		`{"dir":"` + root + `/../other"}`: false,
		`{"dir":"relative"}`:              false,
		`{"live":true}`:                   true,
		`{"provider":{"kind":"openai","base_url":"http://evil.example","key_ref":"HOME"}}`: false,
	} {
		for _, g := range []flow.Registration{g, demo.FleetRegistration(root)} {
			if _, err := g.NewFor(flow.Info{Input: []byte(input)}); (err == nil) != ok {
				t.Errorf("%s: input %s: %v", g.Name, input, err)
			}
		}
	}
}

// TestFleet runs the demo of several nodes in one process: three ways at once,
// the careful one is adopted, the others are rejected with a reason.
func TestFleet(t *testing.T) {
	b := newBench(t)
	values := journal.NewValues(&b.log)
	d := &inprocess.Driver{}
	rt := &inprocess.Runtime{Runtime: engine.Runtime{
		Store: journal.NewStore(&b.log, &journal.StoreOptions{Values: values, OnCommit: d.Committed}), Values: values,
		Models: b.rt.Runtime.Models, Workspaces: b.rt.Runtime.Workspaces,
	}}
	g := demo.FleetRegistration(t.TempDir())
	k := session.Key{Tenant: session.DefaultTenant, ID: "home"}
	ex, state, err := d.Run(t.Context(), &rt.Runtime, g, journal.Task{ID: "fleet", Workflow: demo.FleetName, Session: k})
	if err != nil || state != run.Succeeded {
		t.Fatalf("the run is %s: %v", state, err)
	}
	if text := ex.Result().Text(); !strings.HasPrefix(text, "ACCEPT") {
		t.Errorf("it ends with %q", text)
	}
	files, err := manifest.Load(t.Context(), rt.Runtime.Blobs(k.Tenant), ex.Result().Placement().Head)
	must.Do(t, err)
	if want, err := demo.FleetResult(t.Context()); err != nil || files.Digest() != want {
		t.Errorf("the files are %s, want %s: %v", files.Digest().Short(), want.Short(), err)
	}
	ends := map[string]string{}
	for _, key := range b.log.Keys() {
		v := must.Get(values.At(t.Context(), session.Ref{Key: key}))(t)
		ends[v.Opening().Name] = v.Closing().State + " " + v.Closing().Reason
	}
	want := map[string]string{
		"": " ", "careful": "adopted all tests are green and the change does what the issue asks",
		"hasty": "rejected breaks a trailing space", "radical": "rejected as good as careful",
	}
	if diff := cmp.Diff(want, ends); diff != "" {
		t.Error(diff)
	}
}
