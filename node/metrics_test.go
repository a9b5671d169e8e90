package node

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/metrics"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// scrapeMost bounds the duration of a scrape: one that asked servers which are away would
// wait for them as long as one request may take.
const scrapeMost = conn.RequestTimeout

// scrape asks a node for its metrics as Prometheus does.
func scrape(t *testing.T, base string) (text string, took time.Duration) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/metrics", nil)
	must.Do(t, err)
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	must.Do(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	took = time.Since(began)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("a scrape: %d, %v: %s", resp.StatusCode, err, data)
	}
	return string(data), took
}

// fastest returns the duration of a scrape, at its best of several: the machine's other
// work slows down single ones, and requests to the servers would slow down all.
func fastest(t *testing.T, base string) time.Duration {
	t.Helper()
	least := time.Hour
	for range 15 {
		_, took := scrape(t, base)
		least = min(least, took)
	}
	return least
}

// scraped waits until a scrape has lines.
func scraped(t *testing.T, base string, lines ...string) string {
	t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(20 * time.Millisecond) {
		text, _ := scrape(t, base)
		missing := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.Contains("\n"+text, "\n"+l+"\n") })
		if len(missing) == 0 {
			return text
		}
		if time.Now().After(end) {
			t.Fatalf("a scrape lacks %s:\n%s", strings.Join(missing, ", "), text)
		}
	}
}

// TestMetrics follows a node's metrics for Prometheus from runs that wait to the
// absence of the servers.
func TestMetrics(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	goOn := make(chan struct{})
	holds := flow.Registration{Name: "holds", Revision: "1", Description: "Waits for the test.", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			select {
			case <-goOn:
			case <-ctx.Done():
				return s, ctx.Err()
			}
			return s, nil
		})
	}}
	o := Options{
		NATS: NATS{URL: srv.URL(), Level: "lazy"}, Store: t.TempDir(), HTTP: HTTP{Health: "127.0.0.1:0"}, Drain: time.Second, Slots: 1, Models: Models{Default: EchoModel}, Workflows: []flow.Registration{holds},
	}
	o.NATS.User, o.NATS.Password = srv.Node()
	n := begin(t, &o).started(t)
	base := n.HealthURL()
	c := must.Get(n.ClientOf(t.Context(), session.DefaultTenant))(t)
	idle := []string{`rath_nats_connected 1`, `rath_slots{pool="default"} 1`, `rath_slots_free{pool="default"} 1`, `rath_runs_open{state="running"} 0`}
	for _, d := range metrics.Series() { // those of streams once the streams were read
		idle = append(idle, "# TYPE "+d.Name+" "+string(d.Kind))
	}
	scraped(t, base, idle...)

	ids := []run.ID{"m1", "m2", "m3"}
	for _, id := range ids {
		must.Get(c.Submit(t.Context(), "holds", messages.Task{ID: id}))(t)
	}
	text := scraped(t, base, `rath_slots_free{pool="default"} 0`, `rath_runs_open{state="running"} 1`, `rath_runs_open{state="queued"} 2`,
		`rath_runs_waiting{class="interactive",pool="default"} 2`, `rath_runs_waiting{class="batch",pool="default"} 0`)
	if !regexp.MustCompile(`(?m)^rath_runs_waiting_oldest_seconds\{pool="default"\} (0\.|[1-9])`).MatchString(text) {
		t.Errorf("no run has waited:\n%s", text)
	}
	close(goOn)
	for _, id := range ids {
		if r, err := c.Wait(t.Context(), id); err != nil || r.State != run.Succeeded {
			t.Errorf("%+v, %v", r, err)
		}
	}
	echoed(t, n)
	scraped(t, base, `rath_runs_ended_total{state="succeeded"} 4`, `rath_runs_open{state="running"} 0`, `rath_runs_open{state="queued"} 0`,
		`rath_runs_waiting{class="interactive",pool="default"} 0`, `rath_runs_waiting_oldest_seconds{pool="default"} 0`,
		`rath_steps_total{kind="model",outcome="ok"} 1`, `rath_model_requests_total{code="ok"} 1`, `rath_lineage_lag_messages 0`)
	if _, err := c.Submit(t.Context(), "missing", messages.Task{ID: "m4", Input: []byte(`{`)}); err == nil {
		t.Error("a task that is no JSON was taken")
	}

	if took := fastest(t, base); took > scrapeMost {
		t.Errorf("a scrape took %v, want at most %v", took, scrapeMost)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	must.Do(t, srv.Shutdown(ctx))
	scraped(t, base, `rath_nats_connected 0`, `rath_slots_free{pool="default"} 1`, `rath_runs_ended_total{state="succeeded"} 4`)
	if took := fastest(t, base); took > scrapeMost {
		t.Errorf("without servers a scrape took %v, want at most %v", took, scrapeMost)
	}
}
