//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/fleet"
	"github.com/rathcluster/rath/internal/testkit/load"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

// arena is a fleet that is measured: its model answers from this process.
type arena struct {
	b        *testing.B
	f        *fleet.Fleet
	model    *load.Model
	conn     *api.Conn // as any client has it
	client   *client.Client
	operator *nats.Conn
	js       jetstream.JetStream
	program  fleet.Program
	dir      string
}

// newArena starts a fleet. latency is the model's.
func newArena(b *testing.B, servers, nodes, slots int, latency time.Duration) *arena {
	b.Helper()
	a := &arena{b: b, dir: b.TempDir()}
	if *flagKeep != "" {
		a.dir = filepath.Join(*flagKeep, strings.ReplaceAll(b.Name(), "/", "-"))
		a.must(errors.Join(os.RemoveAll(a.dir), os.MkdirAll(a.dir, 0o700)))
	}
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Minute)
	defer cancel()
	var err error
	a.f, err = fleet.Start(ctx, &fleet.Options{Dir: a.dir, Servers: servers})
	a.must(err)
	b.Cleanup(func() { a.check(a.f.Close()) })
	a.model, err = load.ServeModel(a.f.Self()+":0", nil, latency)
	a.must(err)
	b.Cleanup(func() { a.check(a.model.Close()) })
	self, err := os.Executable()
	a.must(err)
	a.program = fleet.Program{
		Path: self, Args: []string{"-model", "m", "-slots", fmt.Sprint(slots)},
		Env: []string{childEnv + "=bench-node", "OPENAI_BASE_URL=" + a.model.URL},
	}
	a.must(a.f.AddNodes(ctx, nodes, a.program))
	a.conn, err = api.Connect(ctx, &streams.Options{Options: conn.Options{URL: a.f.URLs(0), Name: "bench"}, Client: true})
	a.must(err)
	b.Cleanup(func() { a.check(a.conn.Conn.Close()) })
	a.client, err = client.Connect(ctx, a.f.URLs(0), nil)
	a.must(err)
	b.Cleanup(func() { a.check(a.client.Close()) })
	a.operator, a.js = operatorOf(b, a.f)
	return a
}

func (a *arena) must(err error) {
	a.b.Helper()
	must.Do(a.b, err)
}

func (a *arena) check(err error) {
	a.b.Helper()
	must.Report(a.b, err)
}

// until polls, within a bound.
func (a *arena) until(what string, most time.Duration, done func() bool) {
	a.b.Helper()
	for end := time.Now().Add(most); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			a.b.Fatalf("%s: not within %v", what, most)
		}
	}
}

// processes are all processes of the fleet, and this one.
func (a *arena) processes() []load.Process {
	out := []load.Process{load.Self("load and model")}
	for _, p := range a.f.All() {
		out = append(out, load.Process{Name: p.Name, PID: p.PID()})
	}
	return out
}

// run makes a load and demands that all its runs end well.
func (a *arena) run(o load.Options) *load.Report {
	a.b.Helper()
	r, err := load.Run(a.b.Context(), a.conn, &o)
	a.must(err)
	if r.Succeeded != r.Submitted || r.Failed+r.Busy > 0 || r.Succeeded == 0 {
		a.b.Fatalf("not all runs ended well:\n%s", r.Table())
	}
	return r
}

// number makes tasks whose input is a number.
func number(n int) func(int) (messages.Task, error) {
	return func(int) (messages.Task, error) { return messages.Task{Input: json.RawMessage(fmt.Sprint(n))}, nil }
}

// stats asks a node of the arena about itself.
func (a *arena) stats(p *fleet.Process) stats {
	a.b.Helper()
	c := http.Client{Timeout: 30 * time.Second}
	resp, err := c.Get(fmt.Sprintf("http://%s:%s/stats", p.IP(), statsPort))
	a.must(err)
	defer resp.Body.Close()
	var s stats
	a.must(json.NewDecoder(resp.Body).Decode(&s))
	return s
}

// eventStreams are the streams of commits of a generation.
func (a *arena) eventStreams(generation uint32) []jetstream.Stream {
	a.b.Helper()
	var out []jetstream.Stream
	for p := range uint32(streams.DefaultPartitions) {
		s, err := a.js.Stream(a.b.Context(), streams.EventStream(generation, p))
		a.must(err)
		out = append(out, s)
	}
	return out
}

// together writes n logs, each by one of a number of concurrent writers, and returns the
// duration.
func together(n, writers int, write func(i int)) time.Duration {
	next := make(chan int)
	var wg sync.WaitGroup
	began := time.Now()
	for range writers {
		wg.Go(func() {
			for i := range next {
				write(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return time.Since(began)
}

// cpu formats the CPU shares by kind of process.
func cpu(uses []load.Use) string {
	sum := map[string]float64{}
	for _, u := range uses {
		kind, _, _ := strings.Cut(u.Name, "-")
		sum[kind] += u.Share
	}
	return fmt.Sprintf("cpu: nodes %.0f%%, servers %.0f%%, load %.0f%%", 100*sum["node"], 100*sum["nats"], 100*sum["load and model"])
}

// busyness is the load of the machine, by everything that runs on it.
func busyness() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}
