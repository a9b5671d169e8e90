package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/docker"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/sandbox/scripted"
)

// level is a backend that offers one isolation, or whose probe fails.
type level sandbox.Isolation

func (l level) Name() string { return string(l) }

func (l level) Probe(context.Context) (sandbox.Capabilities, error) {
	if l == "" {
		return sandbox.Capabilities{}, errors.New("no answer")
	}
	return sandbox.Capabilities{Isolation: sandbox.Isolation(l)}, nil
}

func (l level) Resolve(context.Context, sandbox.Spec) (sandbox.Info, error) {
	return sandbox.Info{}, sandbox.ErrUnsupported
}

func (l level) Open(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return nil, sandbox.ErrUnsupported
}

// TestOffersIsolation: a node offers the strongest level of the sandboxes that it
// opens, and ignores those that it rejects.
func TestOffersIsolation(t *testing.T) {
	const process, kernel = level(sandbox.IsolationProcess), level(sandbox.IsolationKernel)
	for _, tt := range []struct {
		name     string
		backends []level
		unsafe   bool
		want     level
	}{
		{"nothing", nil, false, ""},
		{"kernel", []level{kernel}, false, kernel},
		{"process", []level{process}, false, ""},
		{"process, accepted", []level{process}, true, process},
		{"both", []level{process, kernel}, true, kernel},
		{"fails", []level{"", process}, true, process},
		{"stronger", []level{kernel, "vm", process}, false, "vm"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := lease.Workspaces{Backends: map[string]sandbox.Backend{}}
			for _, b := range tt.backends {
				w.Backends["b"+b.Name()] = b
			}
			if tt.unsafe {
				w.MinIsolation = sandbox.IsolationProcess
			}
			n := sandboxes{o: &Options{Logger: slog.New(slog.DiscardHandler)}}
			if got, _ := n.offersIsolation(t.Context(), w); got != sandbox.Isolation(tt.want) {
				t.Errorf("it offers %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSandboxLimits: a node without a sandbox that enforces the limits does not start,
// and names those that do not. One that enforces them suffices; the others are logged.
func TestSandboxLimits(t *testing.T) {
	weak := level(sandbox.IsolationKernel)
	_, err := Start(t.Context(), &Options{
		Store: t.TempDir(), Sandbox: Sandbox{Limits: sandbox.Limits{Disk: 1 << 30, PIDs: 100}, Backends: map[string]sandbox.Backend{"weak": weak, "local": weak}},
	})
	if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "no sandbox here enforces the limits: local cannot limit Disk, PIDs; weak cannot limit Disk, PIDs; omit") {
		t.Errorf("a node with limits that do not hold: %v", err)
	}
	var log strings.Builder
	n := sandboxes{o: &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	strong := scripted.New(&scripted.Options{Claims: &sandbox.Capabilities{Isolation: sandbox.IsolationKernel, Limits: []string{sandbox.LimitMemory}}})
	err = n.enforceable(t.Context(), lease.Workspaces{
		Sandbox: sandbox.Limits{Memory: 1 << 30}, Backends: map[string]sandbox.Backend{"weak": weak, "strong": strong},
	})
	if err != nil || !strings.Contains(log.String(), `hold=strong refused="weak cannot limit Memory"`) {
		t.Errorf("a node of whose sandboxes one holds the limits: %v; it says %s", err, &log)
	}
	var said strings.Builder
	for _, limits := range []string{"memory=1", "swap=1g"} {
		if _, err := options([]string{"-sandbox-limits", limits}, func(string) string { return "" }, &said, &Options{}); err == nil {
			t.Errorf("the limits %q are taken", limits)
		}
	}
	o, err := options(nil, func(name string) string {
		if name == "RATH_SANDBOX_LIMITS" {
			return "memory=64m"
		}
		return ""
	}, &said, &Options{})
	if err != nil || o.Sandbox.Limits.Memory != 64<<20 {
		t.Errorf("limits from the environment: %+v, %v", o, err)
	}
}

// TestIsolationIsTold: the isolation that a node offers is in its entry, for people,
// and in its description for other nodes.
func TestIsolationIsTold(t *testing.T) {
	t.Parallel()
	here := must.Get(local.New(nil).Probe(t.Context()))(t)
	want := string(here.Isolation)
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	n := member(t, srv, Options{
		Name: "a", Sandbox: Sandbox{Unsafe: true}, Fleet: Fleet{Gossip: &Gossip{Bind: "127.0.0.1:" + strconv.Itoa(natstest.FreePort(t)), Key: cluster.NewKey().Text()}},
	})
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	if about := listed(t, c, n); about.Isolation != want {
		t.Errorf("its entry says %q, want %q", about.Isolation, want)
	}
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		all := n.fleet.members.List()
		if len(all) == 1 && all[0].Isolation == want {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the others are told %+v, want %q", all, want)
		}
	}
}

// left is a backend whose sandboxes outlive their process. It reports the calls to it.
type left struct {
	level
	asked chan string
	err   error
}

func (l *left) Sweep(context.Context) (int, error) {
	l.asked <- "sweep"
	return 0, l.err
}

func (l *left) Run(ctx context.Context) error {
	l.asked <- "run"
	<-ctx.Done()
	l.asked <- "ended"
	return nil
}

// TestSweepOfOwnBackends: the leftovers of an author's own backend are removed before
// the node serves, and repeatedly until it stops; if that fails the node does not
// start.
func TestSweepOfOwnBackends(t *testing.T) {
	b := &left{level: level(sandbox.IsolationKernel), asked: make(chan string, 3)}
	n, err := Start(t.Context(), &Options{Store: t.TempDir(), NATS: NATS{Port: -1}, Sandbox: Sandbox{Backends: map[string]sandbox.Backend{"mine": b}}})
	must.Do(t, err)
	if got := <-b.asked; got != "sweep" {
		t.Errorf("it was asked to %s first", got)
	}
	if got := <-b.asked; got != "run" {
		t.Errorf("it was asked to %s then", got)
	}
	must.Do(t, n.Close())
	if got := <-b.asked; got != "ended" {
		t.Errorf("after the node %s", got)
	}
	b = &left{level: b.level, asked: make(chan string, 3), err: errors.New("no route")}
	if n, err = Start(t.Context(), &Options{Store: t.TempDir(), NATS: NATS{Port: -1}, Sandbox: Sandbox{Backends: map[string]sandbox.Backend{"mine": b}}}); err == nil {
		_ = n.Close()
	}
	if err == nil || !strings.Contains(err.Error(), `sandboxes of "mine": remove leftovers of former processes: no route`) {
		t.Errorf("a node that cannot remove what is left: %v", err)
	}
}

// TestSweepBeforeProbe: leftovers in an engine are removed before the node opens its
// first container, for which there may be no room otherwise.
func TestSweepBeforeProbe(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path)
		if strings.HasSuffix(r.URL.Path, "/containers/json") {
			_, _ = io.WriteString(w, "[]")
			return
		}
		http.Error(w, "not this one", http.StatusInternalServerError)
	}))
	defer engine.Close()
	t.Setenv("DOCKER_HOST", "tcp://"+engine.Listener.Addr().String())
	n, err := Start(t.Context(), &Options{Store: t.TempDir(), NATS: NATS{Port: -1}, Sandbox: Sandbox{Docker: docker.Options{Image: "tools:1"}}})
	if err == nil {
		_ = n.Close()
		t.Fatal("a node serves whose engine runs nothing")
	}
	mu.Lock()
	defer mu.Unlock()
	asked = slices.DeleteFunc(asked, func(path string) bool { return strings.HasSuffix(path, "/_ping") })
	if len(asked) < 2 || !strings.HasSuffix(asked[0], "/containers/json") || strings.HasSuffix(asked[1], "/containers/json") {
		t.Errorf("the engine was asked for %q (%v), want its containers first", asked, err)
	}
}
