package load

import (
	"encoding/json"
	"slices"
	"time"
)

// Distribution describes a number of durations. Its JSON counts microseconds.
type Distribution struct {
	N                       int
	Min, P50, P90, P99, Max time.Duration
}

// Distribute describes durations, in any order. It sorts them in place.
func Distribute(d []time.Duration) Distribution {
	if len(d) == 0 {
		return Distribution{}
	}
	slices.Sort(d)
	// The smallest value that is not below the given percentage of all.
	at := func(percent int) time.Duration { return d[(len(d)*percent+99)/100-1] }
	return Distribution{N: len(d), Min: d[0], P50: at(50), P90: at(90), P99: at(99), Max: d[len(d)-1]}
}

// MarshalJSON writes microseconds.
func (d Distribution) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		N   int   `json:"n"`
		Min int64 `json:"min_us"`
		P50 int64 `json:"p50_us"`
		P90 int64 `json:"p90_us"`
		P99 int64 `json:"p99_us"`
		Max int64 `json:"max_us"`
	}{d.N, d.Min.Microseconds(), d.P50.Microseconds(), d.P90.Microseconds(), d.P99.Microseconds(), d.Max.Microseconds()})
}

// Gauge describes a number that was sampled repeatedly.
type Gauge struct {
	Samples int   `json:"samples"`
	Mean    int64 `json:"mean"`
	Max     int64 `json:"max"`
}

// gauge adds up samples.
type gauge struct {
	n        int
	sum, max int64
}

func (g *gauge) add(v int64) {
	g.n++
	g.sum += v
	g.max = max(g.max, v)
}

func (g *gauge) gauge() Gauge {
	if g.n == 0 {
		return Gauge{}
	}
	return Gauge{Samples: g.n, Mean: g.sum / int64(g.n), Max: g.max}
}
