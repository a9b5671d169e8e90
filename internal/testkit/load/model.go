package load

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/run"
)

// maxWitnessed bounds the runs whose first call a Model remembers.
const maxWitnessed = 1 << 20

// Model is a model server with a latency, which sees when the calls of runs
// arrive: a witness outside of the nodes. It is safe for concurrent use.
type Model struct {
	// URL is the base URL of the OpenAI protocol.
	URL string

	server *http.Server
	served sync.WaitGroup
	err    error

	mu       sync.Mutex
	first    map[run.ID]time.Time
	began    atomic.Int64
	answered atomic.Int64
}

// ServeModel starts a model server at an address such as "127.0.0.1:0" that
// answers from a script, nil is the echo, each time after a latency. A rule of
// the script with a delay of its own keeps that.
func ServeModel(address string, script *scripted.Script, latency time.Duration) (*Model, error) {
	inner, err := scripted.New(script, &scripted.Options{Delay: latency})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("load: model server at %s: %w", address, err)
	}
	m := &Model{URL: fmt.Sprintf("http://%s/v1", l.Addr()), first: map[run.ID]time.Time{}}
	m.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.arrived(r.Header.Get(llm.StepHeader))
		inner.ServeHTTP(w, r)
		m.answered.Add(1)
	})}
	m.served.Go(func() {
		if err := m.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			m.err = err
		}
	})
	return m, nil
}

func (m *Model) arrived(step string) {
	now := time.Now()
	m.began.Add(1)
	id, _, _ := strings.Cut(step, "/")
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.first[run.ID(id)]; !known && len(m.first) < maxWitnessed {
		m.first[run.ID(id)] = now
	}
}

// First returns the time at which the first model call of a run arrived.
func (m *Model) First(id run.ID) (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.first[id]
	return at, ok
}

// Busy returns the number of calls in progress.
func (m *Model) Busy() int64 { return m.began.Load() - m.answered.Load() }

// Answered returns the number of answered calls.
func (m *Model) Answered() int64 { return m.answered.Load() }

// Close ends the server; calls under way are cut off.
func (m *Model) Close() error {
	err := m.server.Close()
	m.served.Wait()
	return errors.Join(err, m.err)
}
