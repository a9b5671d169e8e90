package live

import (
	"testing"
	"time"
)

// flightBar is the maximum cost of reporting a step: one hundredth of the minimum
// processor time of a durable step, 350 microseconds.
const flightBar = 3500 * time.Nanosecond

// BenchmarkFlight measures the cost of reporting a model call of 20 pieces, with 64 in
// flight, each read about once in a hundred steps.
func BenchmarkFlight(b *testing.B) {
	fs := make([]Steps, 64)
	began := time.Now()
	n := 0
	for b.Loop() {
		f := &fs[n%64]
		o := f.Begin(Step{Path: "0", Kind: "model", Name: "a", Doing: Works, Began: began}, "")
		o.AskModel("m", 1)
		o.SetDoing(Asks, began)
		for n := range uint64(20) {
			o.AddAnswer("", 10)
			o.AddDelta(n+1, "some text ", false)
		}
		if n%100 == 0 {
			f.Snapshot()
		}
		o.SetDoing(Records, time.Time{})
		o.End()
		n++
	}
	each := time.Since(began) / time.Duration(max(n, 1))
	b.ReportMetric(float64(flightBar.Nanoseconds()), "ns-bar")
	if n > 1000 && each > flightBar {
		b.Errorf("a step costs %v by being told, bar %v", each, flightBar)
	}
}
