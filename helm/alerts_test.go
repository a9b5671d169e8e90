package helm

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// scraped are series with one value at the time of a query, as in "name{label=\"x\"} 3".
type scraped []storage.Series

// Querier implements storage.Queryable.
func (s scraped) Querier(int64, int64) (storage.Querier, error) { return s, nil }

// Select implements storage.Querier.
func (s scraped) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, one := range s {
		all := true
		for _, m := range matchers {
			all = all && m.Matches(one.Labels().Get(m.Name))
		}
		if all {
			found = append(found, one)
		}
	}
	return &seriesFound{all: found, at: -1}
}

// LabelValues implements storage.LabelQuerier.
func (scraped) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.LabelQuerier.
func (scraped) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.LabelQuerier.
func (scraped) Close() error { return nil }

// seriesFound is a storage.SeriesSet.
type seriesFound struct {
	all []storage.Series
	at  int
}

// Next implements storage.SeriesSet.
func (f *seriesFound) Next() bool { f.at++; return f.at < len(f.all) }

// At implements storage.SeriesSet.
func (f *seriesFound) At() storage.Series { return f.all[f.at] }

// Err implements storage.SeriesSet.
func (*seriesFound) Err() error { return nil }

// Warnings implements storage.SeriesSet.
func (*seriesFound) Warnings() annotations.Annotations { return nil }

type sampled struct {
	t int64
	v float64
}

// T implements chunks.Sample.
func (s sampled) T() int64 { return s.t }

// ST implements chunks.Sample.
func (s sampled) ST() int64 { return 0 }

// F implements chunks.Sample.
func (s sampled) F() float64 { return s.v }

// H implements chunks.Sample.
func (sampled) H() *histogram.Histogram { return nil }

// FH implements chunks.Sample.
func (sampled) FH() *histogram.FloatHistogram { return nil }

// Type implements chunks.Sample.
func (sampled) Type() chunkenc.ValueType { return chunkenc.ValFloat }

// Copy implements chunks.Sample.
func (s sampled) Copy() chunks.Sample { return s }

// scrape reads series, one a line.
func scrape(t *testing.T, at time.Time, text string) scraped {
	t.Helper()
	var all scraped
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		of, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, storage.NewListSeries(of, []chunks.Sample{sampled{at.UnixMilli(), values[0].Value}}))
	}
	return all
}

// fires evaluates the expression of an alert.
func fires(t *testing.T, v values, name, series string) bool {
	t.Helper()
	rule := one[*PrometheusRule](t, render(t, with(t, v, "metrics.alerts", true)))
	at := time.Unix(1_800_000_000, 0)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1000, Timeout: time.Minute})
	for _, a := range rule.Spec.Groups[0].Rules {
		if a.Alert != name {
			continue
		}
		q, err := engine.NewInstantQuery(t.Context(), scrape(t, at, series), nil, a.Expr, at)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		found, err := q.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	}
	t.Fatalf("no alert %s", name)
	return false
}

// TestPartitionAlert evaluates the alert of partitions without a relay: the releases of a
// fleet share the relays, and another fleet has its own.
func TestPartitionAlert(t *testing.T) {
	const first, second = `{namespace="agents",pod="prod-rath-node-0"}`, `{namespace="agents",pod="old-rath-node-0"}`
	streams := func(labels string) string {
		var all strings.Builder
		for _, stream := range []string{"EV_1_0", "EV_1_1"} {
			all.WriteString("rath_stream_bytes" + strings.Replace(labels, "{", `{stream="`+stream+`",`, 1) + " 9\n")
		}
		return all.String()
	}
	relays := func(labels, n string) string { return "rath_relay_partitions" + labels + " " + n + "\n" }
	own := minimal(t)
	joined := with(t, with(t, own, "fullnameOverride", "old-rath"), "gossip.fleet", "prod-rath")
	labelled := func(labels, fleet string) string { return strings.Replace(labels, "{", `{rath_fleet="`+fleet+`",`, 1) }
	for name, tc := range map[string]struct {
		v      values
		series string
		want   bool
	}{
		"one release, all relayed":          {own, streams(first) + relays(first, "2"), false},
		"one release, one without a relay":  {own, streams(first) + relays(first, "1"), true},
		"no relay answers":                  {own, streams(first), true},
		"the first release relays all":      {joined, streams(first) + streams(second) + relays(first, "2") + relays(second, "0"), false},
		"the second relays all":             {own, streams(first) + streams(second) + relays(first, "0") + relays(second, "2"), false},
		"each relays one":                   {joined, streams(first) + streams(second) + relays(first, "1") + relays(second, "1"), false},
		"together they relay one":           {joined, streams(first) + streams(second) + relays(first, "1") + relays(second, "0"), true},
		"with labels, the first relays all": {joined, streams(second) + relays(labelled(first, "prod-rath"), "2") + relays(labelled(second, "prod-rath"), "0"), false},
		"another fleet of the namespace":    {own, streams(first) + relays(labelled(first, "prod-rath"), "1") + relays(labelled(second, "old-rath"), "2"), true},
		"relays in another namespace":       {own, streams(first) + relays(first, "1") + relays(`{namespace="other",pod="prod-rath-node-0"}`, "2"), true},
	} {
		if got := fires(t, tc.v, "RathPartitionWithoutRelay", tc.series); got != tc.want {
			t.Errorf("%s: it fires: %t", name, got)
		}
	}
}
