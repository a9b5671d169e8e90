package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// speedBar is the target of a workload of BenchmarkSpeed.
type speedBar struct {
	bare    float64 // turns per second, as a multiple of the bare program's
	syncs   float64 // per turn
	cpu     float64 // ms per turn
	peakMiB float64
	stored  float64 // bytes of all streams, per byte of payload
}

// speedTask is the task of an agent that makes speedTurns turns.
const speedTask = "do all of the work"

// A turn is two durable steps with stepPayload bytes each.
const (
	speedSessions = 640
	speedAtOnce   = 64
	// speedTurns is the number of turns of a run, except in the workload with one run per
	// turn.
	speedTurns = 10
)

// BenchmarkSpeed runs 640 sessions, 64 at a time, on a node in its own process: steps of a
// workflow, an agent, and a run per turn. In the same minute a bare program makes two
// writes a turn on a server that syncs each write. Rates are medians of ratios. It counts
// the kernel's sync calls with perf (package linux-perf of Debian), which needs root, and
// fails if a bar is missed.
func BenchmarkSpeed(b *testing.B) {
	for _, w := range []struct {
		workflow string
		turns    int // of a run
		bar      speedBar
	}{
		{"steps", speedTurns, speedBar{1.2, 0.6, 0.50, 110, 4}},
		{"agent10", speedTurns, speedBar{0.9, 0.6, 0.60, 130, 4}},
		{"turn", 1, speedBar{0.5, 1.5, 1.0, 140, 4}},
	} {
		b.Run(w.workflow, func(b *testing.B) {
			for b.Loop() {
				speed(b, w.workflow, w.turns, w.bar)
			}
		})
	}
}

// speedRounds is the number of alternations of a workload and the bare program.
const speedRounds = 5

func speed(b *testing.B, workflow string, turnsOfRun int, bar speedBar) {
	const runs = speedSessions
	all := float64(runs * turnsOfRun)
	n := startGrowthNode(b, b.TempDir())
	nc := dial(b, n.at.URL)
	load(b, nc, workflow, newPrefix(), speedAtOnce, speedAtOnce)
	before := bytesOf(b, n)
	var rates, bares, ratios, syncs, cpus []float64
	peak := 0.0
	for range speedRounds {
		cpu, count := n.cpu(b), countSyncs(b, n.cmd.Process.Pid)
		began := time.Now()
		load(b, nc, workflow, newPrefix(), runs, speedAtOnce)
		rate := all / time.Since(began).Seconds()
		syncs = append(syncs, count()/all)
		cpus = append(cpus, (n.cpu(b)-cpu).Seconds()*1e3/all)
		if peak == 0 {
			peak = n.peak(b) // later it holds more sessions that have ended
		}
		bare := bareTurns(b, runs*turnsOfRun)
		rates, bares, ratios = append(rates, rate), append(bares, bare), append(ratios, rate/bare)
	}
	stored := float64(bytesOf(b, n)-before) / (speedRounds * all * 2 * stepPayload)
	nc.Close()
	n.stop(b)

	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s: 64 of %d runs at once, %d turns each\n", workflow, runs, turnsOfRun)
	row := func(ok bool, what string, have, bar float64) {
		verdict := "met"
		if !ok {
			verdict = "MISSED"
			b.Errorf("%s: %s %.2f, bar %.2f", workflow, what, have, bar)
		}
		fmt.Fprintf(w, "  %s\t%.2f\tbar %.2f\t%s\n", what, have, bar, verdict)
	}
	fmt.Fprintf(w, "  turns/s\t%.0f\tbare program: %.0f\t\n", median(rates), median(bares))
	x := median(ratios)
	row(x >= bar.bare, "x bare", x, bar.bare)
	s := median(syncs)
	row(s <= bar.syncs, "syncs per turn", s, bar.syncs)
	c := median(cpus)
	row(c <= bar.cpu, "CPU ms per turn", c, bar.cpu)
	row(peak <= bar.peakMiB, "peak MiB", peak, bar.peakMiB)
	row(stored <= bar.stored, "stored per byte of payload", stored, bar.stored)
	_ = w.Flush() // to memory
	fmt.Print("\n", text.String())
	b.ReportMetric(x, "x-bare")
	b.ReportMetric(s, "syncs/turn")
	b.ReportMetric(c, "cpu-ms/turn")
	b.ReportMetric(peak, "MiB-peak")
	b.ReportMetric(stored, "stored/payload")
}

// bytesOf returns the bytes that the streams of a node hold.
func bytesOf(b *testing.B, n *growthProcess) (sum uint64) {
	b.Helper()
	for _, s := range streamsOf(b, n) {
		sum += s.State.Bytes
	}
	return sum
}

// BenchmarkResting measures an idle node with its own server: messages per second that
// anyone publishes, and goroutines; and the number of messages of a run of one turn.
func BenchmarkResting(b *testing.B) {
	n := startGrowthNode(b, b.TempDir())
	defer n.stop(b)
	nc := dial(b, n.at.URL)
	load(b, nc, "turn", newPrefix(), speedAtOnce, speedAtOnce)
	op := must.Get(nats.Connect(n.at.URL, nats.UserInfo(n.at.OperatorUser, n.at.OperatorPassword)))(b)
	defer op.Close()
	var seen atomic.Int64
	must.Get(op.Subscribe(">", func(*nats.Msg) { seen.Add(1) }))(b)
	const rest, runs = 20 * time.Second, 500
	for b.Loop() {
		time.Sleep(rest) // ended sessions are stored
		before := seen.Load()
		time.Sleep(rest)
		idle := float64(seen.Load()-before) / rest.Seconds()
		before = seen.Load()
		began := time.Now()
		load(b, nc, "turn", newPrefix(), runs, 16)
		took := time.Since(began)
		time.Sleep(time.Second)
		b.ReportMetric(idle, "messages/s-idle")
		b.ReportMetric((float64(seen.Load()-before)-idle*(took.Seconds()+1))/runs, "messages/run")
	}
	must.Get(fmt.Fprintln(n.in, askGoroutines))(b)
	n.answered(b)
	goroutines := must.Get(strconv.Atoi(n.out.Text()))(b)
	b.ReportMetric(float64(goroutines), "goroutines")
	b.ReportMetric(float64(len(streamsOf(b, n))), "streams")
}

// bareTurns returns the turns per second of a program that makes two writes a turn, each
// after the acknowledgement of the previous one, 64 turns concurrently, over an in-process
// connection.
func bareTurns(b *testing.B, n int) float64 {
	b.Helper()
	srv, nc := unchangedServer(b)
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	defer nc.Close()
	js := bareStreams(b, nc)
	payload := []byte(words(stepPayload))
	next := make(chan int)
	var wg sync.WaitGroup
	began := time.Now()
	for range speedAtOnce {
		wg.Go(func() {
			for i := range next {
				for range 2 {
					if _, err := js.Publish(b.Context(), fmt.Sprintf("ev.%d.s%d", i%streams.EmbeddedPartitions, i), payload); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return float64(n) / time.Since(began).Seconds()
}

// countSyncs counts the calls of a process that sync files, from now until count is
// called.
func countSyncs(b *testing.B, pid int) (count func() float64) {
	b.Helper()
	var events []string
	for _, call := range []string{"fsync", "fdatasync", "syncfs"} {
		events = append(events, "syscalls:sys_enter_"+call)
	}
	var said bytes.Buffer
	perf := exec.CommandContext(b.Context(), "perf", "stat", "-x,", "-e", strings.Join(events, ","), "-p", strconv.Itoa(pid))
	perf.Stderr = &said
	if err := perf.Start(); err != nil {
		b.Fatalf("count what syncs: %v; install perf (Debian: linux-perf)", err)
	}
	time.Sleep(300 * time.Millisecond) // its start is not reported
	return func() float64 {
		must.Do(b, perf.Process.Signal(os.Interrupt))
		var exit *exec.ExitError
		if err := perf.Wait(); err != nil && !errors.As(err, &exit) {
			b.Fatal(err)
		}
		sum, lines := 0.0, 0
		for line := range strings.Lines(said.String()) {
			if v, _, ok := strings.Cut(line, ","); ok && strings.Contains(line, "syscalls:") {
				n, err := strconv.ParseFloat(v, 64)
				if err != nil {
					b.Fatalf("perf: %s", said.String())
				}
				sum, lines = sum+n, lines+1
			}
		}
		if lines != len(events) || sum == 0 {
			b.Fatalf("perf counted nothing; run it as root: %s", said.String())
		}
		return sum
	}
}

// cpu returns the CPU time used so far by the node's process.
func (n *growthProcess) cpu(b *testing.B) time.Duration {
	b.Helper()
	data := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid)))(b)
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	var ticks int64
	for _, f := range fields[11:13] { // utime, stime
		v := must.Get(strconv.ParseInt(f, 10, 64))(b)
		ticks += v
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// peak is the most that the process had resident, in MiB.
func (n *growthProcess) peak(b *testing.B) float64 {
	b.Helper()
	return float64(n.status(b, "VmHWM:")) / (1 << 20)
}

// speedWorkflows are the workflows of BenchmarkSpeed.
func speedWorkflows() []flow.Registration {
	return []flow.Registration{
		{Name: "steps", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				for i := range 2 * speedTurns {
					_, err := flow.Do(ctx, fmt.Sprint("step", i), func(context.Context) (string, error) { return words(stepPayload), nil }, tool.Idempotent)
					if err != nil {
						return s, err
					}
				}
				return s.With(session.UserText("done")), nil
			})
		}},
		{Name: "agent10", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				a := &flow.Agent{Name: "a", Prompt: "You work.", Tools: []tool.Tool{turnTool}}
				return a.Forward(ctx, s.With(session.UserText(speedTask)))
			})
		}},
	}
}
