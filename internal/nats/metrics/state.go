package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// State is the state of a process at a scrape.
type State struct {
	Connected   bool
	Pool        string // of the node
	Slots, Free int
	Partitions  []dispatch.PartitionState
	Fills       map[string]streams.Fill // by stream
	DeadLetters uint64
	Leaked      int
}

// Observe sets the function that scrapes call. It is called concurrently and must not wait
// for anything outside of the process. Before Observe, a process is not connected.
func (m *Metrics) Observe(state func() State) { m.state.Store(&state) }

// collector makes the gauges of a scrape.
type collector Metrics

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// waitingKey is whose runs wait.
type waitingKey struct{ pool, class string }

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	var s State
	if ask := c.state.Load(); ask != nil {
		s = (*ask)()
	}
	gauge := func(name string, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(c.descs[name], prometheus.GaugeValue, v, labels...)
	}
	gauge(buildInfo, 1, c.version)
	connected := 0.
	if s.Connected {
		connected = 1
	}
	gauge(natsConnected, connected)
	to <- prometheus.MustNewConstMetric(c.descs[deadLetters], prometheus.CounterValue, float64(s.DeadLetters))
	gauge(leaked, float64(s.Leaked))
	gauge(relayPartitions, float64(len(s.Partitions)))
	open := map[run.State]int{}
	behind := uint64(0)
	for _, p := range s.Partitions {
		behind += p.Behind
		for state, n := range p.Open {
			open[state] += n
		}
	}
	for _, state := range openStates {
		gauge(runsOpen, float64(open[state]), string(state))
	}
	gauge(lineageLag, float64(behind))

	c.mu.Lock()
	defer c.mu.Unlock()
	if s.Pool != "" {
		own := c.pools.label(s.Pool)
		gauge(slots, float64(s.Slots), own)
		gauge(slotsFree, float64(s.Free), own)
	}
	now := time.Now()
	waiting, oldest := map[waitingKey]int{}, map[string]float64{}
	for _, p := range s.Partitions {
		for _, b := range p.Backlogs {
			pool, class := c.pools.label(b.Pool), messages.ClassInteractive
			if b.Batch {
				class = messages.ClassBatch
			}
			waiting[waitingKey{pool, class}] += b.Runs
			oldest[pool] = max(oldest[pool], now.Sub(b.Since).Seconds())
		}
	}
	for _, pool := range c.pools.seen {
		for _, class := range []string{messages.ClassInteractive, messages.ClassBatch} {
			gauge(runsWaiting, float64(waiting[waitingKey{pool, class}]), pool, class)
		}
		gauge(oldestWaiting, oldest[pool], pool)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Fills)) {
		f := s.Fills[name]
		gauge(streamBytes, float64(f.Bytes), name)
		ratio := 0.
		if f.Max > 0 {
			ratio = float64(f.Bytes) / float64(f.Max)
		}
		gauge(streamFill, ratio, name)
	}
}
