package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/nats/dispatch"
)

const (
	// answerFor bounds how long an endpoint waits for the answer that it needs, so
	// probes need a longer timeout. KEDA's is 3 s.
	answerFor = 2 * time.Second
	// answerFresh is how long an answer of NATS is reused, so that no number of
	// requests loads the servers.
	answerFresh = 500 * time.Millisecond
	// healthStop bounds how long requests in progress keep the endpoints open.
	healthStop = 2 * time.Second
)

// phase is the stage of a node's life.
type phase string

const (
	starting phase = "starting" // connecting, or waiting for servers
	serving  phase = "serving"
	draining phase = "draining" // accepts no more work
)

// healthAnswer is the answer of an endpoint.
type healthAnswer struct {
	// OK is the answer, in accordance with the status code: 200 or 503.
	OK bool `json:"ok"`
	// Phase is starting, serving or draining.
	Phase string `json:"phase"`
	// Reason explains a negative answer.
	Reason string `json:"reason,omitempty"`
	// Incarnation and Version name the node that answers.
	Incarnation string `json:"incarnation"`
	Version     string `json:"version"`
}

// health serves the state of a node over HTTP:
//
//	/livez    the process can do its work. It asks nothing outside of the
//	          process, so that absent servers never make an orchestrator restart a
//	          fleet; it fails when the actors are stuck, which a restart cures.
//	/readyz   the node takes work now: it is connected, the streams are there
//	          and their leader answers, and the node is not about to stop.
//	/waiting  the runs that wait for a slot of each pool, for autoscalers.
//	/metrics  the metrics for Prometheus, see docs/metrics.md. It asks nothing
//	          outside of the process either.
//
// They answer while the node starts and until it has ended.
type health struct {
	incarnation string
	listener    net.Listener
	server      *http.Server
	work        sync.WaitGroup
	alive       question // of the process
	nats        question // of the servers
	runs        waitingRuns

	mu     sync.Mutex
	phase  phase
	reason string // why it still starts
	actors func(ctx context.Context) error
	bus    func(ctx context.Context) error
}

// startHealth serves the endpoints at an address, see HTTP.Health.
func startHealth(ctx context.Context, incarnation string, metrics http.Handler, log *slog.Logger, address string) (*health, error) {
	h := &health{incarnation: incarnation, phase: starting, reason: "the node begins to start"}
	h.alive = question{limit: answerFor, ask: func(ctx context.Context) error {
		if ask := h.known(&h.actors); ask != nil {
			return ask(ctx)
		}
		return nil // no part that could be stuck exists yet
	}}
	h.nats = question{limit: answerFor, fresh: answerFresh, ask: func(ctx context.Context) error {
		return h.known(&h.bus)(ctx)
	}}
	at, err := healthAddress(address)
	if err != nil {
		return nil, err
	}
	if h.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", at); err != nil {
		return nil, fmt.Errorf("node: health endpoints: %w; name another address", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", h.livez)
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.HandleFunc("GET /waiting", h.waiting)
	mux.Handle("GET /metrics", metrics)
	h.server = &http.Server{
		Handler:     mux,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadTimeout: 5 * time.Second, WriteTimeout: 2 * answerFor, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10,
	}
	log.Info("health endpoints", "url", h.URL())
	h.work.Go(func() {
		if err := h.server.Serve(h.listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the health endpoints ended", "err", err)
		}
	})
	return h, nil
}

// healthAddress completes an address: without a host it is reachable from this machine
// only.
func healthAddress(s string) (string, error) {
	if !strings.Contains(s, ":") {
		s = ":" + s
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("node: health address %q: %w; write a port, or host:port", s, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// URL returns the URL of the endpoints.
func (h *health) URL() string { return "http://" + h.listener.Addr().String() }

// waits records why the node has not started yet.
func (h *health) waits(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reason = reason
}

// serves records that the node has started, and sets the functions behind the answers.
func (h *health) serves(actors, bus func(ctx context.Context) error, waiting func(ctx context.Context) ([]dispatch.PoolWaiting, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs.askWith(waiting)
	h.phase, h.reason, h.actors, h.bus = serving, "", actors, bus
}

// named replaces the incarnation that the node began with.
func (h *health) named(incarnation string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.incarnation = incarnation
}

// drains records that the node is about to end.
func (h *health) drains() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.phase, h.reason = draining, "the node stops and takes no more work"
}

// stop ends the endpoints. Connections are cut after a moment.
func (h *health) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), healthStop)
	defer cancel()
	err := h.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.server.Close()
	}
	h.work.Wait()
	h.alive.wait()
	h.nats.wait()
	h.runs.wait()
	return err
}

func (h *health) known(f *func(context.Context) error) func(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *f
}

func (h *health) now() (phase, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.phase, h.reason
}

func (h *health) livez(w http.ResponseWriter, r *http.Request) {
	at, _ := h.now()
	reason := ""
	if at == serving { // a stopping node has a limit of its own
		if err := h.alive.put(r.Context()); err != nil {
			reason = err.Error()
		}
	}
	h.write(w, at, reason)
}

func (h *health) readyz(w http.ResponseWriter, r *http.Request) {
	at, reason := h.now()
	if at == serving {
		if err := h.nats.put(r.Context()); err != nil {
			reason = err.Error()
		}
	}
	h.write(w, at, reason)
}

func (h *health) write(w http.ResponseWriter, at phase, reason string) {
	code := http.StatusOK
	if reason != "" {
		code = http.StatusServiceUnavailable
	}
	h.mu.Lock()
	incarnation := h.incarnation
	h.mu.Unlock()
	reply(w, code, healthAnswer{OK: reason == "", Phase: string(at), Reason: reason, Incarnation: incarnation, Version: Version()})
}

// HealthURL returns the URL of the health endpoints; "" without HTTP.Health.
func (n *Instance) HealthURL() string {
	if n.health == nil {
		return ""
	}
	return n.health.URL()
}
