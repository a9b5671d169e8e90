//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/fleet"
)

var (
	flagSeed   = flag.Uint64("seed", 0, "the one seed of TestNemesis; 0 draws them")
	flagSeeds  = flag.Int("seeds", 3, "how many seeds TestNemesis plays")
	flagLength = flag.Duration("length", time.Minute, "how long TestNemesis plays a seed")
	flagKeep   = flag.String("keep", "", "directory that keeps what the tests of fleets leave, logs and histories")
)

// world is a fleet at work with its model, load and witnesses.
type world struct {
	t      *testing.T
	seed   uint64
	dir    string
	f      *fleet.Fleet
	model  *modelHost
	load   *clients
	random *rand.Rand
	// again is the command that repeats what happens here.
	again string
}

// shape is what a world consists of.
type shape struct {
	servers, nodes, routers int
	disks                   []fleet.Disk
	slots                   int
	lazy                    bool // the servers acknowledge before they sync
}

// newWorld starts a fleet for a test. Everything random in it comes from seed.
func newWorld(t *testing.T, seed uint64, s shape) *world {
	t.Helper()
	w := &world{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1))}
	w.again = fmt.Sprintf("go test -tags=e2e -count=1 -run '^%s$' ./e2e -seed %d", t.Name(), seed)
	if *flagKeep != "" {
		w.dir = filepath.Join(*flagKeep, fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), seed))
		if err := errors.Join(os.RemoveAll(w.dir), os.MkdirAll(w.dir, 0o700)); err != nil {
			t.Fatal(err)
		}
	} else {
		w.dir = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var err error
	w.f, err = fleet.Start(ctx, &fleet.Options{Dir: w.dir, Servers: s.servers, Disks: s.disks, Lazy: s.lazy})
	if err != nil {
		w.fatal(err)
	}
	t.Cleanup(func() {
		if err := w.f.Close(); err != nil {
			t.Error(err)
		}
	})
	if w.model, err = newModelHost(w.f.Self(), "testdata/fleet.txtar", w.path("model.jsonl"), 30*time.Millisecond); err != nil {
		w.fatal(err)
	}
	t.Cleanup(func() {
		if err := w.model.close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(os.Mkdir(w.path("files"), 0o700), os.WriteFile(w.path("files", "all.txt"), []byte("start\n"), 0o600)); err != nil {
		w.fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.fatal(err)
	}
	node := fleet.Program{Path: self, Env: []string{
		childEnv + "=fleet-node", "OPENAI_BASE_URL=" + w.model.url, envWitness + "=" + w.path("witness.jsonl"), envModel + "=" + w.model.url, envFiles + "=" + w.path("files"),
	}}
	node.Args = []string{"-model", "m"} // nodes without routers choose themselves
	if s.slots > 0 {
		node.Args = append(node.Args, "-slots", fmt.Sprint(s.slots))
	}
	if s.routers > 0 {
		node.Args = append(node.Args, "-routers")
	}
	if s.nodes == 0 {
		return w
	}
	if err := w.f.AddNodes(ctx, s.nodes, node); err != nil {
		w.fatal(err)
	}
	router := fleet.Program{Path: self, Args: []string{"-model", "m"}, Env: []string{childEnv + "=fleet-router", "OPENAI_BASE_URL=" + w.model.url}}
	if err := w.f.AddRouters(ctx, s.routers, router); err != nil {
		w.fatal(err)
	}
	if w.load, err = newClients(w.f, seed, w.path("history.jsonl"), w.path("told.jsonl"), w.path("witness.jsonl")); err != nil {
		w.fatal(err)
	}
	t.Cleanup(func() {
		if err := w.load.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

// fail reports a violation with the seed and the command that repeats it.
func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("%s\n\tseed %d; again: %s", fmt.Sprintf(format, args...), w.seed, w.again)
}

func (w *world) fatal(err error) {
	w.t.Helper()
	w.t.Fatalf("%v\n\tseed %d; again: %s", err, w.seed, w.again)
}

// work lets the load run while f does harm, then heals everything, and waits
// until every acknowledged task has its result.
func (w *world) work(length time.Duration, atOnce int, f func(ctx context.Context)) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), length)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.load.run(ctx, atOnce)
	}()
	deciding := make(chan struct{})
	go func() {
		defer close(deciding)
		every(ctx, 500*time.Millisecond, func() {
			w.load.decide(ctx)
			w.load.approve(ctx)
		})
	}()
	f(ctx)
	<-ctx.Done()
	<-done
	<-deciding
	w.heal()
	finish, cancel := context.WithTimeout(w.t.Context(), settle)
	defer cancel()
	began := time.Now()
	if err := w.load.finish(finish); err != nil {
		w.fail("%v after everything was healed: %v", settle, err)
		return
	}
	w.t.Logf("all tasks have a result %v after everything was healed", time.Since(began).Round(time.Millisecond))
	w.empty(finish)
	w.stored(finish)
	w.transcripts(finish)
	w.audit(finish)
}

// settle bounds how long the last runs may take when nothing disturbs them.
const settle = 90 * time.Second

// heal ends all faults and starts what does not run.
func (w *world) heal() {
	w.t.Helper()
	w.model.sick.Store(nil)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := w.f.HealAll(); err != nil {
		w.fatal(err)
	}
	for _, p := range w.f.All() {
		if p.Frozen() {
			if err := p.Thaw(); err != nil {
				w.fatal(err)
			}
		}
		if err := p.Start(); err != nil {
			w.fatal(err)
		}
	}
	if err := w.f.ServersUp(ctx); err != nil {
		w.fatal(err)
	}
	// A node that cannot reach NATS ends; a service manager starts it again.
	for _, p := range append(w.f.Nodes(), w.f.Routers()...) {
		for err := p.Up(ctx); err != nil; err = p.Up(ctx) {
			if ctx.Err() != nil || !errors.Is(err, fleet.ErrNotRunning) {
				w.fatal(err)
			}
			if err := p.Start(); err != nil {
				w.fatal(err)
			}
		}
	}
}

// check compares what clients, tools and logs say.
func (w *world) check() {
	w.t.Helper()
	l := w.load
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.broken {
		w.fail("%s", b)
	}
	states, attempts := map[string]int{}, 0
	acked := 0
	for _, id := range l.order {
		t := l.tasks[id]
		if t.Acked {
			acked++
		}
		state := t.outcome.State
		states[state]++
		switch state {
		case "succeeded", "":
		case "cancelled":
			if !t.Cancel {
				w.fail("run %s is cancelled, which nobody asked for: %s", id, t.Result)
			}
		case "failed":
			// A model that is sick for long enough makes runs fail.
			if !w.model.ill.Load() || !strings.Contains(t.outcome.Error, "llm: ") {
				w.fail("run %s failed: %s", id, t.Result)
			}
		default:
			w.fail("run %s ended %s: %s", id, state, t.Result)
		}
	}
	if err := staleHead(l.heads); err != nil {
		w.fail("%v", err)
	}
	w.crashes()
	seen, err := sightings(w.path("witness.jsonl"))
	if err != nil {
		w.fatal(err)
	}
	once := map[string]int{}
	for _, s := range seen {
		key := fmt.Sprint(s.Call, " attempt ", s.Attempt)
		if once[key]++; once[key] == 2 {
			w.fail("tool %s: call %s was executed twice", s.Tool, key)
		}
		if s.Attempt > 1 {
			attempts++
		}
	}
	w.t.Logf("%d tasks, %d acknowledged, states %v; %d executions of tools, %d of them in a later attempt; %d heads read; not answered: %v; %d model requests",
		len(l.order), acked, states, len(seen), attempts, l.asked, l.refused, w.model.served.Load())
	if acked < 5 {
		w.fail("only %d tasks were acknowledged: this shows nothing", acked)
	}
}

// stored compares the results that are kept with those that were told.
func (w *world) stored(ctx context.Context) {
	w.t.Helper()
	user, password := w.f.OperatorLogin()
	nc, err := nats.Connect(w.f.URLs(0), nats.UserInfo(user, password))
	if err != nil {
		w.fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		w.fatal(err)
	}
	s, err := stream(ctx, js, "RESULT")
	if err != nil {
		w.fatal(err)
	}
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	for _, id := range w.load.order {
		t := w.load.tasks[id]
		m, err := s.GetLastMsgForSubject(ctx, "rath.run.default."+id+".result")
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound) && t.Result == "" && !t.Acked:
		case err != nil:
			w.fail("the result of run %s is not stored: %v", id, err)
		case t.Result != "" && t.Result != string(m.Data):
			w.fail("the result of run %s is stored as\n%s\nand was told as\n%s", id, m.Data, t.Result)
		}
	}
}

// transcripts compares what each run left in its session with what an
// undisturbed one leaves.
func (w *world) transcripts(ctx context.Context) {
	w.t.Helper()
	w.load.mu.Lock()
	var done []*task
	for _, id := range w.load.order {
		if t := w.load.tasks[id]; t.outcome.State == "succeeded" {
			done = append(done, t)
		}
	}
	w.load.mu.Unlock()
	for _, t := range done {
		rows, err := w.load.chunks(ctx, t.outcome.Session)
		if err != nil {
			w.fail("read session %s of run %s: %v", t.outcome.Session, t.ID, err)
			return
		}
		if t.Hint {
			// When it was heard is nobody's choice; that it was, once, is.
			heard := 0
			for _, r := range rows {
				if r.Text == hintFor(t.ID) {
					heard++
				}
			}
			if heard > 1 || heard == 0 && t.Hinted {
				w.fail("the message to run %s (acknowledged: %v) is in its session %d times", t.ID, t.Hinted, heard)
			}
			continue
		}
		var kinds []string
		for _, r := range rows {
			// Of a session that others work on too, only what is the run's. What
			// the author said before the first step has no run.
			if t.Session == "" || r.Run == t.ID || r.Kind == "user" && (r.Text == t.Prompt || strings.HasSuffix(r.Text, " of "+t.Prompt)) {
				kinds = append(kinds, r.Kind)
			}
		}
		got, want := strings.Join(kinds, " "), chunksOf(t.Workflow, t.Prompt)
		if t.Workflow == "fanout" && w.model.ill.Load() {
			// A sick model fails branches, which does not fail the fan-out.
			got, want = got[:min(len(got), len(want))], want[:min(len(got), len(want))]
		}
		if got != want {
			w.fail("run %s (%s %q) left\n%s\nwant\n%s", t.ID, t.Workflow, t.Prompt, got, want)
		}
	}
}

// crashes looks into the logs of all processes for ends that no fault made.
func (w *world) crashes() {
	w.t.Helper()
	for _, p := range w.f.All() {
		data, err := os.ReadFile(p.Log)
		if err != nil {
			w.fatal(err)
		}
		for _, sign := range []string{"panic:", "fatal error:", "DATA RACE", "unexpected fault address"} {
			if _, after, found := strings.Cut(string(data), sign); found {
				w.fail("%s crashed: %s%.2000s", p.Name, sign, after)
			}
		}
	}
}
