package load

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox/local"
)

func TestMain(m *testing.M) {
	local.Reexec()
	scratch.InMemory()
	os.Exit(m.Run())
}

// start starts a node whose model takes a while, and connects as a client.
func start(t *testing.T, latency time.Duration) (c *api.Conn, m *Model, store string) {
	t.Helper()
	var err error
	m, err = ServeModel("127.0.0.1:0", nil, latency)
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, m.Close()) })
	store = t.TempDir()
	n, err := node.Start(t.Context(), &node.Options{
		Store: store, NATS: node.NATS{Port: -1, Level: string(streams.Lazy)}, Slots: 8, Env: func(key string) string {
			if key == "OPENAI_BASE_URL" {
				return m.URL
			}
			return ""
		}, Models: node.Models{Default: "m"},
	})
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, n.Close()) })
	c, err = api.Connect(t.Context(), &streams.Options{Options: conn.Options{URL: n.URL(), Name: "load"}, Client: true})
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, c.Conn.Close()) })
	return c, m, store
}

func TestRun(t *testing.T) {
	t.Parallel()
	const latency = 100 * time.Millisecond // long enough for the lag to be sampled
	c, m, _ := start(t, latency)
	lag := int64(0)
	heard := 0
	r := must.Get(Run(t.Context(), c, &Options{
		Tasks: 30, InFlight: 10, First: m.First, Processes: []Process{Self("test")},
		Lag:   func(context.Context) (int64, error) { lag++; return lag, nil },
		Ended: func(run.ID, messages.Result) { heard++ },
	}))(t)
	if r.Submitted != 30 || r.Succeeded != 30 || r.Failed+r.Busy+r.Unfinished != 0 || heard != 30 {
		t.Errorf("got %+v, and heard of %d ends, want 30 runs that succeeded", r, heard)
	}
	// The caller has an answer a moment before the model counts it.
	for end := time.Now().Add(10 * time.Second); m.Answered() != 30 || m.Busy() != 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the model answered %d calls and is at %d, want 30 and 0", m.Answered(), m.Busy())
		}
	}
	if r.FirstStep == nil || r.FirstStep.N != 30 || r.End.N != 30 || r.Submit.N != 30 {
		t.Fatalf("latencies of %d, %d, %v runs, want 30 each", r.Submit.N, r.End.N, r.FirstStep)
	}
	if r.Claim.N != 30 || r.Claim.Max > r.End.Max {
		t.Errorf("claims of %d runs, the last after %v, want 30 and at most %v", r.Claim.N, r.Claim.Max, r.End.Max)
	}
	if r.End.Min < r.FirstStep.Min+latency {
		t.Errorf("a run ended after %v, its first step began after %v at least and took %v", r.End.Min, r.FirstStep.Min, latency)
	}
	if want := float64(30) / (3 * latency.Seconds()); r.Throughput <= 0 || r.Throughput > want {
		t.Errorf("%f runs/s, want at most %f", r.Throughput, want)
	}
	if r.Lag == nil || r.Lag.Max != lag {
		t.Errorf("lag %+v, want a maximum of %d", r.Lag, lag)
	}
	if len(r.CPU) != 1 || r.CPU[0].Error == "" && r.CPU[0].CPU < 0 {
		t.Errorf("processor time %+v", r.CPU)
	}
	for line := range strings.Lines(r.Table()) {
		if len([]rune(strings.TrimSuffix(line, "\n"))) > 80 {
			t.Errorf("wider than 80 columns: %q", line)
		}
	}
	data := must.Get(json.Marshal(r))(t)
	var told struct {
		Elapsed int64 `json:"elapsed_us"`
		CPU     []struct {
			CPU *int64 `json:"cpu_us"`
		} `json:"cpu"`
	}
	if err := json.Unmarshal(data, &told); err != nil || told.Elapsed != r.Elapsed.Microseconds() || len(told.CPU) != 1 || told.CPU[0].CPU == nil {
		t.Errorf("%v: %s", err, data)
	}
	if strings.Contains(string(data), "_ns") {
		t.Errorf("more than one unit: %s", data)
	}
}

// TestLag reads the lag of the work queues, which needs the permissions of a node.
func TestLag(t *testing.T) {
	t.Parallel()
	c, _, store := start(t, 300*time.Millisecond)
	m, err := supervise.ReadAttachment(store)
	must.Do(t, err)
	own, err := api.Connect(t.Context(), &streams.Options{Options: conn.Options{URL: m.URL, User: m.User, Password: m.Password, Inbox: conn.NodeInbox}, Level: streams.Lazy})
	must.Do(t, err)
	defer own.Conn.Close()
	// Messages move from the queue to its partition. Reading in the opposite order counts
	// none twice.
	unacked := int64(0)
	lag := func(ctx context.Context) (int64, error) {
		waiting, err := own.Dispatch.Waiting(ctx)
		all, lagErr := own.Streams.Lag(ctx)
		if err = errors.Join(err, lagErr); err != nil {
			return 0, err
		}
		var names []string
		sum := int64(0)
		unacked = 0
		for _, w := range waiting {
			sum += int64(w.Runs)
		}
		for _, l := range all {
			names = append(names, l.Stream+"/"+l.Consumer)
			sum += l.Pending
			unacked += l.Unacked
		}
		if want := "TASKS/" + streams.TasksConsumer; !slices.Contains(names, want) {
			t.Errorf("consumers %v, want %s among them", names, want)
		}
		return sum, nil
	}
	// The node makes its consumers after it is up.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		all := must.Get(own.Streams.Lag(t.Context()))(t)
		if slices.ContainsFunc(all, func(l streams.Lag) bool { return l.Consumer == streams.TasksConsumer }) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the node has the consumers %+v", all)
		}
	}
	// 8 slots: the other tasks wait.
	if r, err := Run(t.Context(), c, &Options{Tasks: 24, InFlight: 24, Lag: lag}); err != nil || r.Lag == nil || r.Lag.Max == 0 || r.Lag.Max > 24 {
		t.Errorf("lag %+v, %v, want up to 16 tasks that wait", r.Lag, err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		sum, err := lag(t.Context())
		if err == nil && sum+unacked == 0 {
			break // the last acknowledgements are on their way until then
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("in the end %d wait, and %d are not acknowledged, %v", sum, unacked, err)
		}
	}
	r, err := Run(t.Context(), c, &Options{Tasks: 1, Lag: func(ctx context.Context) (int64, error) {
		_, err := c.Streams.Lag(ctx)
		return 0, err
	}})
	if err != nil || r.Lag != nil || r.LagError == "" || r.Succeeded != 1 {
		t.Errorf("got %+v, %v, want no lag for a client, and why", r, err)
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	c, _, _ := start(t, 0)
	r := must.Get(Run(t.Context(), c, &Options{Tasks: 20, Rate: 40}))(t)
	if r.Succeeded != 20 || r.Elapsed < 19*time.Second/40 {
		t.Errorf("%d runs in %v, want 20 in at least %v", r.Succeeded, r.Elapsed, 19*time.Second/40)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	c, _, _ := start(t, 0)
	r := must.Get(Run(t.Context(), c, &Options{Tasks: 3, Workflow: "missing"}))(t)
	if r.Failed != 3 || len(r.Errors) != 1 {
		t.Errorf("got %d failed with %v, want 3 with one text", r.Failed, r.Errors)
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	c, m, _ := start(t, 30*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	r := must.Get(Run(ctx, c, &Options{Tasks: 1000, InFlight: 2, First: m.First, Ended: func(run.ID, messages.Result) { cancel() }}))(t)
	if r.Stopped != "interrupted" || r.Succeeded == 0 || r.Succeeded > 3 || r.Succeeded+r.Unfinished < r.Submitted {
		t.Errorf("got %+v, want few runs and the reason", r)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Tasks: -1}, {InFlight: MaxInFlight + 1}, {Rate: -1}, {Duration: -1}, {Settle: 25 * time.Hour}} {
		if _, err := Run(t.Context(), nil, &o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: got %v, want %v", o, err, ErrOptions)
		}
	}
	c, _, _ := start(t, 50*time.Millisecond)
	r := must.Get(Run(t.Context(), c, &Options{Tasks: 1000, InFlight: 1, Duration: 200 * time.Millisecond}))(t)
	if r.Submitted == 0 || r.Submitted > 5 || !strings.Contains(r.Stopped, "200ms") {
		t.Errorf("submitted %d, stopped %q, want at most 5 in 200ms", r.Submitted, r.Stopped)
	}
}

func TestDistribute(t *testing.T) {
	var d []time.Duration
	for i := range 100 {
		d = append(d, time.Duration(100-i)*time.Millisecond)
	}
	want := Distribution{N: 100, Min: 1e6, P50: 50e6, P90: 90e6, P99: 99e6, Max: 100e6}
	if got := Distribute(d); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := Distribute([]time.Duration{7}); got.P50 != 7 || got.P99 != 7 {
		t.Errorf("of one: %+v", got)
	}
	if got := Distribute(nil); got != (Distribution{}) {
		t.Errorf("of none: %+v", got)
	}
}
