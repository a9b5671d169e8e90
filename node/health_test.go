package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// soon bounds the waits of tests in real time. It is far above their usual duration:
// under the race detector, on a part of a processor, some need more than half a minute.
const soon = 2 * time.Minute

// get asks an endpoint.
func get(t *testing.T, url string) (int, healthAnswer) {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	resp := must.Get(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	var h healthAnswer
	must.Do(t, json.NewDecoder(resp.Body).Decode(&h))
	if want := resp.StatusCode == http.StatusOK; h.OK != want || (h.Reason == "") != want {
		t.Errorf("%s: status %d with %+v", url, resp.StatusCode, h)
	}
	return resp.StatusCode, h
}

// until polls /readyz until it answers as wanted; until then /livez must report
// success.
func until(t *testing.T, base string, code int, p phase, reason string) healthAnswer {
	t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(20 * time.Millisecond) {
		if code, h := get(t, base+"/livez"); code != http.StatusOK {
			t.Fatalf("/livez: %d %+v", code, h)
		}
		got, h := get(t, base+"/readyz")
		if got == code && h.Phase == string(p) && strings.Contains(h.Reason, reason) {
			return h
		}
		if time.Now().After(end) {
			t.Fatalf("/readyz: %d %+v, want %d, %s, %q", got, h, code, p, reason)
		}
	}
}

// starter starts a node in the background, because Start returns only once its
// servers are there.
type starter struct {
	node *Instance
	err  error
	done chan struct{}
}

func begin(t *testing.T, o *Options) *starter {
	t.Helper()
	s := &starter{done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		s.node, s.err = Start(ctx, o)
	}()
	t.Cleanup(func() {
		cancel()
		<-s.done
		if s.node != nil {
			must.Report(t, s.node.Close())
		}
	})
	return s
}

func (s *starter) started(t *testing.T) *Instance {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(soon):
		t.Fatal("the node did not start")
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.node
}

// echoed makes the node run a task.
func echoed(t *testing.T, n *Instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	c, err := n.ClientOf(t.Context(), session.DefaultTenant)
	must.Do(t, err)
	defer c.Close()
	r, err := c.Do(ctx, "agent", messages.Task{Input: json.RawMessage(`"hello"`)}, nil)
	if err != nil || r.State != "succeeded" {
		t.Fatalf("a task: %+v, %v", r, err)
	}
}

// TestHealthOverNATSAway checks that no absence of the servers, before the start or
// after it, is a reason to restart a node, and that a node that was not restarted works
// again as soon as they are back.
func TestHealthOverNATSAway(t *testing.T) {
	t.Parallel()
	port, dir := natstest.FreePort(t), t.TempDir()
	serve := func() *natsserver.Server {
		return natstest.Start(t, &natsserver.Options{StoreDir: dir, Port: port, NodePassword: "secret"})
	}
	leave := func(s *natsserver.Server) {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		must.Do(t, s.Shutdown(ctx))
	}
	address := "127.0.0.1:" + strconv.Itoa(natstest.FreePort(t))
	s := begin(t, &Options{
		Models: Models{Default: EchoModel},
		NATS:   NATS{URL: "nats://127.0.0.1:" + strconv.Itoa(port), User: "node", Password: "secret", Level: "lazy"},
		Store:  t.TempDir(), HTTP: HTTP{Health: address}, Drain: time.Second, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	listens(t, address)
	base := "http://" + address

	before := until(t, base, http.StatusServiceUnavailable, starting, "no NATS server reachable")
	server := serve()
	n := s.started(t)
	if n.HealthURL() != base {
		t.Errorf("the endpoints are at %s, want %s", n.HealthURL(), base)
	}
	after := until(t, base, http.StatusOK, serving, "")
	if before.Incarnation != after.Incarnation || after.Incarnation != n.Incarnation() {
		t.Errorf("it began as %s, serves as %s and is %s", before.Incarnation, after.Incarnation, n.Incarnation())
	}
	echoed(t, n)

	for range 2 {
		leave(server)
		until(t, base, http.StatusServiceUnavailable, serving, "")
		if h := until(t, base, http.StatusServiceUnavailable, serving, "reachable"); strings.Contains(h.Reason, "secret") {
			t.Errorf("the reason holds the password: %s", h.Reason)
		}
		server = serve()
		until(t, base, http.StatusOK, serving, "")
		echoed(t, n)
	}
	select {
	case err := <-n.Failed():
		t.Fatalf("a service ended by itself: %v", err)
	default:
	}
	must.Report(t, n.Close())
	// Not a dial: a process that another test is starting has this one's listeners too, until
	// it runs its program.
	if resp, err := http.Get(base + "/livez"); err == nil {
		resp.Body.Close()
		t.Error("a closed node answers")
	}
}

// TestHealthOverSilence starts a node whose connection breaks when it looks for other
// nodes: it tries again.
func TestHealthOverSilence(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, &natsserver.Options{NodePassword: "secret"})
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var work sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	var breaks atomic.Int32
	work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := server.Dial()
			if err != nil {
				in.Close()
				continue
			}
			work.Go(func() {
				_, _ = io.Copy(in, out)
				in.Close()
			})
			work.Go(func() {
				defer out.Close()
				for b := make([]byte, 1<<16); ; {
					n, err := in.Read(b)
					if err != nil || bytes.Contains(b[:n], []byte("DIRECT.GET.KV_NODE")) && breaks.Add(1) <= 3 {
						return
					}
					if _, err := out.Write(b[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	s := begin(t, &Options{
		Models: Models{Default: EchoModel},
		NATS:   NATS{URL: "nats://" + l.Addr().String(), User: "node", Password: "secret", Level: "lazy"},
		Store:  t.TempDir(), HTTP: HTTP{Health: "0"}, Drain: time.Second, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	echoed(t, s.started(t))
	if n := breaks.Load(); n < 4 {
		t.Errorf("its connection broke %d times", n)
	}
}

func listens(t *testing.T, address string) {
	t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// held is a model that answers when the test releases it.
type held struct {
	called sync.Once
	call   chan struct{} // closed with the first call
	answer chan struct{}
}

func (h *held) Client(context.Context, llm.Provider) (llm.Client, error) { return h, nil }

func (h *held) Complete(ctx context.Context, _ *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	h.called.Do(func() { close(h.call) })
	select {
	case <-h.answer:
		return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TestHealthWhileDraining checks that a node that waits for a model before it ends is
// alive and not ready.
func TestHealthWhileDraining(t *testing.T) {
	t.Parallel()
	model := &held{call: make(chan struct{}), answer: make(chan struct{})}
	n := begin(t, &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy"}, HTTP: HTTP{Health: "0"}, Models: Models{Source: model}, Drain: 2 * soon}).started(t)
	base := n.HealthURL()
	until(t, base, http.StatusOK, serving, "")
	c := must.Get(n.ClientOf(t.Context(), session.DefaultTenant))(t)
	defer c.Close()
	must.Get(c.Submit(t.Context(), "agent", messages.Task{Input: json.RawMessage(`"hello"`)}))(t)
	<-model.call
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	until(t, base, http.StatusServiceUnavailable, draining, "takes no more work")
	close(model.answer)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestHealthOfStuckActors checks that only a fault in the process makes it look dead,
// that any number of probes waits with one goroutine, and that the process looks alive
// again after the fault.
func TestHealthOfStuckActors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		free := make(chan struct{})
		h := &health{incarnation: "n1", phase: serving}
		h.actors = func(context.Context) error {
			asked.Add(1)
			<-free // even if the context ends
			return nil
		}
		h.alive = question{limit: answerFor, ask: func(ctx context.Context) error { return h.known(&h.actors)(ctx) }}
		live := func() (int, time.Duration) {
			began, rec := time.Now(), httptest.NewRecorder()
			h.livez(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/livez", nil))
			return rec.Code, time.Since(began)
		}
		for range 10 {
			if code, took := live(); code != http.StatusServiceUnavailable || took != answerFor {
				t.Fatalf("stuck: %d after %v", code, took)
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("%d goroutines wait", n)
		}
		h.drains()
		if code, took := live(); code != http.StatusOK || took != 0 {
			t.Errorf("while it drains: %d after %v", code, took)
		}
		h.mu.Lock()
		h.phase = serving
		h.mu.Unlock()
		close(free)
		synctest.Wait()
		if code, took := live(); code != http.StatusOK || took != 0 {
			t.Errorf("free again: %d after %v", code, took)
		}
		h.alive.wait()
	})
}

// TestHealthAnswersAreShared checks that requests to the endpoints do not become load
// on NATS.
func TestHealthAnswersAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		broken := errors.New("no leader")
		q := question{limit: answerFor, fresh: answerFresh, ask: func(context.Context) error {
			asked.Add(1)
			time.Sleep(answerFresh)
			return broken
		}}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if err := q.put(t.Context()); !errors.Is(err, broken) {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(answerFresh)
		_ = q.put(t.Context())
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times", n)
		}
		q.wait()
	})
}

func TestHealthAddress(t *testing.T) {
	for in, want := range map[string]string{
		"8081": "127.0.0.1:8081", ":8081": "127.0.0.1:8081", "0.0.0.0:8081": "0.0.0.0:8081",
		"localhost:1": "localhost:1", "[::]:8081": "[::]:8081",
	} {
		got, err := healthAddress(in)
		if err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
	if _, err := healthAddress("a:b:c"); err == nil || !strings.Contains(err.Error(), "host:port") {
		t.Errorf("got %v", err)
	}
}

// TestHealthAddressTaken checks that a node does not run without its endpoints.
func TestHealthAddressTaken(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer l.Close()
	_, err = Start(t.Context(), &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy"}, HTTP: HTTP{Health: l.Addr().String()}})
	if err == nil || !strings.Contains(err.Error(), "name another address") {
		t.Errorf("got %v", err)
	}
}
