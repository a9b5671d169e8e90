//go:build e2e && linux

package e2e

import (
	"context"
	crand "crypto/rand"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/fleet"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/openai"
)

var (
	flagSeed   = flag.Uint64("seed", 0, "the one seed of TestNemesis; 0 draws them")
	flagSeeds  = flag.Int("seeds", 3, "how many seeds TestNemesis plays")
	flagLength = flag.Duration("length", time.Minute, "how long TestNemesis plays a seed")
	flagOff    = flag.String("off", "", "the protection that TestNemesis leaves out, to show that this is noticed: append_cas and so on")
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
	tail   *tailer
	random *rand.Rand
	// again is the command that repeats this test.
	again string
	// lacks, if set, returns the requests that have not been sent: the load continues for
	// them, for a minute at most.
	lacks func() []string
	// off is the protection that the fleet lacks: violations are collected in found and do
	// not fail the test.
	off   string
	mu    sync.Mutex
	found []string
}

// shape is the composition of a world.
type shape struct {
	servers, nodes, routers int
	disks                   []fleet.Disk
	slots                   int
	lazy                    bool   // the servers acknowledge before they sync
	steady                  bool   // no faults of servers, and no connection is closed
	off                     string // the protection that nodes and routers lack
}

// newWorld starts a fleet for a test. All its randomness derives from seed.
func newWorld(t *testing.T, seed uint64, s shape) *world {
	t.Helper()
	w := &world{t: t, seed: seed, off: s.off, random: rand.New(rand.NewPCG(seed, 1))}
	w.again = fmt.Sprintf("go test -tags=e2e -count=1 -run '^%s$' ./e2e -seed %d", t.Name(), seed)
	if *flagKeep != "" {
		w.dir = filepath.Join(*flagKeep, fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), seed))
		must.Do(t, errors.Join(os.RemoveAll(w.dir), os.MkdirAll(w.dir, 0o700)))
	} else {
		w.dir = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var err error
	w.f, err = fleet.Start(ctx, &fleet.Options{Dir: w.dir, Servers: s.servers, Disks: s.disks, Lazy: s.lazy})
	if err != nil {
		w.fatal(err)
	}
	t.Cleanup(func() { must.Report(t, w.f.Close()) })
	if w.model, err = newModelHost(w.f.Self(), crand.Text(), "testdata/fleet.txtar", w.path("model.jsonl"), 30*time.Millisecond); err != nil {
		w.fatal(err)
	}
	t.Cleanup(func() { must.Report(t, w.model.close()) })
	if err := errors.Join(os.Mkdir(w.path("files"), 0o700), os.Mkdir(w.path("stalls"), 0o700), os.WriteFile(w.path("files", "all.txt"), []byte("start\n"), 0o600)); err != nil {
		w.fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.fatal(err)
	}
	if s.off != "" {
		self = programWithout(t, s.off)
	}
	node := fleet.Program{Path: self, Env: []string{
		childEnv + "=fleet-node", openai.EnvKey + "=" + w.model.key, "OPENAI_BASE_URL=" + w.model.url, envWitness + "=" + w.path("witness.jsonl"), envModel + "=" + w.model.url, envFiles + "=" + w.path("files"),
		envStall + "=" + w.path("stalls"),
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
	router := fleet.Program{Path: self, Args: []string{"-model", "m"}, Env: []string{childEnv + "=fleet-router", openai.EnvKey + "=" + w.model.key, "OPENAI_BASE_URL=" + w.model.url}}
	if err := w.f.AddRouters(ctx, s.routers, router); err != nil {
		w.fatal(err)
	}
	toolProgram := fleet.Program{Path: self, Env: []string{childEnv + "=fleet-tool", envWitness + "=" + w.path("witness.jsonl"), envStall + "=" + w.path("stalls")}}
	if err := w.f.AddProgram(ctx, "tool-0", "the tool is up", toolProgram); err != nil {
		w.fatal(err)
	}
	if w.load, err = newClients(w.f, seed, s.steady, w.path("history.jsonl"), w.path("told.jsonl"), w.path("witness.jsonl")); err != nil {
		w.fatal(err)
	}
	t.Cleanup(func() { must.Report(t, w.load.close()) })
	if w.tail, err = followLineage(ctx, w.f.URLs(0)); err != nil {
		w.fatal(err)
	}
	t.Cleanup(func() {
		if err := w.tail.close(); err != nil {
			t.Errorf("the tail ended: %v", err)
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
	if w.off != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.found = append(w.found, fmt.Sprintf(format, args...))
		return
	}
	w.t.Errorf("%s\n\tseed %d; again: %s", fmt.Sprintf(format, args...), w.seed, w.again)
}

func (w *world) fatal(err error) {
	w.t.Helper()
	w.t.Fatalf("%v\n\tseed %d; again: %s", err, w.seed, w.again)
}

// work lets the load run while f does harm, for a time and until f returns, then
// heals everything, and waits until every acknowledged task has its result.
func (w *world) work(length time.Duration, atOnce int, f func(ctx context.Context)) {
	w.t.Helper()
	loaded, unload := context.WithCancel(w.t.Context())
	defer unload()
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		w.busy(loaded, atOnce)
	}()
	ctx, cancel := context.WithTimeout(w.t.Context(), length)
	defer cancel()
	f(ctx)
	<-ctx.Done()
	unload()
	<-busy
	w.heal()
	// The clients now send the requests that they missed during the faults.
	for end := time.Now().Add(time.Minute); w.lacks != nil && len(w.lacks()) > 0 && time.Now().Before(end); {
		more, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		w.busy(more, atOnce)
		cancel()
	}
	finish, cancel := context.WithTimeout(w.t.Context(), settle)
	defer cancel()
	began := time.Now()
	if w.off != "" {
		w.wreck()
		return
	}
	err := w.finish(finish)
	if err != nil {
		w.fail("%v after everything was healed: %v", settle, err)
		return
	}
	w.t.Logf("all tasks have a result %v after everything was healed", time.Since(began).Round(time.Millisecond))
	// A remaining message in a queue must leave time for the other checks.
	emptying, cancel := context.WithTimeout(w.t.Context(), settle)
	defer cancel()
	w.empty(emptying)
	finish, cancel = context.WithTimeout(w.t.Context(), settle)
	defer cancel()
	w.stored(finish)
	w.transcripts(finish)
	w.audit(finish)
	w.observed(finish)
}

// finish waits until every acknowledged task has its result, and starts again the
// processes that tasks end, as a service manager does.
func (w *world) finish(ctx context.Context) error {
	supervised, stop := context.WithCancel(ctx)
	var manager sync.WaitGroup
	defer manager.Wait()
	defer stop()
	manager.Go(func() {
		every(supervised, 100*time.Millisecond, func() {
			for _, p := range w.f.All() {
				if p.Running() {
					continue
				}
				if err := p.Start(); err != nil {
					w.fail("%v", err)
				}
			}
		})
	})
	return w.load.finish(ctx)
}

// busy runs the clients, and the operators who answer them, until ctx ends.
func (w *world) busy(ctx context.Context, atOnce int) {
	var people sync.WaitGroup
	people.Go(func() {
		every(ctx, 500*time.Millisecond, func() {
			w.load.decide(ctx)
			w.load.answer(ctx)
		})
	})
	w.load.run(ctx, atOnce)
	people.Wait()
}

// wreck examines the remains of a fleet without one of its protections. The fleet may be
// stuck for good.
func (w *world) wreck() {
	w.t.Helper()
	const wait = 30 * time.Second
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*wait)
	defer cancel()
	most, cancelMost := context.WithTimeout(ctx, wait)
	defer cancelMost()
	if err := w.load.finish(most); err != nil {
		text, _, _ := strings.Cut(err.Error(), "\n")
		w.fail("%v after everything was healed: %s", wait, text)
	}
	w.audit(ctx)
}

// settle bounds the time of the last runs without disturbance except by tasks that end
// their nodes. Each of those is repeated alone until it has ended three nodes. Each time a
// node restarts, is detected as missing and gets runs again.
const settle = 6 * time.Minute

// heal ends all faults and starts all stopped processes.
func (w *world) heal() {
	w.t.Helper()
	w.model.sick.Store(nil)
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
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
	// A process that cannot reach NATS ends, be it a node or the program of a tool; a service
	// manager restarts it.
	for _, p := range slices.Concat(w.f.Nodes(), w.f.Routers(), w.f.Others()) {
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
