//go:build unix

package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rathcluster/rath/internal/testkit/must"
)

const (
	envJoin = "RATH_CLUSTER_TEST_JOIN"
	envName = "RATH_CLUSTER_TEST_NAME"
	envTune = "RATH_CLUSTER_TEST_TUNE"
)

// TestMain lets this binary also be one node of a fleet, in a process of its own
// that can be killed or stopped, or a process that burns CPU.
func TestMain(m *testing.M) {
	switch join := os.Getenv(envJoin); join {
	case "":
		os.Exit(m.Run())
	case "burn":
		var turns atomic.Int64
		for range runtime.NumCPU() {
			go func() {
				for {
					turns.Add(1)
				}
			}()
		}
		io.Copy(io.Discard, os.Stdin)
	default:
		if err := serve(join); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
}

// serve is a node until its parent closes its input. It prints joins and departures, as
// "here" or "gone", the incarnation, and the time.
func serve(join string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	m, err := Start(ctx, processConfig(os.Getenv(envName), os.Getenv(envTune), join))
	if err != nil {
		return err
	}
	watch(ctx, m, func(line string) { fmt.Println(line) })
	return m.Close()
}

func processConfig(name, tune string, join ...string) Config {
	return Config{
		Name: name, Incarnation: name, Bind: "127.0.0.1:0", Join: join, Key: testKey, Protocol: 1,
		tune: tunings[tune],
	}
}

// tunings are the settings that BenchmarkDetect compares.
var tunings = map[string]func(*memberlist.Config){
	"": nil,
	"patient": func(c *memberlist.Config) {
		c.SuspicionMult = 4
	},
	"slow": func(c *memberlist.Config) {
		c.ProbeInterval, c.ProbeTimeout, c.SuspicionMaxTimeoutMult, c.GossipInterval = 500*time.Millisecond, 250*time.Millisecond, 3, 100*time.Millisecond
	},
	"hasty": func(c *memberlist.Config) {
		c.ProbeInterval, c.ProbeTimeout, c.SuspicionMult, c.SuspicionMaxTimeoutMult = 100*time.Millisecond, 50*time.Millisecond, 2, 1
	},
}

// watch reports joins and departures until ctx ends.
func watch(ctx context.Context, m *Members, tell func(line string)) {
	seen := map[string]bool{}
	for {
		changed := m.Changed()
		now := map[string]bool{}
		for _, n := range m.List() {
			now[n.Incarnation] = true
			if !seen[n.Incarnation] {
				tell(fmt.Sprintf("here %s %d", n.Incarnation, time.Now().UnixMicro()))
			}
		}
		for inc := range seen {
			if !now[inc] {
				tell(fmt.Sprintf("gone %s %d", inc, time.Now().UnixMicro()))
			}
		}
		seen = now
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// processes holds this process's node and others in processes of their own.
type processes struct {
	tb   testing.TB
	tune string
	seed *Members

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each event
	events  []event
	nodes   map[string]*exec.Cmd
}

// event is one node's observation of another.
type event struct {
	by, what, whom string
	at             time.Time
}

func startProcesses(tb testing.TB, tune string, names ...string) *processes {
	p := &processes{tb: tb, tune: tune, changed: make(chan struct{}), nodes: map[string]*exec.Cmd{}}
	p.seed = open(tb, processConfig("seed", tune))
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { watch(ctx, p.seed, func(line string) { p.tell("seed", line) }) })
	tb.Cleanup(func() {
		for name := range p.nodes {
			p.signal(name, syscall.SIGKILL)
		}
		cancel()
		work.Wait()
		p.seed.Close()
	})
	for _, name := range names {
		p.start(name)
	}
	return p
}

// run starts this binary once more, until the test ends.
func run(tb testing.TB, env ...string) (*exec.Cmd, io.Reader) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	out := must.Get(cmd.StdoutPipe())(tb)
	must.Get(cmd.StdinPipe())(tb)
	must.Do(tb, cmd.Start())
	return cmd, out
}

func (p *processes) start(name string) {
	cmd, out := run(p.tb, envJoin+"="+p.seed.Addr(), envName+"="+name, envTune+"="+p.tune)
	p.mu.Lock()
	p.nodes[name] = cmd
	p.mu.Unlock()
	go func() { // ends with the process
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.tell(name, lines.Text())
		}
	}()
}

func (p *processes) tell(by, line string) {
	e := event{by: by}
	var at int64
	if n, _ := fmt.Sscan(line, &e.what, &e.whom, &at); n != 3 {
		e.what = line
	}
	e.at = time.UnixMicro(at)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
	close(p.changed)
	p.changed = make(chan struct{})
}

// signal kills, stops or continues a node; it waits for the end of a killed one.
func (p *processes) signal(name string, s syscall.Signal) time.Time {
	p.mu.Lock()
	cmd := p.nodes[name]
	p.mu.Unlock()
	now := time.Now()
	if err := cmd.Process.Signal(s); err != nil {
		p.tb.Errorf("signal %s: %v", name, err)
	}
	if s == syscall.SIGKILL {
		cmd.Wait()
		p.mu.Lock()
		delete(p.nodes, name)
		p.mu.Unlock()
	}
	return now
}

// all waits until every node in by has observed an event of whom later than after, and
// returns the time from after to the last observation.
func (p *processes) all(within time.Duration, what, whom string, after time.Time, by ...string) time.Duration {
	p.tb.Helper()
	end := time.After(within)
	for {
		p.mu.Lock()
		changed := p.changed
		last, missing := time.Duration(0), slices.Clone(by)
		for _, e := range p.events {
			if e.what == what && e.whom == whom && !e.at.Before(after) && slices.Contains(missing, e.by) {
				last = max(last, e.at.Sub(after))
				missing = slices.DeleteFunc(missing, func(n string) bool { return n == e.by })
			}
		}
		events := p.events
		p.mu.Unlock()
		if len(missing) == 0 {
			return last
		}
		select {
		case <-changed:
		case <-end:
			p.tb.Fatalf("%v: %s %s not seen by %v:\n%v", within, what, whom, missing, events)
		}
	}
}

// gone counts how often nodes were called dead.
func (p *processes) gone() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, e := range p.events {
		if e.what == "gone" {
			n++
		}
	}
	return n
}

// All nodes call a killed node and a frozen one dead, and a frozen one that wakes up
// lives again under the same incarnation, in all views and in its own. The bound is
// generous, for busy machines; BenchmarkDetect measures.
func TestProcesses(t *testing.T) {
	t.Parallel()
	const soon = 8 * time.Second
	start := time.Now()
	p := startProcesses(t, "", "a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		p.all(soon, "here", name, start, "seed", "a", "b", "c")
	}
	at := p.signal("c", syscall.SIGKILL)
	t.Logf("killed: seen after %v", p.all(soon, "gone", "c", at, "seed", "a", "b"))
	at = p.signal("b", syscall.SIGSTOP)
	t.Logf("frozen: seen after %v", p.all(soon, "gone", "b", at, "seed", "a"))
	if p.seed.Alive("b") {
		t.Error("a frozen node is said to live")
	}
	at = p.signal("b", syscall.SIGCONT)
	t.Logf("awake: seen after %v", p.all(soon, "here", "b", at, "seed", "a"))
	await(t, p.seed, soon, func(ns []Node) bool { return len(ns) == 3 })
}

// BenchmarkDetect measures with four real processes the time until all others call a
// killed or frozen node dead, and, while twice as many processes keep all CPUs busy,
// how often a live node is called dead. Run it with -benchtime=20x.
func BenchmarkDetect(b *testing.B) {
	for _, tune := range []string{"", "patient", "slow", "hasty"} {
		name := tune
		if name == "" {
			name = "chosen"
		}
		b.Run(name+"/kill", func(b *testing.B) { detect(b, tune, syscall.SIGKILL) })
		b.Run(name+"/freeze", func(b *testing.B) { detect(b, tune, syscall.SIGSTOP) })
		b.Run(name+"/busy", func(b *testing.B) { busy(b, tune) })
	}
}

func detect(b *testing.B, tune string, s syscall.Signal) {
	p := startProcesses(b, tune, "a", "b")
	start := time.Now()
	var took, back []time.Duration
	for i := range b.N {
		name := fmt.Sprintf("victim-%d", i)
		if s != syscall.SIGKILL {
			name = "victim"
		}
		if s == syscall.SIGKILL || i == 0 {
			p.start(name)
			p.all(10*time.Second, "here", name, start, "seed", "a", "b", name)
		}
		time.Sleep(time.Duration(i%10) * probeInterval / 10) // at any time between two probes
		at := p.signal(name, s)
		took = append(took, p.all(30*time.Second, "gone", name, at, "seed", "a", "b"))
		if s == syscall.SIGSTOP {
			at = p.signal(name, syscall.SIGCONT)
			back = append(back, p.all(60*time.Second, "here", name, at, "seed", "a", "b"))
		}
	}
	report(b, took, "")
	report(b, back, "-back")
	b.ReportMetric(0, "ns/op")
}

func report(b *testing.B, took []time.Duration, suffix string) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms"+suffix)
	b.ReportMetric(float64(took[len(took)-1].Milliseconds()), "max-ms"+suffix)
}

// busy counts for one second per iteration.
func busy(b *testing.B, tune string) {
	p := startProcesses(b, tune, "a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		p.all(10*time.Second, "here", name, time.Time{}, "seed", "a", "b", "c")
	}
	for range 2 {
		cmd, _ := run(b, envJoin+"=burn")
		defer func() {
			cmd.Process.Kill()
			cmd.Wait()
		}()
	}
	time.Sleep(time.Duration(b.N) * time.Second)
	b.ReportMetric(float64(p.gone()), "false-deaths")
	b.ReportMetric(float64(b.N), "seconds")
	b.ReportMetric(0, "ns/op")
}
