package load

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is the result of a load.
type Report struct {
	Workflow string  `json:"workflow"`
	Tasks    int     `json:"tasks"` // that were to be submitted
	InFlight int     `json:"in_flight"`
	Rate     float64 `json:"rate,omitempty"`

	Submitted int `json:"submitted"` // acknowledged
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Busy      int `json:"busy"` // rejected because a limit was reached
	// Unfinished is the number of runs without a result at the end of the load; they
	// continue.
	Unfinished int `json:"unfinished"`
	// HeldBack were due while InFlight others had no result.
	HeldBack int `json:"held_back,omitempty"`

	// Elapsed is from the first submission to the last result.
	Elapsed time.Duration `json:"-"` // see MarshalJSON
	// Throughput is the number of successful runs per second.
	Throughput float64 `json:"runs_per_s"`

	// Submit is the time until a task was acknowledged, Claim until a node had begun its run
	// by that node's clock, End until its result arrived.
	Submit    Distribution  `json:"submit"`
	Claim     Distribution  `json:"claim"`
	FirstStep *Distribution `json:"first_step,omitempty"`
	End       Distribution  `json:"end"`

	// Backlog is the number of tasks that were acknowledged and not begun, from the client's
	// view.
	Backlog Gauge `json:"backlog"`
	// Lag is the number of messages in the work queues that waited or were not acknowledged;
	// LagError is the reason if it is unknown.
	Lag      *Gauge `json:"lag,omitempty"`
	LagError string `json:"lag_error,omitempty"`

	CPU    []Use          `json:"cpu,omitempty"`
	Errors map[string]int `json:"errors,omitempty"`
	// Stopped is the reason why the load ended before all tasks were submitted.
	Stopped string `json:"stopped,omitempty"`
}

// MarshalJSON counts durations in microseconds, as [Distribution] does.
func (r Report) MarshalJSON() ([]byte, error) {
	type plain Report
	return json.Marshal(struct {
		plain
		Elapsed int64 `json:"elapsed_us"`
	}{plain(r), r.Elapsed.Microseconds()})
}

func (g *generator) report(ctx context.Context) *Report {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.r
	r.Workflow, r.Tasks, r.InFlight, r.Rate = g.o.Workflow, g.o.Tasks, g.o.InFlight, g.o.Rate
	r.Errors = g.errs
	if ctx.Err() != nil {
		r.Stopped = "interrupted"
	}
	if g.o.Rate == 0 {
		r.HeldBack = 0 // without a rate no task is due
	}
	if !g.last.IsZero() {
		r.Elapsed = g.last.Sub(g.began)
		r.Throughput = thousandths(float64(r.Succeeded) / r.Elapsed.Seconds())
	}
	r.Submit, r.Claim, r.End = Distribute(g.submit), Distribute(g.claim), Distribute(g.end)
	if g.o.First != nil {
		d := Distribute(g.first)
		r.FirstStep = &d
	}
	r.Backlog = g.backlog.gauge()
	if g.o.Lag != nil {
		l := g.lag.gauge()
		r.Lag = &l
	}
	return &r
}

// Table renders the report as text, in at most 80 columns.
func (r *Report) Table() string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	rate := "as fast as they end"
	if r.Rate > 0 {
		rate = fmt.Sprintf("%g per second", r.Rate)
	}
	row("load", "%d tasks of %s, %d in flight, %s", r.Tasks, r.Workflow, r.InFlight, rate)
	row("runs", "%d succeeded, %d failed, %d busy, %d unfinished of %d submitted", r.Succeeded, r.Failed, r.Busy, r.Unfinished, r.Submitted)
	row("throughput", "%.1f runs/s over %s", r.Throughput, Short(r.Elapsed))
	if r.HeldBack > 0 {
		row("held back", "%d tasks were due while %d had no result: the rate is too high", r.HeldBack, r.InFlight)
	}
	b.WriteString("\n")
	fmt.Fprintf(&b, "%-11s %9s %9s %9s %9s %9s\n", "latency", "n", "p50", "p90", "p99", "max")
	latency := func(name string, d Distribution) {
		fmt.Fprintf(&b, "%-11s %9d %9s %9s %9s %9s\n", name, d.N, Short(d.P50), Short(d.P90), Short(d.P99), Short(d.Max))
	}
	latency("submit", r.Submit)
	latency("claim", r.Claim)
	if r.FirstStep != nil {
		latency("first step", *r.FirstStep)
	}
	latency("end", r.End)
	b.WriteString("\n")
	row("backlog", "mean %d, max %d tasks that no node had begun", r.Backlog.Mean, r.Backlog.Max)
	switch {
	case r.Lag != nil:
		row("lag", "mean %d, max %d messages in the work queues", r.Lag.Mean, r.Lag.Max)
	case r.LagError != "":
		row("lag", "not known: the credentials of an operator are needed")
	}
	if len(r.CPU) > 0 {
		fmt.Fprintf(&b, "\n%-24s %9s %9s %9s\n", "process", "pid", "cpu", "share")
		for _, u := range r.CPU {
			if u.Error != "" {
				fmt.Fprintf(&b, "%-24s %9d %9s %9s\n", u.Name, u.PID, "-", "-")
				continue
			}
			fmt.Fprintf(&b, "%-24s %9d %9s %8.0f%%\n", u.Name, u.PID, Short(u.CPU), 100*u.Share)
		}
	}
	if len(r.Errors) > 0 {
		b.WriteString("\nerrors\n")
		texts := make([]string, 0, len(r.Errors))
		for text := range r.Errors {
			texts = append(texts, text)
		}
		slices.SortFunc(texts, func(x, y string) int {
			if n := r.Errors[y] - r.Errors[x]; n != 0 {
				return n
			}
			return strings.Compare(x, y)
		})
		for _, text := range texts {
			n := r.Errors[text]
			if runes := []rune(text); len(runes) > 72 {
				text = string(runes[:71]) + "…"
			}
			fmt.Fprintf(&b, "%6d  %s\n", n, text)
		}
	}
	if r.Stopped != "" {
		b.WriteString("\n")
		row("stopped", "%s", r.Stopped)
	}
	return b.String()
}

// Short writes a duration with three digits.
func Short(d time.Duration) string {
	switch {
	case d <= 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2fms", d.Seconds()*1e3)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1fms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0fms", d.Seconds()*1e3)
	case d < 100*time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
