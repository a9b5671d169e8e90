//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/testkit/fleet"
)

// nemesis does harm to a world, in an order that its seed decides.
type nemesis struct {
	w  *world
	nc *nats.Conn // as operator
	js jetstream.JetStream

	mu      sync.Mutex
	down    map[*fleet.Process]bool // stays down until its fault ends
	poisons int                     // tasks that end their nodes
	done    map[string]int          // faults
	ended   map[string]int          // processes that ended by themselves
	work    []*nats.Msg             // that was published for nodes
	worked  int
	// revision of the workflows that the last upgrade brought.
	revision int
	next     string // program file of the next release
}

// fault does one kind of harm and ends it before it returns, or when ctx ends. Only random
// decides its actions.
type fault struct {
	name   string
	weight int
	do     func(n *nemesis, ctx context.Context, random *rand.Rand) error
}

// The faults of processes and networks, and those of their surroundings. One of each kind
// is active at a time.
var (
	hardFaults = []fault{
		{"kill -9 of nodes", 4, (*nemesis).killNodes},
		{"kill -9 of a NATS server", 2, (*nemesis).killServer},
		{"kill -9 of the leader of a stream of events", 2, (*nemesis).killLeader},
		{"kill -9 of all NATS servers", 1, (*nemesis).killServers},
		{"freeze of a node past every timeout", 3, (*nemesis).freezeNode},
		{"freeze of a NATS server", 1, (*nemesis).freezeServer},
		{"node cut off from NATS", 3, (*nemesis).cutNode},
		{"node cut off from NATS in one direction", 3, (*nemesis).cutNodeOneWay},
		{"NATS server cut off from the others", 2, (*nemesis).cutServer},
		{"nodes cut off from each other", 1, (*nemesis).cutNodes},
		{"loss of packets", 2, (*nemesis).losePackets},
		{"flapping of a node", 1, (*nemesis).flap},
		{"rolling restart of the nodes", 1, (*nemesis).rollNodes},
		{"rolling upgrade to the next release, or back", 3, (*nemesis).upgradeNodes},
		{"rolling restart of the NATS servers", 1, (*nemesis).rollServers},
		{"full disk of a NATS server", 1, (*nemesis).fillDisk},
	}
	softFaults = []fault{
		{"sick model", 4, (*nemesis).sicken},
		{"loss of the stored open sets and snapshots", 2, (*nemesis).purgeSnap},
		{"late and duplicate dispatches", 3, (*nemesis).repeatDispatches},
		{"old tasks submitted again", 2, (*nemesis).repeatTasks},
		{"runs of a node stand still", 3, (*nemesis).stallRuns},
		{"kill -9 of the program of a tool", 1, (*nemesis).killTool},
		{"task that ends its nodes", 2, (*nemesis).poison},
	}
)

func newNemesis(w *world) *nemesis {
	w.t.Helper()
	need(w.t, "iptables-restore", "iptables") // now, and not after minutes
	n := &nemesis{w: w, down: map[*fleet.Process]bool{}, done: map[string]int{}, ended: map[string]int{}, revision: 1}
	user, password := w.f.OperatorLogin()
	if w.off == "" {
		n.next = nextProgram(w.t)
	}
	var err error
	n.nc, err = nats.Connect(w.f.URLs(1), nats.Name("nemesis"), nats.UserInfo(user, password), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err == nil {
		w.t.Cleanup(n.nc.Close)
		n.js, err = jetstream.New(n.nc)
	}
	if err == nil {
		_, err = n.nc.Subscribe("rath.node.*.dispatch", n.see)
	}
	if err != nil {
		w.fatal(err)
	}
	return n
}

// run does harm until ctx ends, with both kinds of faults at a time.
func (n *nemesis) run(ctx context.Context) {
	var wg sync.WaitGroup
	for i, faults := range [][]fault{hardFaults, softFaults} {
		random := rand.New(rand.NewPCG(n.w.seed, uint64(10+i)))
		wg.Go(func() {
			for ctx.Err() == nil {
				n.one(ctx, pick(faults, random), random)
				sleep(ctx, time.Duration(200+random.IntN(1300))*time.Millisecond)
			}
		})
	}
	wg.Go(func() { every(ctx, 100*time.Millisecond, n.supervise) })
	wg.Wait()
}

func pick(faults []fault, random *rand.Rand) fault {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	at := random.IntN(total)
	for _, f := range faults {
		if at -= f.weight; at < 0 {
			return f
		}
	}
	panic("not reached")
}

func (n *nemesis) one(ctx context.Context, f fault, random *rand.Rand) {
	start := time.Now()
	// Each fault has its own source of random numbers, so that the amount it uses does not
	// affect later faults.
	err := f.do(n, ctx, rand.New(rand.NewPCG(random.Uint64(), random.Uint64())))
	n.w.load.write("fault", start, f.name, err)
	if err != nil { // it did not do its harm, or not all of it
		if !errors.Is(err, fleet.ErrNotRunning) && ctx.Err() == nil {
			n.w.fail("fault %q: %v", f.name, err)
		}
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done[f.name]++
}

// supervise restarts processes that ended by themselves, as a service manager does.
func (n *nemesis) supervise() {
	for _, p := range n.w.f.All() {
		n.mu.Lock()
		stays := n.down[p]
		if !stays && !p.Running() {
			n.ended[p.Name]++
			if err := p.Start(); err != nil {
				n.w.fail("%v", err)
			}
		}
		n.mu.Unlock()
	}
}

// maxPoisons bounds the tasks of a seed that end their nodes: each takes seven.
const maxPoisons = 2

// poison submits a task that ends each process which executes it. The checks verify its
// outcome and that of concurrent runs.
func (n *nemesis) poison(ctx context.Context, _ *rand.Rand) error {
	if n.poisons == maxPoisons {
		return fleet.ErrNotRunning
	}
	n.poisons++ // faults of its kind run sequentially
	t := &task{ID: fmt.Sprint("poison", n.poisons), Workflow: poisonous, Prompt: "end"}
	n.w.load.mu.Lock()
	n.w.load.add(t)
	n.w.load.mu.Unlock()
	for !n.w.load.submit(ctx, t) && ctx.Err() == nil { // the servers may be away for some seconds
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

// hold keeps processes down until it is released.
func (n *nemesis) hold(ps ...*fleet.Process) (release func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range ps {
		n.down[p] = true
	}
	return func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		var errs []error
		for _, p := range ps {
			delete(n.down, p)
			errs = append(errs, p.Start())
		}
		return errors.Join(errs...)
	}
}

// TestNemesis plays seeds: a fleet under load with every kind of fault. Each
// acknowledged task ends with one result, no call is executed twice in one attempt,
// and no read of a head is older than an earlier one. Seeds of half an hour together
// must show every kind of fault.
//
//	go test -tags=e2e -count=1 -timeout=2h -run '^TestNemesis$' ./e2e -seeds 20 -length 3m
//
// With -off it disables a protection and fails if no guarded invariant breaks. A seed
// of a minute found append_cas, persist_before_reply and wake_numbers. It missed
// attempt_fence and intent_expiry, which guard against moments that are too rare, and
// was not played without claim_before_read: TestFound of internal/core/protection
// plays each of the six on purpose.
//
//	go test -tags=e2e -count=1 -v -run '^TestNemesis$' ./e2e -off append_cas -seeds 1 -length 60s
func TestNemesis(t *testing.T) {
	seeds := []uint64{*flagSeed}
	if *flagSeed == 0 {
		seeds = nil
		for range *flagSeeds {
			seeds = append(seeds, rand.Uint64N(1_000_000))
		}
	}
	done := map[string]int{}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			if *flagOff != "" {
				playWithout(t, seed, *flagLength, *flagOff)
				return
			}
			for name, n := range play(t, seed, *flagLength) {
				done[name] += n
			}
		})
	}
	if *flagOff != "" || *flagLength*time.Duration(len(seeds)) < 30*time.Minute {
		return
	}
	for _, f := range slices.Concat(hardFaults, softFaults) {
		t.Logf("%4dx %s", done[f.name], f.name)
		if done[f.name] == 0 {
			t.Errorf("no seed shows %q", f.name)
		}
	}
}

// mix makes some of the nodes and routers begin as the next release.
func (n *nemesis) mix() {
	n.w.t.Helper()
	ctx, cancel := context.WithTimeout(n.w.t.Context(), time.Minute)
	defer cancel()
	var chosen []*fleet.Process
	for _, p := range n.workers() {
		if n.w.random.IntN(2) == 0 {
			chosen = append(chosen, p)
		}
	}
	if err := n.upgrade(ctx, n.next, chosen...); err != nil {
		n.w.fatal(err)
	}
}

// TestGuards: TestNemesis handles each protection that can be disabled.
func TestGuards(t *testing.T) {
	names := protection.Names()
	if len(names) != len(guards) {
		t.Errorf("%d protections, %d guards", len(names), len(guards))
	}
	for _, name := range names {
		if guards[name] == "" {
			t.Errorf("the test does not say what breaks without %s", name)
		}
	}
}

// guards maps a protection to the invariant that breaks without it.
var guards = map[string]string{
	"append_cas":           audit.OneWriter,
	"attempt_fence":        audit.OneWriter,
	"claim_before_read":    audit.ReadClaim,
	"dispatch_seen":        audit.OneWriter,
	"event_cursor":         audit.Events,
	"intent_expiry":        audit.NoRepeat,
	"limit_holders":        audit.Limits,
	"openset_tail":         audit.Results,
	"persist_before_reply": audit.Acknowledged,
	"round":                audit.Acknowledged, // of an embedded server, see TestRoundPowerCut
	"wake_numbers":         audit.Waits,
}

// playWithout plays a seed with a fleet that leaves a protection out.
func playWithout(t *testing.T, seed uint64, length time.Duration, off string) {
	invariant := guards[off]
	if invariant == "" {
		t.Fatalf("no protection %q: there are %v", off, slices.Sorted(maps.Keys(guards)))
	}
	w := playground(t, seed, off)
	n := newNemesis(w)
	w.work(length, 8, n.run)
	w.check()
	count, broken := map[string]int{}, ""
	for _, text := range w.found {
		what, is := strings.CutPrefix(text, "audit: ")
		if !is {
			count["clients"]++
			continue
		}
		name, _, _ := strings.Cut(what, ":")
		if count[name]++; name == invariant && broken == "" {
			broken = text
		}
	}
	t.Logf("seed %d without %s: violations %v", seed, off, count)
	for _, text := range w.found[:min(len(w.found), 20)] {
		t.Logf("%.400s", text)
	}
	if broken == "" {
		t.Errorf("without %s nothing broke %s in %v with seed %d", off, invariant, length, seed)
		return
	}
	t.Logf("found: %s", broken)
}

// playground is the world of TestNemesis.
func playground(t *testing.T, seed uint64, off string) *world {
	t.Helper()
	return newWorld(t, seed, shape{servers: 3, nodes: 3, routers: 2, slots: 8, disks: slices.Repeat([]fleet.Disk{{Size: 1 << 30}}, 3), off: off})
}

// play plays a seed and returns how often each fault occurred.
func play(t *testing.T, seed uint64, length time.Duration) map[string]int {
	w := playground(t, seed, "")
	w.again = fmt.Sprintf("go test -tags=e2e -count=1 -run '^TestNemesis$' ./e2e -seed %d -length %v", seed, length)
	n := newNemesis(w)
	n.mix()
	if length >= 3*time.Minute {
		w.lacks = w.missing
	}
	w.work(length, 8, n.run)
	n.mu.Lock()
	var lines []string
	for name, count := range n.done {
		lines = append(lines, fmt.Sprintf("%dx %s", count, name))
	}
	slices.Sort(lines)
	t.Logf("seed %d: %s; ended by themselves: %v", seed, strings.Join(lines, ", "), n.ended)
	n.mu.Unlock()
	if w.lacks != nil && len(w.lacks()) > 0 {
		w.fail("this seed shows nothing of: %s", strings.Join(w.lacks(), ", "))
	}
	w.check()
	return n.done
}
