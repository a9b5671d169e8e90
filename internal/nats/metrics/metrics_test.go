package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// full is the state of a node with something in every series; pools is how many pools
// wait besides its own.
func full(pools int) State {
	s := State{
		Connected: true, Pool: "default", Slots: 64, Free: 60, DeadLetters: 3,
		Fills: map[string]streams.Fill{"EV-1-0": {Bytes: 50, Max: 200}},
	}
	p := dispatch.PartitionState{
		Open: map[run.State]int{run.Running: 4, run.Waiting: 1}, Behind: 7,
		Backlogs: []schedule.Backlog{
			{Pool: "default", Runs: 9, Since: time.Now().Add(-time.Minute)}, {Pool: "default", Batch: true, Runs: 2, Since: time.Now()}, {Runs: 1, Since: time.Now()},
		},
	}
	for i := range pools {
		p.Backlogs = append(p.Backlogs, schedule.Backlog{Pool: fmt.Sprintf("p%d", i), Runs: 1, Since: time.Now()})
	}
	s.Partitions = []dispatch.PartitionState{p, {Partition: 1, Open: map[run.State]int{run.Running: 1}}}
	return s
}

// has reports the lines that a scrape lacks.
func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			var there []string
			for l := range strings.Lines(text) {
				if strings.HasPrefix(l, name) {
					there = append(there, l)
				}
			}
			t.Errorf("a scrape lacks %s; it has\n%s", line, strings.Join(there, ""))
		}
	}
}

func event(t *testing.T, kind string, v any) session.Event {
	t.Helper()
	e := must.Get(journal.NewEvent(kind, v))(t)
	return e
}

func TestCounters(t *testing.T) {
	m := New("v1")
	m.Observe(func() State { return full(0) })
	m.Appended(commitlog.Commit{Events: []session.Event{
		session.ChunkEvent(session.UserText("hello")),
		event(t, journal.KindStepCompleted, journal.StepCompleted{Run: "r", Path: "0", Kind: journal.StepModel, Usage: session.Usage{Input: 10, Output: 4, CacheRead: 3, MicroUSD: 500_000}}),
		event(t, journal.KindStepCompleted, journal.StepCompleted{Run: "r", Path: "1", Kind: journal.StepTool, Failed: true}),
		event(t, journal.KindStepCompleted, journal.StepCompleted{Run: "r", Path: "2", Kind: journal.StepGather, Usage: session.Usage{Input: 99}, Steps: 3}),
		event(t, journal.KindEnded, journal.Ended{Run: "r", State: run.Succeeded, Usage: session.Usage{Input: 10}}),
	}}, 3*time.Millisecond, nil)
	for _, err := range []error{session.ErrConflict, session.ErrTooLarge, session.ErrUnavailable, errors.New("another")} {
		m.Appended(commitlog.Commit{}, time.Second, err)
	}
	for _, c := range []llm.Code{"", llm.CodeRateLimited, llm.CodeRateLimited, "of a later release"} {
		m.Requested(c)
	}
	has(t, scrape(t, m),
		`rath_build_info{version="v1"} 1`, `rath_nats_connected 1`,
		`rath_steps_total{kind="model",outcome="ok"} 1`, `rath_steps_total{kind="tool",outcome="failed"} 1`, `rath_steps_total{kind="other",outcome="ok"} 1`,
		`rath_model_tokens_total{kind="input"} 10`, `rath_model_tokens_total{kind="output"} 4`, `rath_model_tokens_total{kind="cache_read"} 3`,
		`rath_model_cost_usd_total 0.5`,
		`rath_runs_ended_total{state="succeeded"} 1`, `rath_runs_ended_total{state="failed"} 0`,
		`rath_commit_duration_seconds_count 1`, `rath_commit_duration_seconds_bucket{le="0.0025"} 0`, `rath_commit_duration_seconds_bucket{le="0.005"} 1`,
		`rath_commit_failures_total{reason="conflict"} 1`, `rath_commit_failures_total{reason="too_large"} 1`, `rath_commit_failures_total{reason="unavailable"} 2`,
		`rath_model_requests_total{code="ok"} 1`, `rath_model_requests_total{code="rate_limited"} 2`, `rath_model_requests_total{code="other"} 1`,
		`rath_runs_open{state="running"} 5`, `rath_runs_open{state="queued"} 0`,
		`rath_runs_waiting{class="interactive",pool="default"} 9`, `rath_runs_waiting{class="batch",pool="default"} 2`, `rath_runs_waiting{class="interactive",pool="(none)"} 1`,
		`rath_slots{pool="default"} 64`, `rath_slots_free{pool="default"} 60`, `rath_relay_partitions 2`, `rath_lineage_lag_messages 7`,
		`rath_stream_fill_ratio{stream="EV-1-0"} 0.25`, `rath_dead_letters_total 3`,
	)
}

// TestBounded: no number of pools makes the answer grow beyond a bound, and the excess is
// in one sum.
func TestBounded(t *testing.T) {
	m := New("v1")
	var pools int
	m.Observe(func() State { return full(pools) })
	pools = 1000
	first := scrape(t, m)
	if n := strings.Count(first, "\nrath_runs_waiting_oldest_seconds{"); n != poolsMost+1 {
		t.Errorf("%d pools, want %d", n, poolsMost+1)
	}
	has(t, first, fmt.Sprintf(`rath_runs_waiting{class="interactive",pool="(other)"} %d`, 1000-(poolsMost-2)))
	pools = 0
	if again := scrape(t, m); strings.Count(again, "\n") != strings.Count(first, "\n") {
		t.Errorf("%d lines, before %d", strings.Count(again, "\n"), strings.Count(first, "\n"))
	}
}

// TestBoundPools: the pools of tenants are one value, so that no label names a tenant.
func TestBoundPools(t *testing.T) {
	m := New("v1")
	m.Observe(func() State {
		s := full(0)
		s.Pool = messages.BoundPool("acme")
		for _, tenant := range []session.Tenant{"acme", "globex"} {
			s.Partitions[0].Backlogs = append(s.Partitions[0].Backlogs, schedule.Backlog{Pool: messages.BoundPool(tenant), Runs: 3, Since: time.Now()})
		}
		return s
	})
	text := scrape(t, m)
	has(t, text, `rath_slots{pool="(bound)"} 64`, `rath_runs_waiting{class="interactive",pool="(bound)"} 6`)
	if strings.Contains(text, "acme") || strings.Contains(text, "globex") {
		t.Errorf("a label names a tenant:\n%s", text)
	}
}

// TestNotStarted: before the node has started, a scrape shows it as not connected.
func TestNotStarted(t *testing.T) {
	has(t, scrape(t, New("v1")), `rath_nats_connected 0`, `rath_relay_partitions 0`, `rath_runs_ended_total{state="failed"} 0`)
}
