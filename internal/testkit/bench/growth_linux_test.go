package bench

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// The bars of BenchmarkGrowth.
const (
	growthResident = 120 << 20
	growthStart    = time.Second
	growthRatio    = 4.0
)

const (
	// stepPayload is the size of the data that each of a turn's two steps, a model call and a
	// tool call, records.
	stepPayload = 512
	// growthSettle is the idle time before a node's memory is measured: ended sessions stay
	// for a minute. growthRest is the time after work: the server forgets the location of
	// subjects in a block after two minutes, and node/slack.go releases the memory.
	growthSettle, growthRest = 90 * time.Second, 200 * time.Second
	// growthProbe is the number of turns, one at a time, of which the latency is measured.
	growthProbe = 200
)

var (
	growthRuns    = flag.Int("growth.runs", 100_000, "runs of BenchmarkGrowth")
	growthProfile = flag.String("growth.profile", "", "directory for heap profiles of BenchmarkGrowth's node")
)

// growthNode is set in the environment of the process that is the node of
// BenchmarkGrowth: to the directory of its store.
const growthNode = "RATH_BENCH_GROWTH_NODE"

// growthWeb in the environment is the address at which the node serves the API.
const growthWeb = "RATH_BENCH_GROWTH_WEB"

// BenchmarkGrowth runs tasks of one turn on an embedded node in its own process and reports
// the remaining costs: resident memory, the start time of a node over the store, and bytes
// on disk. It fails if a bar is missed.
func BenchmarkGrowth(b *testing.B) {
	for b.Loop() {
		growth(b, *growthRuns)
	}
}

func growth(b *testing.B, runs int) {
	store := b.TempDir()
	n := startGrowthNode(b, store)
	nc := dial(b, n.at.URL)
	load(b, nc, "turn", newPrefix(), 64, 64)
	first := median(load(b, nc, "turn", newPrefix(), growthProbe, 1))
	fresh := n.resident(b)
	began := time.Now()
	load(b, nc, "turn", newPrefix(), runs, 64)
	span := time.Since(began)
	loaded := n.resident(b)
	n.profile(b, "loaded")
	caughtUp(b, nc)
	began = time.Now()
	caughtUp(b, nc)
	list := time.Since(began)
	last := median(load(b, nc, "turn", newPrefix(), growthProbe, 1))
	time.Sleep(growthRest)
	idle := n.resident(b)
	n.profile(b, "idle")
	streams := streamsOf(b, n)
	nc.Close()
	n.stop(b)
	disk := sizeOf(b, store)
	n = startGrowthNode(b, store)
	time.Sleep(growthSettle)
	again := n.resident(b)
	n.profile(b, "again")
	n.stop(b)

	all := runs + 64 + 2*growthProbe
	ratio := float64(disk) / float64(all*2*stepPayload)
	mib := func(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(ok bool, what, have, bar string) {
		verdict := ""
		switch {
		case bar == "":
		case ok:
			verdict = "met"
		default:
			verdict = "MISSED"
			b.Errorf("%s: %s, bar %s", what, have, bar)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", what, have, bar, verdict)
	}
	row(true, "runs", fmt.Sprintf("%d in %v, %.0f/s", all, span.Round(time.Second), float64(runs)/span.Seconds()), "")
	row(true, "resident, fresh", mib(fresh), "")
	row(true, "resident, under load", mib(loaded), "")
	row(idle <= growthResident, "resident, idle after it", mib(idle), mib(growthResident))
	row(again <= growthResident, "resident, started again", mib(again), mib(growthResident))
	row(n.took <= growthStart, "start over the store", n.took.Round(time.Millisecond).String(), growthStart.String())
	row(true, "disk", fmt.Sprintf("%s, %d bytes a run", mib(disk), disk/int64(all)), "")
	row(ratio <= growthRatio, "stored per byte of payload", fmt.Sprintf("%.2f", ratio), fmt.Sprintf("%.2f", growthRatio))
	row(true, "turn p50 at the beginning", first.Round(10*time.Microsecond).String(), "")
	row(true, "turn p50 at the end", last.Round(10*time.Microsecond).String(), "")
	row(true, "list of the last 20 runs", list.Round(10*time.Microsecond).String(), "")
	for _, s := range streams {
		row(true, "  "+s.Config.Name, fmt.Sprintf("%d bytes a run, %d messages, %d subjects", s.State.Bytes/uint64(all), s.State.Msgs, s.State.NumSubjects), "")
	}
	_ = w.Flush() // to memory
	fmt.Print("\n", text.String())
	b.ReportMetric(float64(idle)/(1<<20), "MiB-resident")
	b.ReportMetric(n.took.Seconds()*1000, "ms-start")
	b.ReportMetric(ratio, "stored/payload")
}

// caughtUp asks for the last runs until all that was committed is in the answer.
func caughtUp(b *testing.B, nc *nats.Conn) {
	b.Helper()
	for range 10 {
		m := must.Get(nc.Request("rath.query.default.runs", []byte(`{"limit":20}`), time.Minute))(b)
		if m.Header.Get("Nats-Service-Error-Code") == "" {
			return
		}
	}
	b.Fatal("the lineage does not catch up")
}

// growthProcess is a node in a process of its own.
type growthProcess struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	took time.Duration // from the start of the process to the start of the node
	at   supervise.Attachment
}

func startGrowthNode(b *testing.B, store string) *growthProcess {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), growthNode+"="+store)
	cmd.Stderr = os.Stderr
	in := must.Get(cmd.StdinPipe())(b)
	out := must.Get(cmd.StdoutPipe())(b)
	began := time.Now()
	must.Do(b, cmd.Start())
	n := &growthProcess{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	n.answered(b)
	n.took = time.Since(began)
	n.at = must.Get(supervise.ReadAttachment(store))(b)
	return n
}

// answered waits for the next line of the node's process.
func (n *growthProcess) answered(b *testing.B) {
	b.Helper()
	if !n.out.Scan() {
		b.Fatalf("the node has ended: %v, %v", n.out.Err(), n.cmd.Wait())
	}
}

// profile has the node write a profile of its heap.
func (n *growthProcess) profile(b *testing.B, name string) {
	b.Helper()
	if *growthProfile == "" {
		return
	}
	must.Get(fmt.Fprintln(n.in, filepath.Join(*growthProfile, name+".pb.gz")))(b)
	n.answered(b)
}

func (n *growthProcess) stop(b *testing.B) {
	b.Helper()
	must.Report(b, n.in.Close())
	if err := n.cmd.Wait(); err != nil {
		b.Errorf("the node: %v", err)
	}
}

// resident is the process's VmRSS in bytes.
func (n *growthProcess) resident(b *testing.B) int64 { return n.status(b, "VmRSS:") }

// status returns a number of bytes from the kernel's status of the process.
func (n *growthProcess) status(b *testing.B, name string) int64 {
	b.Helper()
	data := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid)))(b)
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, name); ok {
			kb := must.Get(strconv.ParseInt(strings.Fields(text)[0], 10, 64))(b)
			return kb << 10
		}
	}
	b.Fatalf("no %s in %s", name, data)
	return 0
}

// alone runs BenchmarkGrowth's node if this process was started for it.
func alone() {
	store := os.Getenv(growthNode)
	if store == "" {
		return
	}
	if err := growthNodeMain(store); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// askGoroutines asks the node's process for its number of goroutines.
const askGoroutines = "goroutines"

// growthNodeMain is the node's process: it starts a node over a store as node.Main does,
// reports it, and ends when its standard input ends. Each line of the input is a file for a
// profile.
func growthNodeMain(store string) error {
	node.TuneMemory(os.Getenv)
	n, err := node.Start(context.Background(), &node.Options{
		Store: store, NATS: node.NATS{Port: -1}, Models: node.Models{Source: turnModel{}}, Slots: 128, HTTP: node.HTTP{Web: os.Getenv(growthWeb)},
		Workflows: append(speedWorkflows(), flow.Registration{Name: "plain", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(_ context.Context, s session.Session) (session.Session, error) { return s, nil })
		}}, flow.Registration{Name: "turn", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				a := &flow.Agent{Name: "a", Prompt: "You work.", Tools: []tool.Tool{turnTool}}
				return a.Forward(ctx, s.With(session.UserText("do the work")))
			})
		}}),
	})
	if err != nil {
		return err
	}
	fmt.Println("started")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() == askGoroutines {
			fmt.Println(runtime.NumGoroutine())
			continue
		}
		if err := writeHeap(in.Text()); err != nil {
			return errors.Join(err, n.Close())
		}
		fmt.Println("written")
	}
	return n.Close()
}

func writeHeap(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	runtime.GC()
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}

// turnModel answers with a text and a call, once or as often as speedTask requests, and
// then ends the turn.
type turnModel struct{}

func (m turnModel) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

func (turnModel) Complete(_ context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	usage := session.Usage{Input: 100, Output: 20}
	turns, made := 1, 0
	for _, m := range r.Messages {
		switch {
		case m.Role == llm.Tool:
			made++
		case m.Text == speedTask:
			turns = speedTurns
		}
	}
	if made >= turns {
		return &llm.Response{Text: "done", Finish: llm.FinishStop, Usage: usage, Model: "bench"}, nil
	}
	return &llm.Response{
		Text: words(stepPayload), Finish: llm.FinishTools, Usage: usage, Model: "bench", Calls: []session.ToolCall{{ID: fmt.Sprint("call_", made), Name: "look", Args: "{}"}},
	}, nil
}

var turnTool = tool.Func("look", "Looks.", func(context.Context, struct{}) (string, error) {
	return words(stepPayload), nil
}, &tool.FuncOptions{Effect: tool.Idempotent})

// words returns an incompressible text of n bytes.
func words(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(rand.Text() + " ")
	}
	return b.String()[:n]
}

// streamsOf returns how the streams of a node stand.
func streamsOf(b *testing.B, n *growthProcess) []*jetstream.StreamInfo {
	b.Helper()
	nc := must.Get(nats.Connect(n.at.URL, nats.UserInfo(n.at.OperatorUser, n.at.OperatorPassword)))(b)
	defer nc.Close()
	js := must.Get(jetstream.New(nc))(b)
	var all []*jetstream.StreamInfo
	list := js.ListStreams(b.Context())
	for s := range list.Info() {
		all = append(all, s)
	}
	must.Do(b, list.Err())
	slices.SortFunc(all, func(x, y *jetstream.StreamInfo) int { return cmp.Compare(x.Config.Name, y.Config.Name) })
	return all
}

// sizeOf returns the bytes of the files below a directory.
func sizeOf(b *testing.B, dir string) int64 {
	b.Helper()
	var sum int64
	must.Do(b, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	}))
	return sum
}
