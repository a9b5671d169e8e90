package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func TestMain(m *testing.M) {
	local.Reexec()
	alone()
	os.Exit(m.Run())
}

const (
	// stepBar bounds the wait of a single run between two steps, in bare publishes. slowBar
	// bounds the time of 64 tasks over NATS, in calls of their model.
	stepBar = 1.4
	slowBar = 1.6
)

// turns is the number of turns of a run, each with a model call and a tool call.
const turns = 10

// model calls the tool in each of its first turns (0: turns) and then stops.
type model struct {
	delay time.Duration
	turns int
}

func (m model) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

func (m model) Complete(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	defer stepOf(ctx)()
	if m.delay > 0 {
		select {
		case <-time.After(m.delay):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	answers := 0
	for _, msg := range r.Messages {
		if msg.Role == llm.Assistant {
			answers++
		}
	}
	usage := session.Usage{Input: int64(100 * len(r.Messages)), Output: 20}
	want := turns
	if m.turns > 0 {
		want = m.turns
	}
	if answers >= want || len(r.Tools) == 0 {
		if sink != nil {
			sink(llm.Delta{Text: "done"})
		}
		return &llm.Response{Text: "done", Finish: llm.FinishStop, Usage: usage, Model: "bench"}, nil
	}
	text := "I look at the next part of the work and call the tool."
	if sink != nil {
		sink(llm.Delta{Text: text})
	}
	return &llm.Response{
		Text: text, Finish: llm.FinishTools, Usage: usage, Model: "bench",
		Calls: []session.ToolCall{{ID: fmt.Sprint("call_", answers), Name: "noop", Args: `{"path":"a/b/c.go"}`}},
	}, nil
}

var noop = tool.Func("noop", "Does nothing.", func(ctx context.Context, in struct {
	Path string `json:"path"`
},
) (string, error) {
	defer stepOf(ctx)()
	return "nothing done to " + in.Path, nil
}, &tool.FuncOptions{Effect: tool.Idempotent})

// steps measures a run's wait between two steps: from the end of a model or tool call to
// the start of the next, which includes the commit of the first one and all other work of
// the runtime.
type steps struct {
	mu   sync.Mutex
	took []time.Duration
}

// watch is a run's place in steps.
type watch struct {
	all *steps
	end time.Time // of the step before
}

type watchKey struct{}

// of returns the context for a new run. The steps of a run follow each other.
func (s *steps) of(ctx context.Context) context.Context {
	return context.WithValue(ctx, watchKey{}, &watch{all: s})
}

// take returns the measurements since the last call.
func (s *steps) take() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := s.took
	s.took = nil
	return took
}

// stepOf records the start of a step; the returned function records its end.
func stepOf(ctx context.Context) func() {
	w, ok := ctx.Value(watchKey{}).(*watch)
	if !ok {
		return func() {}
	}
	if !w.end.IsZero() {
		w.all.mu.Lock()
		w.all.took = append(w.all.took, time.Since(w.end))
		w.all.mu.Unlock()
	}
	return func() { w.end = time.Now() }
}

// ids generates the ids of tasks. No id is reused, because a task with a known id is
// answered without being run.
var ids atomic.Int64

func newPrefix() string { return fmt.Sprintf("r%d-", ids.Add(1)) }

// start starts a node that offers "turns" and "one".
func start(b *testing.B, m llm.Models) (*node.Instance, *steps) {
	b.Helper()
	var measured steps
	n, err := node.Start(b.Context(), &node.Options{
		Store: b.TempDir(), NATS: node.NATS{Port: -1}, Models: node.Models{Source: m}, Slots: 128,
		Workflows: []flow.Registration{
			{Name: "turns", Revision: "1", New: func() flow.Workflow {
				return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					a := &flow.Agent{Name: "a", Prompt: "You work.", Tools: []tool.Tool{noop}}
					return a.Forward(measured.of(ctx), s.With(session.UserText("do the work")))
				})
			}},
			{Name: "one", Revision: "1", New: func() flow.Workflow {
				return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					_, err := flow.Do(ctx, "step", func(context.Context) (int, error) { return 1, nil }, tool.Idempotent)
					return s.With(session.UserText("done")), err
				})
			}},
		},
	})
	must.Do(b, err)
	b.Cleanup(func() { must.Report(b, n.Close()) })
	return n, &measured
}

func dial(b *testing.B, url string) *nats.Conn {
	b.Helper()
	nc := must.Get(nats.Connect(url))(b)
	b.Cleanup(nc.Close)
	return nc
}

// load submits tasks, inFlight at a time, and waits for their results. It returns the
// duration of each.
func load(b *testing.B, nc *nats.Conn, workflow, prefix string, tasks, inFlight int) []time.Duration {
	b.Helper()
	return loadBy(b, nc, func(id string, _ int) error { return submit(nc, workflow, id) }, prefix, tasks, inFlight)
}

// loadBy is load with another way to submit a task: send gets its id and the number of the
// submitter.
func loadBy(b *testing.B, nc *nats.Conn, send func(id string, by int) error, prefix string, tasks, inFlight int) []time.Duration {
	b.Helper()
	took := make([]time.Duration, tasks)
	next := make(chan int)
	var wg sync.WaitGroup
	for by := range inFlight {
		wg.Go(func() {
			for i := range next {
				began := time.Now()
				id := prefix + strconv.Itoa(i)
				must.Report(b, awaited(nc, id, func() error { return send(id, by) }))
				took[i] = time.Since(began)
			}
		})
	}
	for i := range tasks {
		next <- i
	}
	close(next)
	wg.Wait()
	return took
}

// submit submits a task.
func submit(nc *nats.Conn, workflow, id string) error {
	ack, err := nc.Request("rath.task.default.anonymous."+workflow, fmt.Appendf(nil, `{"id":%q}`, id), time.Minute)
	if err != nil {
		return fmt.Errorf("submit %s: %w", id, err)
	}
	var refused struct {
		Error *struct{ Description string }
	}
	if json.Unmarshal(ack.Data, &refused) == nil && refused.Error != nil {
		return fmt.Errorf("submit %s: %s", id, refused.Error.Description)
	}
	return nil
}

// awaited sends a task and waits for the result of its run.
func awaited(nc *nats.Conn, id string, send func() error) error {
	// A buffer for one message: the client's own makes room for 64 Ki.
	results := make(chan *nats.Msg, 1)
	sub, err := nc.ChanSubscribe("rath.run.default."+id+".result", results)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := send(); err != nil {
		return err
	}
	m, err := await(results, 2*time.Minute)
	if err != nil {
		return fmt.Errorf("result of %s: %w", id, err)
	}
	var r struct{ State string }
	if err := json.Unmarshal(m.Data, &r); err != nil || r.State != string(run.Succeeded) {
		return fmt.Errorf("result of %s: %s", id, m.Data)
	}
	return nil
}

// await returns the next message.
func await(in <-chan *nats.Msg, atMost time.Duration) (*nats.Msg, error) {
	t := time.NewTimer(atMost)
	defer t.Stop()
	select {
	case m := <-in:
		return m, nil
	case <-t.C:
		return nil, nats.ErrTimeout
	}
}

// commits returns the stored bytes of every run's session.
func commits(b *testing.B, n *node.Instance, prefix string, tasks int) [][][]byte {
	b.Helper()
	var all [][][]byte
	for i := range tasks {
		k := session.Key{Tenant: session.DefaultTenant, ID: n.HomeOf(session.DefaultTenant, run.ID(prefix+strconv.Itoa(i)))}
		var raw [][]byte
		for e, err := range n.Log().Read(b.Context(), k, commitlog.Position{}) {
			must.Do(b, err)
			raw = append(raw, []byte(e.Raw))
		}
		all = append(all, raw)
	}
	return all
}

// unchangedServer starts a server that syncs each write by itself, in this process, and
// connects to it there.
func unchangedServer(b *testing.B) (*server.Server, *nats.Conn) {
	b.Helper()
	srv := must.Get(server.NewServer(&server.Options{JetStream: true, StoreDir: b.TempDir(), SyncAlways: true, DontListen: true, Port: -1, NoSigs: true, NoLog: true}))(b)
	srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		b.Fatal("the server is not ready after a minute")
	}
	nc := must.Get(nats.Connect("", nats.InProcessServer(srv)))(b)
	return srv, nc
}

// bareStreams makes as many streams as a node has event streams.
func bareStreams(b *testing.B, nc *nats.Conn) jetstream.JetStream {
	b.Helper()
	js := must.Get(jetstream.New(nc))(b)
	for p := range streams.EmbeddedPartitions {
		must.Get(js.CreateStream(b.Context(), jetstream.StreamConfig{
			Name: fmt.Sprint("EV_", p), Subjects: []string{fmt.Sprintf("ev.%d.>", p)}, Storage: jetstream.FileStorage,
			Discard: jetstream.DiscardNew, AllowDirect: true,
		}))(b)
	}
	return js
}

// bare publishes the same bytes with the same compare-and-set to as many streams of a
// server with the same settings, inFlight sessions at a time. It returns the total duration
// and that of each publish.
func bare(b *testing.B, sessions [][][]byte, inFlight int) (time.Duration, []time.Duration) {
	b.Helper()
	srv, nc := unchangedServer(b)
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	defer nc.Close()
	js := bareStreams(b, nc)
	next := make(chan int)
	times := make([][]time.Duration, len(sessions))
	var wg sync.WaitGroup
	began := time.Now()
	for range inFlight {
		wg.Go(func() {
			for i := range next {
				var last uint64
				for _, raw := range sessions[i] {
					at := time.Now()
					ack, err := js.PublishMsg(b.Context(), &nats.Msg{Subject: fmt.Sprintf("ev.%d.s%d", i%streams.EmbeddedPartitions, i), Data: raw},
						jetstream.WithExpectLastSequencePerSubject(last))
					if err != nil {
						b.Error(err)
						return
					}
					times[i] = append(times[i], time.Since(at))
					last = ack.Sequence
				}
			}
		})
	}
	for i := range sessions {
		next <- i
	}
	close(next)
	wg.Wait()
	return time.Since(began), slices.Concat(times...)
}

// median sorts its argument.
func median[T cmp.Ordered](d []T) T {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkTurns is the session workload: runs of ten turns, each a model call without
// latency and a tool call that does nothing. All are durable, with relay, lineage and
// streaming on. "x-bare" is the rate as a multiple of a bare program that publishes the
// same commits to as many streams. Each iteration measures both, one after the other; the
// figure is the median of their ratios, and "x-bare-low" and "x-bare-high" are the
// extremes. On a busy machine, -benchtime 9x gives a better figure.
func BenchmarkTurns(b *testing.B) {
	for _, inFlight := range []int{64, 1} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			n, measured := start(b, model{})
			nc := dial(b, n.URL())
			load(b, nc, "turns", newPrefix(), inFlight, inFlight)
			measured.take()
			tasks := inFlight * 2
			if inFlight == 1 {
				tasks = 20
			}
			var span, bareSpan, used time.Duration
			var between, bareTimes []time.Duration
			var ratios []float64
			perRun := 0
			for b.Loop() {
				prefix := newPrefix()
				cpu, began := cpuTime(), time.Now()
				load(b, nc, "turns", prefix, tasks, inFlight)
				took := time.Since(began)
				span += took
				used += cpuTime() - cpu
				between = append(between, measured.take()...)
				sessions := commits(b, n, prefix, tasks)
				perRun = len(sessions[0])
				s, t := bare(b, sessions, inFlight)
				bareSpan += s
				ratios = append(ratios, s.Seconds()/took.Seconds())
				bareTimes = append(bareTimes, t...)
			}
			total := float64(b.N * tasks * turns)
			step, publish := median(between), median(bareTimes)
			b.ReportMetric(total/span.Seconds(), "turns/s")
			b.ReportMetric(total/bareSpan.Seconds(), "bare-turns/s")
			b.ReportMetric(median(ratios), "x-bare")
			b.ReportMetric(ratios[0], "x-bare-low")
			b.ReportMetric(ratios[len(ratios)-1], "x-bare-high")
			b.ReportMetric(float64(used.Microseconds())/1000/total, "cpu-ms/turn")
			b.ReportMetric(float64(step.Microseconds()), "us/step-p50")
			b.ReportMetric(float64(publish.Microseconds()), "us/bare-publish-p50")
			x := step.Seconds() / publish.Seconds()
			b.ReportMetric(x, "x-step")
			if inFlight == 1 && x > stepBar {
				b.Errorf("a step alone takes %.2f times a bare publish, bar %.2f", x, stepBar)
			}
			b.ReportMetric(float64(perRun), "commits/run")
		})
	}
}

// BenchmarkSlowModel runs 64 sessions with one call of a model that takes 50 ms.
func BenchmarkSlowModel(b *testing.B) {
	const delay = 50 * time.Millisecond
	n, _ := start(b, model{delay: delay})
	nc := dial(b, n.URL())
	must.Do(b, submitAgent(nc, "warm"))
	var spans []time.Duration
	for b.Loop() {
		prefix := newPrefix()
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				must.Report(b, submitAgent(nc, prefix+strconv.Itoa(i)))
			})
		}
		wg.Wait()
		spans = append(spans, time.Since(began))
	}
	span := median(spans)
	b.ReportMetric(float64(span.Milliseconds()), "ms/64")
	x := span.Seconds() / delay.Seconds()
	b.ReportMetric(x, "x-ideal")
	if x > slowBar {
		b.Errorf("64 tasks take %.2f times the model's time, bar %.2f", x, slowBar)
	}
}

func submitAgent(nc *nats.Conn, id string) error {
	// A buffer for one message: the client's own makes room for 64 Ki.
	results := make(chan *nats.Msg, 1)
	sub, err := nc.ChanSubscribe("rath.run.default."+id+".result", results)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if _, err := nc.Request("rath.task.default.anonymous.agent", fmt.Appendf(nil, `{"id":%q,"input":"go"}`, id), time.Minute); err != nil {
		return err
	}
	_, err = await(results, time.Minute)
	return err
}

// BenchmarkOneStep counts runs of one durable step. OpenRath v2 publishes 38.3
// runs/s with a p50 of 24.1 ms for its own.
func BenchmarkOneStep(b *testing.B) {
	const tasks = 512
	n, _ := start(b, model{})
	nc := dial(b, n.URL())
	load(b, nc, "one", newPrefix(), 64, 64)
	var span time.Duration
	var together, alone []time.Duration
	for b.Loop() {
		began := time.Now()
		together = append(together, load(b, nc, "one", newPrefix(), tasks, 64)...)
		span += time.Since(began)
		alone = append(alone, load(b, nc, "one", newPrefix(), 64, 1)...)
	}
	b.ReportMetric(float64(b.N*tasks)/span.Seconds(), "runs/s")
	b.ReportMetric(float64(median(together).Microseconds())/1000, "ms-p50/64")
	b.ReportMetric(float64(median(alone).Microseconds())/1000, "ms-p50/1")
}

// BenchmarkParallelTools runs rounds of 64 tool calls of 20 ms each.
func BenchmarkParallelTools(b *testing.B) {
	const delay = 20 * time.Millisecond
	slow := tool.Func("slow", "Takes 20 ms.", func(context.Context, struct{}) (int, error) {
		time.Sleep(delay)
		return 1, nil
	}, &tool.FuncOptions{Effect: tool.ReadOnly})
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: calls64{}}}
	for b.Loop() {
		began := time.Now()
		must.Get(rt.Run(b.Context(), &flow.Agent{Name: "a", Tools: []tool.Tool{slow}}, session.New(session.UserText("go"))))(b)
		b.ReportMetric(time.Since(began).Seconds()/delay.Seconds(), "x-ideal")
	}
}

type calls64 struct{}

func (calls64) Client(context.Context, llm.Provider) (llm.Client, error) { return calls64{}, nil }

func (calls64) Complete(_ context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	if r.Messages[len(r.Messages)-1].Role == llm.Tool {
		return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
	}
	resp := &llm.Response{Finish: llm.FinishTools}
	for i := range 64 {
		resp.Calls = append(resp.Calls, session.ToolCall{ID: fmt.Sprint("c", i), Name: "slow", Args: "{}"})
	}
	return resp, nil
}
