//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/streams"
)

// observer sees every commit of a fleet as soon as it is stored.
type observer struct {
	mu       sync.Mutex
	sessions map[string]*observed
	kinds    map[string]int // number of events by kind
}

// observed is a session with a run.
type observed struct {
	holder string // incarnation that claimed the run
	open   bool
	last   time.Time // its last commit
	// after a fault
	by, stepped time.Time // when another incarnation claimed it, and went on
}

// observe begins to look, from now on, until the benchmark ends.
func (a *arena) observe() *observer {
	a.b.Helper()
	o := &observer{sessions: map[string]*observed{}, kinds: map[string]int{}}
	for _, s := range a.eventStreams(streams.DefaultGeneration) {
		c, err := s.OrderedConsumer(a.b.Context(), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
		a.must(err)
		all, err := c.Consume(func(m jetstream.Msg) { o.see(m.Data()) })
		a.must(err)
		a.b.Cleanup(all.Stop)
	}
	return o
}

func (o *observer) see(data []byte) {
	now := time.Now()
	var c struct {
		Session string
		Events  []struct {
			Kind string
			Data struct{ Incarnation string }
		}
	}
	// Another process's bytes, which the audit judges.
	if json.Unmarshal(data, &c) != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.sessions[c.Session]
	if s == nil {
		s = &observed{}
		o.sessions[c.Session] = s
	}
	s.last = now
	for _, e := range c.Events {
		o.kinds[e.Kind]++
		switch e.Kind {
		case "run.claimed":
			if e.Data.Incarnation != s.holder {
				s.holder, s.by, s.stepped = e.Data.Incarnation, now, time.Time{}
			}
			s.open = true
		case "step.done":
			if s.stepped.IsZero() {
				s.stepped = now
			}
		case "run.ended", "run.waiting":
			s.open = false
		}
	}
}

// held are the open runs of an incarnation that have moved lately.
func (o *observer) held(incarnation string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for id, s := range o.sessions {
		if s.open && s.holder == incarnation && time.Since(s.last) < 2*time.Second {
			out = append(out, id)
		}
	}
	return out
}

// on returns the observations of a session.
func (o *observer) on(session string) observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	return *o.sessions[session]
}

// count returns the number of events of a kind.
func (o *observer) count(kind string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kinds[kind]
}
