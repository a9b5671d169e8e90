//go:build e2e && linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func init() { children["node"] = nodeChild }

// nodeChild is a node with a workflow of twenty tool calls. It prints its address and runs
// until it is stopped or killed.
func nodeChild() error {
	count := func(effect tool.Effect) tool.Tool {
		name := "count"
		if effect == tool.NonIdempotent {
			name = "pay"
		}
		return tool.Func(name, "Writes a line outside of the workspace.", func(ctx context.Context, in struct {
			Slow bool `json:"slow,omitempty"`
		},
		) (string, error) {
			call, _ := tool.Current(ctx)
			f, err := os.OpenFile(os.Getenv("RATH_E2E_COUNT"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
			if err != nil {
				return "", err
			}
			defer f.Close()
			if _, err := fmt.Fprintln(f, name, call.ID, call.Attempt); err != nil {
				return "", err
			}
			if in.Slow {
				select { // until the process is killed
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
			}
			return "counted", f.Sync()
		}, &tool.FuncOptions{Effect: effect})
	}
	agent := &flow.Agent{
		Name: "worker", Prompt: "You work.", Provider: llm.Provider{Kind: "openai", Model: "m", BaseURL: os.Getenv("RATH_E2E_MODEL")},
		Tools: append(tool.Builtins(), count(tool.Idempotent), count(tool.NonIdempotent)),
	}
	n, err := node.Start(context.Background(), &node.Options{
		Store: os.Getenv("RATH_E2E_STORE"), NATS: node.NATS{Port: -1}, Env: func(string) string { return "" },
		Workflows: []flow.Registration{{Name: "twenty", Revision: "1", NewFor: func(s flow.Info) (flow.Workflow, error) {
			var prompt string
			if err := json.Unmarshal(s.Input, &prompt); err != nil {
				return nil, err
			}
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				return agent.Forward(ctx, s.To("local", os.Getenv("RATH_E2E_DIR")).With(session.UserText(prompt)))
			}), nil
		}}},
	})
	if err != nil {
		return err
	}
	fmt.Println("listening", n.URL())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	select {
	case <-stop:
		return n.Close()
	case err := <-n.Failed():
		return err
	}
}

// installation is the state that survives the killed processes.
type installation struct {
	t       *testing.T
	store   string
	dir     string
	count   string
	model   *httptest.Server
	mu      sync.Mutex
	witness bytes.Buffer
}

func (i *installation) Write(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.witness.Write(p)
}

func install(t *testing.T) *installation {
	t.Helper()
	i := &installation{t: t, store: t.TempDir(), dir: t.TempDir(), count: filepath.Join(t.TempDir(), "count")}
	data := must.Get(os.ReadFile("testdata/twenty.txtar"))(t)
	script := must.Get(scripted.Parse("twenty.txtar", data))(t)
	must.Get(script.WriteFiles(i.dir))(t)
	m := must.Get(scripted.New(script, &scripted.Options{Log: i}))(t)
	i.model = httptest.NewServer(m)
	t.Cleanup(i.model.Close)
	return i
}

// asked counts the requests that the model server has got.
func (i *installation) asked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return bytes.Count(i.witness.Bytes(), []byte("\n"))
}

// until waits until the model server has got n requests.
func (i *installation) until(n int) {
	i.t.Helper()
	for end := time.Now().Add(40 * time.Second); i.asked() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			i.t.Fatalf("the model was asked %d times after 40 s, want %d", i.asked(), n)
		}
	}
}

// process is one start of the node.
type process struct {
	cmd *exec.Cmd
	url string
}

func (i *installation) start() *process {
	i.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=node", "RATH_E2E_STORE="+i.store, "RATH_E2E_DIR="+i.dir,
		"RATH_E2E_COUNT="+i.count, "RATH_E2E_MODEL="+i.model.URL+"/v1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.Do(i.t, err)
	p := &process{cmd: cmd}
	i.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			p.url = url
			return p
		}
	}
	i.t.Fatal("the node did not start")
	return nil
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	must.Do(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	must.Do(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the node did not stop cleanly: %v", err)
	}
}

func (p *process) connect(t *testing.T) *nats.Conn {
	t.Helper()
	nc := must.Get(nats.Connect(p.url))(t)
	return nc
}

func request(t *testing.T, nc *nats.Conn, subject, body string) string {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), 20*time.Second)
	if err != nil {
		t.Fatalf("request %s: %v", subject, err)
	}
	return string(m.Data)
}

func (p *process) submit(t *testing.T, id, prompt string) {
	t.Helper()
	nc := p.connect(t)
	defer nc.Close()
	if ack := request(t, nc, "rath.task.default.anonymous.twenty", fmt.Sprintf(`{"id":%q,"input":%q}`, id, prompt)); !strings.Contains(ack, `"stream":"TASKS"`) {
		t.Fatalf("submit: %s", ack)
	}
}

type result struct {
	State   string
	Output  string
	Session string
}

// wait asks until the run has the state, or any final one.
func (p *process) wait(t *testing.T, id, state string) result {
	t.Helper()
	nc := p.connect(t)
	defer nc.Close()
	deadline := time.Now().Add(40 * time.Second)
	for {
		var r result
		text := request(t, nc, "rath.query.default.run", fmt.Sprintf(`{"run":%q}`, id))
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("query: %v: %s", err, text)
		}
		if r.State == state || r.State == "succeeded" || r.State == "failed" || r.State == "cancelled" {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("run %s is not %s after 40 s: %s", id, state, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var elapsedMS = regexp.MustCompile(`"elapsed_ms":[0-9]+`)

// read opens the store and returns the traces of runs: chunks and heads.
func (i *installation) read(runs []string) (stories map[string][]string, attempts map[string]uint64, recorded map[string]uint64) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), time.Minute)
	defer cancel()
	c, stop := must.Pair(bus(ctx, filepath.Join(i.store, "nats"), streams.Fsync))(i.t)
	defer func() { must.Report(i.t, stop()) }()
	stories, attempts, recorded = map[string][]string{}, map[string]uint64{}, map[string]uint64{}
	values := journal.NewValues(c.Logs.Log())
	for _, id := range runs {
		k := session.Key{Tenant: session.DefaultTenant, ID: c.Logs.HomeOf(session.DefaultTenant, run.ID(id))}
		s := must.Get(values.At(ctx, session.Ref{Key: k}))(i.t)
		story := []string{fmt.Sprintf("version %d head %s", s.Ref().Version, s.Placement().Head)}
		for _, c := range s.Chunks() {
			line := []string{fmt.Sprintf("%s %s head %s %s", c.Kind(), c.Origin().Agent, c.Origin().Placement.Head, elapsedMS.ReplaceAllString(c.Text(), ""))}
			for _, call := range c.Calls() {
				line = append(line, call.Name+call.Args)
			}
			story = append(story, strings.Join(line, " "))
		}
		stories[id] = story
		for e, err := range c.Logs.Log().Read(ctx, k, commitlog.Position{}) {
			must.Do(i.t, err)
			for _, ev := range e.Commit.Events {
				switch ev.Kind {
				case journal.KindClaimed:
					v := must.Get(journal.Decode[journal.Claimed](ev))(i.t)
					attempts[id] = v.Attempt
				case journal.KindStepCompleted:
					v := must.Get(journal.Decode[journal.StepCompleted](ev))(i.t)
					if v.Kind == journal.StepTool && v.Name == "count" {
						recorded[v.Call] = v.Attempt
					}
				}
			}
		}
	}
	return stories, attempts, recorded
}

// TestKill kills a node with -9 at fifty random moments of fifty runs and
// starts it again: each run ends with the same chunks and the same files as an
// undisturbed one, and the witnesses outside agree with the log.
func TestKill(t *testing.T) {
	t.Parallel()
	i := install(t)
	p := i.start()
	began := time.Now()
	p.submit(t, "calm", "go")
	if r := p.wait(t, "calm", "succeeded"); r.State != "succeeded" {
		t.Fatalf("the undisturbed run is %+v", r)
	}
	span, rounds := time.Since(began), i.asked()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	t.Logf("an undisturbed run takes %v and %d rounds; seed %d", span, rounds, seed)
	runs := []string{"calm"}
	const kills = 50
	for k := range kills {
		id := fmt.Sprintf("k%d", k)
		runs = append(runs, id)
		before := i.asked()
		p.submit(t, id, "go")
		// The random moment is within the span of a round, because the duration of a run
		// depends on other work of the machine.
		i.until(before + random.IntN(rounds+1))
		time.Sleep(time.Duration(random.Int64N(int64(span) / int64(rounds))))
		p.kill(t)
		p = i.start()
		if r := p.wait(t, id, "succeeded"); r.State != "succeeded" {
			t.Fatalf("run %s is %+v (seed %d)", id, r, seed)
		}
	}
	p.stop(t)
	stories, attempts, recorded := i.read(runs)
	resumed := 0
	for _, id := range runs {
		if d := cmp.Diff(stories["calm"], stories[id]); d != "" {
			t.Errorf("run %s differs from the undisturbed one (seed %d):\n%s", id, seed, d)
		}
		if attempts[id] > 1 {
			resumed++
		}
	}
	t.Logf("%d kills, %d runs were resumed in the middle", kills, resumed)
	if resumed < kills/4 {
		t.Errorf("only %d of %d kills hit a run at work", resumed, kills)
	}
	i.checkModel(seed)
	i.checkCount(attempts, recorded, seed)
}

// checkModel checks the model server's own log: one request per step and attempt, except
// for retries of the client.
func (i *installation) checkModel(seed uint64) {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	seen := map[string]int{}
	for line := range bytes.Lines(i.witness.Bytes()) {
		var e scripted.Entry
		must.Do(i.t, json.Unmarshal(line, &e))
		key := fmt.Sprint(e.Step, " try ", max(e.Try, 1))
		if seen[key]++; seen[key] > 1 {
			i.t.Errorf("the model was asked twice for %s (seed %d)", key, seed)
		}
	}
	i.t.Logf("%d model requests, none twice in one attempt", len(seen))
}

// checkCount checks the counting tool's file: at most one execution per call and attempt,
// none in an attempt that is not in the log, and the recorded outcome is that of an actual
// execution.
func (i *installation) checkCount(attempts, recorded map[string]uint64, seed uint64) {
	i.t.Helper()
	data := must.Get(os.ReadFile(i.count))(i.t)
	seen := map[string]int{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			i.t.Fatalf("line %q", line)
		}
		key := f[1] + " " + f[2]
		if seen[key]++; seen[key] > 1 {
			i.t.Errorf("call %s was executed twice in one attempt (seed %d)", key, seed)
		}
		id, _, _ := strings.Cut(f[1], "/")
		if fmt.Sprint(attempts[id]) < f[2] && len(fmt.Sprint(attempts[id])) <= len(f[2]) {
			i.t.Errorf("call %s was executed in an attempt that the log does not hold (seed %d)", key, seed)
		}
	}
	for call, attempt := range recorded {
		if seen[fmt.Sprint(call, " ", attempt)] != 1 {
			i.t.Errorf("the log holds an outcome of call %s in attempt %d that never ran (seed %d)", call, attempt, seed)
		}
	}
	i.t.Logf("%d executions of the counting tool, %d recorded outcomes", len(seen), len(recorded))
}

// TestKillInsideEffect kills the node inside a call that must not happen twice: the run
// waits for an operator and resumes after the decision.
func TestKillInsideEffect(t *testing.T) {
	t.Parallel()
	i := install(t)
	p := i.start()
	p.submit(t, "pay", "pay once")
	deadline := time.Now().Add(20 * time.Second)
	for {
		if data, err := os.ReadFile(i.count); err == nil && strings.HasPrefix(string(data), "pay pay/") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the call did not start")
		}
		time.Sleep(5 * time.Millisecond)
	}
	p.kill(t)
	p = i.start()
	if r := p.wait(t, "pay", "needs_review"); r.State != "needs_review" {
		t.Fatalf("the run is %+v", r)
	}
	nc := p.connect(t)
	answer := request(t, nc, "rath.ctl.default.anonymous.pay.resolve", `{"decision":"happened","reason":"the bank shows it","by":"test"}`)
	nc.Close()
	if !strings.Contains(answer, `"done":true`) {
		t.Fatalf("resolve: %s", answer)
	}
	if r := p.wait(t, "pay", "succeeded"); r.State != "succeeded" {
		t.Fatalf("the run is %+v", r)
	}
	nc = p.connect(t)
	if text := request(t, nc, "rath.query.default.result", `{"run":"pay"}`); !strings.Contains(text, `"output":"paid"`) {
		t.Errorf("the result is %s", text)
	}
	nc.Close()
	p.stop(t)
	data := must.Get(os.ReadFile(i.count))(t)
	if n := strings.Count(string(data), "pay pay/"); n != 1 {
		t.Errorf("the call was executed %d times:\n%s", n, data)
	}
}
