// Package flowtest runs workflows in tests: against a scripted model, in
// memory, in strict mode, and through a crash at every commit.
//
//	func TestMain(m *testing.M) { flowtest.Main(m) }
//
//	func TestFix(t *testing.T) {
//		s := flowtest.Run(t, &Fix{}, session.New(session.UserText("issue 7")), "testdata/fix.txtar", nil)
//		if s.Text() != "done" {
//			t.Errorf("it said %q", s.Text())
//		}
//	}
//
//	func TestFixSurvivesCrashes(t *testing.T) {
//		flowtest.CrashEverywhere(t, func() flow.Workflow { return &Fix{} },
//			session.New(session.UserText("issue 7")), "testdata/fix.txtar", nil)
//	}
//
// The script is a txtar file as package llm/scripted reads it. Files whose
// name starts with work/ are the session's workspace: the session is sent to
// the local sandbox with a copy of them.
//
// Strict mode turns warnings of the runtime, such as one about extending an older value,
// into test failures.
package flowtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/offload"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
)

// Options configure the test of a workflow; nil means the defaults.
type Options struct {
	// Sandbox is the backend "local" of the test; nil is the real one, which
	// needs Main in the package's TestMain.
	Sandbox sandbox.Backend
	// Memory makes the memory of every name for each execution; nil keeps notes in
	// memory.
	Memory func() memory.Store
	// Resolve resolves a non-idempotent call that was cut off: run.Happened or run.Again.
	// Empty fails the test.
	Resolve string
	// Answer answers the questions of the workflow. It returns a flow.Approval for an
	// approval, a string for a message, and any JSON-encodable value for a response. With
	// run.ErrExpired the question stays open until it expires; any other error fails the
	// test, and so does a nil answer. It is called once for each question that a process
	// finds open, one at a time, and must give the same answer after a crash. With
	// run.ErrCancelled the run is cancelled.
	Answer func(run.Question) (any, error)
	// Ends is the state in which the run ends; "" is run.Succeeded. After another one, Run
	// returns the unborn session.
	Ends run.State
	// Faults are injected into the run. A fault that no call meets fails the test.
	Faults []Fault
	// Task is the run's task, besides its id and its session.
	Task messages.Task
	// Workflows are the workflows, or fakes of them, that remote branches and started runs
	// can name; nil has none. The test waits until the started runs have ended.
	Workflows []flow.Registration
}

// Main is for TestMain: it lets this program supervise sandboxed commands,
// runs the tests and exits.
func Main(m *testing.M) {
	local.Reexec()
	os.Exit(m.Run())
}

const (
	runID  = "test"
	homeID = session.ID("home")
)

// bench is one workflow under test with its environment.
type bench struct {
	t      testing.TB
	o      Options
	script *scripted.Script
	dir    string // the workspace's files, "" for none
	s      session.Session
	task   journal.Task // its input is the first chunks of s

	inOrder bool // branches execute one after the other
}

func newBench(t testing.TB, s session.Session, file string, o *Options) *bench {
	t.Helper()
	b := &bench{t: t, s: s}
	if o != nil {
		b.o = *o
	}
	if b.o.Sandbox == nil {
		b.o.Sandbox = local.New(&local.Options{State: filepath.Join(t.TempDir(), "boxes")})
	}
	if err := valid(b.o.Faults); err != nil {
		t.Fatalf("flowtest: %v", err)
	}
	var err error
	b.o.Task.ID, b.o.Task.Session = runID, string(homeID)
	if b.task, err = translate.Task(&b.o.Task, session.DefaultTenant, "test"); err != nil {
		t.Fatalf("flowtest: Options.Task: %v", err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("flowtest: read script: %v", err)
	}
	if b.script, err = scripted.Parse(file, data); err != nil {
		t.Fatalf("flowtest: %v", err)
	}
	dir := t.TempDir()
	if some, err := b.script.WriteFiles(dir); err != nil {
		t.Fatalf("flowtest: lay out the workspace: %v", err)
	} else if some {
		b.dir = dir
		b.s = b.s.To("local", dir)
	}
	return b
}

// world has the state that outlives a crash of the process: the log, the blobs and the
// memories, and outside of the process the model's request log.
type world struct {
	stored   *commitlog.Memory
	log      commitlog.Log // stored, without large values
	blobs    blob.Store
	memories map[string]memory.Store // by name
	clock    *engine.Clock
	faults   *faults
	witness  bytes.Buffer

	mu       sync.Mutex
	calls    map[run.Path]string // file and line of the code that made a step
	warnings []string
}

// stepped is engine.Runtime.OnStep.
func (w *world) stepped(_ run.ID, at run.Path, call string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[at] = call
}

// warned is engine.Runtime.OnWarning.
func (w *world) warned(_ run.ID, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnings = append(w.warnings, text)
}

// checkWarnings fails the test for each warning.
func (w *world) checkWarnings(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.warnings {
		t.Errorf("flowtest: %s (did you shadow s?)", text)
	}
}

// start is the time at which every world begins.
var start = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

func (b *bench) world() *world {
	w := &world{stored: &commitlog.Memory{}, blobs: blob.NewMemory(), clock: engine.NewClock(start), memories: map[string]memory.Store{}, calls: map[run.Path]string{}}
	w.log = offload.New(w.stored, func(session.Tenant) blob.Store { return w.blobs }, nil)
	w.faults = &faults{all: b.o.Faults, calls: map[site][]run.Path{}, tries: map[site]int{}, hits: map[int]bool{}}
	return w
}

// memory opens the memory of a name, which outlives a crash of the process.
func (b *bench) memory(w *world, name string) memory.Store {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.memories[name] == nil {
		if b.o.Memory != nil {
			w.memories[name] = b.o.Memory()
		} else {
			w.memories[name] = notebook.New(nil)
		}
	}
	return w.memories[name]
}

// process is one process over a world.
type process struct {
	rt     *engine.Runtime
	driver *inprocess.Driver
	*world
}

func (b *bench) process(w *world, log commitlog.Log, incarnation string) *process {
	b.t.Helper()
	model, err := scripted.New(b.script, &scripted.Options{Log: &w.witness, Now: w.clock.Now})
	if err != nil {
		b.t.Fatalf("flowtest: %v", err)
	}
	values := journal.NewValues(log)
	workflows, err := engine.NewRegistry(b.o.Workflows)
	if err != nil {
		b.t.Fatalf("flowtest: %v", err)
	}
	driver := &inprocess.Driver{Workflows: workflows, InOrder: b.inOrder}
	rt := &engine.Runtime{
		Store:  journal.NewStore(log, &journal.StoreOptions{Incarnation: incarnation, Values: values, Now: w.clock.Now, OnCommit: driver.Committed}),
		Values: values, Models: faultyModels{model, w.faults}, OnTool: w.faults.onTool, Clock: w.clock, Node: "test",
		Blobs: func(session.Tenant) blob.Store { return w.blobs },
		Memory: func(_ context.Context, _ session.Tenant, name string) (memory.Store, error) {
			return b.memory(w, name), nil
		},
		OnStep: w.stepped, OnWarning: w.warned,
		Workspaces: lease.Workspaces{
			Dir: b.t.TempDir(), Backends: map[string]sandbox.Backend{"local": faultyBackend{b.o.Sandbox, w.faults}}, MinIsolation: sandbox.IsolationProcess,
		},
	}
	driver.Answer = func(ctx context.Context, q run.Question) (any, error) {
		v, err := b.answer(q)
		if !errors.Is(err, run.ErrCancelled) {
			return v, err
		}
		k := session.Key{Tenant: session.DefaultTenant, ID: homeID}
		return nil, rt.Store.Apply(ctx, journal.Signal{To: k, Run: runID, Cancel: &journal.CancelRequested{Reason: "flowtest"}})
	}
	return &process{rt, driver, w}
}

// answer answers a question of a run.
func (b *bench) answer(q run.Question) (v any, err error) {
	if b.o.Answer != nil {
		v, err = b.o.Answer(q)
	}
	switch a, ok := v.(flow.Approval); {
	case errors.Is(err, run.ErrExpired):
		return nil, nil // the clock advances to the end of the wait
	case err == nil && v == nil:
		return nil, errors.New("no answer serves it: set Options.Answer, or have it return a value for this question")
	case ok && a.By == "":
		a.By = "test"
		return a, err
	}
	return v, err
}

// start runs the workflow on a runtime: from its task, or from the log.
func (b *bench) start(ctx context.Context, p *process, w flow.Workflow, resume bool) (*engine.Execution, run.State, error) {
	t := b.task
	t.Resume = resume
	var history []commitlog.Entry
	for _, k := range p.stored.Keys() {
		for e, err := range p.log.Read(ctx, k, commitlog.Position{}) {
			if err != nil {
				return nil, "", err
			}
			history = append(history, e)
		}
	}
	return p.driver.Run(ctx, p.rt, b.offer(w), t, history...)
}

// offer returns the registration of the workflow. The given session becomes the first step's
// input: the workflow starts by taking over its pending edits.
func (b *bench) offer(w flow.Workflow) flow.Registration {
	begin := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return w.Forward(ctx, s.Edited(slices.Collect(b.s.Pending())...))
	})
	return flow.Registration{Name: "test", Revision: "1", New: func() flow.Workflow { return begin }}
}

// iterate runs each iteration of the loops of a run from its recorded state, and compares its
// steps and its end with the records.
func (b *bench) iterate(p *process, w flow.Workflow, ex *engine.Execution) {
	b.t.Helper()
	if !ex.Loops() {
		return
	}
	r, err := engine.ReplayIterations(b.t.Context(), p.rt, b.offer(w), session.Key{Tenant: session.DefaultTenant, ID: homeID}, runID)
	if err == nil && !r.Matches() {
		err = errors.New(r.Differs)
	}
	if err != nil {
		b.t.Errorf("flowtest: an iteration of a loop does not follow from its recorded state: %v", err)
	}
}

// Run runs w on s in memory against a scripted model and returns the resulting
// session. The test fails at once if the run does not succeed or if the
// runtime warns.
//
// After a run with a flow.Loop, Run calls w again, without steps: once for each iteration,
// from its recorded state. The test fails if a step of the iteration or its end differ from
// the records, because its body depends on something besides the state.
func Run(t testing.TB, w flow.Workflow, s session.Session, script string, o *Options) session.Session {
	t.Helper()
	b := newBench(t, s, script, o)
	world := b.world()
	p := b.process(world, world.log, "one")
	ex, state, err := b.start(t.Context(), p, w, false)
	if !b.ends(state, err) {
		t.Fatalf("flowtest: the run ended as %s: %v", state, err)
	}
	b.iterate(p, w, ex)
	b.checkFaults(world)
	world.checkWarnings(t)
	return ex.Result()
}

// ends reports whether a run ended as Options want.
func (b *bench) ends(state run.State, err error) bool {
	if b.o.Ends == "" || b.o.Ends == run.Succeeded {
		return err == nil
	}
	return state == b.o.Ends
}

// checkFaults fails the test for each fault that no call of an undisturbed run met.
func (b *bench) checkFaults(w *world) {
	b.t.Helper()
	for _, f := range w.faults.missed() {
		b.t.Errorf("flowtest: no call met the %v", f)
	}
}

// CrashEverywhere stops the workflow at every commit in turn: before the commit is
// stored, after it is stored and before the workflow gets the reply, and right after the
// reply. It resumes the workflow in a fresh runtime and demands the same chunks,
// workspace heads, outcomes and graph as without a crash. Ids, times and the batching of
// events may differ. So may the sessions of branches that did not decide a join, with
// First or a quorum: a crash can cancel such a branch earlier or later. Branches execute
// one after the other here, in their order, so that the same one wins.
//
// As in Run, a warning of the runtime fails the test. The first difference is printed
// once, with the file and line of the step's call and both sides.
//
// CrashEverywhere also checks the model's own request log: no attempt of a step asks
// twice.
func CrashEverywhere(t testing.TB, newWorkflow func() flow.Workflow, s session.Session, script string, o *Options) {
	t.Helper()
	b := newBench(t, s, script, o)
	b.inOrder = true
	calm := b.world()
	counter := &crashLog{Log: calm.log}
	if _, state, err := b.start(t.Context(), b.process(calm, counter, "one"), newWorkflow(), false); !b.ends(state, err) {
		t.Fatalf("flowtest: the undisturbed run ended as %s: %v", state, err)
	}
	b.checkFaults(calm)
	calm.checkWarnings(t)
	want := fingerprintOf(t, calm)
	var first *difference
	var when string
	var also []string
	for n := 1; n <= counter.appends; n++ {
		for _, m := range []moment{beforeStore, afterStore, afterReply} {
			w := b.crash(newWorkflow, n, m)
			d := want.compare(fingerprintOf(t, w))
			switch {
			case d == nil:
			case first == nil:
				first, when = d, fmt.Sprintf("%s commit %d of %d", m, n, counter.appends)
				if d.call = w.calls[d.step]; d.call == "" {
					d.call = calm.calls[d.step]
				}
			default:
				also = append(also, fmt.Sprintf("%s %d", m, n))
			}
		}
	}
	if first == nil {
		return
	}
	text := first.String()
	if len(also) > 0 {
		text += fmt.Sprintf("\n%d other crashes change the run, too: %s", len(also), strings.Join(also[:min(len(also), 12)], ", "))
	}
	t.Errorf("flowtest: a crash %s changes the run:\n%s", when, text)
}

// ended reports whether the log has the end of the run: a crash after that, at a commit
// that closes a branch, does not affect the run.
func ended(t testing.TB, w *world) bool {
	t.Helper()
	k := session.Key{Tenant: session.DefaultTenant, ID: homeID}
	for e, err := range w.log.Read(t.Context(), k, commitlog.Position{}) {
		if err != nil {
			t.Fatalf("flowtest: read %s: %v", k, err)
		}
		for _, ev := range e.Commit.Events {
			if ev.Kind == journal.KindEnded {
				return true
			}
		}
	}
	return false
}

// crash runs the workflow with one crash and returns its world.
func (b *bench) crash(newWorkflow func() flow.Workflow, n int, when moment) *world {
	b.t.Helper()
	w := b.world()
	alive, die := context.WithCancel(b.t.Context())
	defer die()
	broken := &crashLog{Log: w.log, at: n, when: when, died: die}
	if _, state, err := b.start(alive, b.process(w, broken, "one"), newWorkflow(), false); err == nil && when != afterReply && !ended(b.t, w) {
		b.t.Fatalf("flowtest: the run ended as %s although its log died %s commit %d", state, when, n)
	}
	for i := range maxResumes {
		p := b.process(w, w.log, fmt.Sprintf("again-%d", i))
		_, held := w.log.Last(b.t.Context(), session.Key{Tenant: session.DefaultTenant, ID: homeID})
		_, state, err := b.start(b.t.Context(), p, newWorkflow(), held == nil)
		switch {
		case b.o.Resolve != "" && b.resolve(p):
		case err != nil && !state.Terminal():
			b.t.Fatalf("flowtest: after a crash %s commit %d the run is %s: %v", when, n, state, err)
		case state.Terminal():
			checkWitness(b.t, w)
			return w
		}
	}
	b.t.Fatalf("flowtest: after a crash %s commit %d the run did not end in %d resumes", when, n, maxResumes)
	return nil
}

// resolve resolves the runs that need review, in all sessions, and reports whether there
// were any.
func (b *bench) resolve(p *process) (any bool) {
	b.t.Helper()
	for _, k := range p.stored.Keys() {
		w, err := journal.LoadStateMachine(b.t.Context(), p.log, p.rt.Values, k, "")
		if err != nil {
			b.t.Fatalf("flowtest: read %s: %v", k, err)
		}
		for _, r := range w.RunState().Runs() {
			if r.State != run.NeedsReview || r.Home != k {
				continue
			}
			any = true
			err := p.rt.Store.Apply(b.t.Context(), journal.Signal{To: k, Run: r.ID, Resolve: &journal.Resolved{Decision: b.o.Resolve, Reason: "flowtest"}})
			if err != nil {
				b.t.Fatalf("flowtest: resolve: %v", err)
			}
		}
	}
	return any
}

// maxResumes bounds the resumes after one crash; each review takes one.
const maxResumes = 4
