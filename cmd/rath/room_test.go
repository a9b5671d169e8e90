//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

// TestRunWaitsForRoom runs and submits while the streams of events are nearly full: a
// command that waits prints once that the task waits, and the remedy; the list of nodes
// shows it; and with room again the runs end.
func TestRunWaitsForRoom(t *testing.T) {
	if isPlayedAtOnce(t) {
		return
	}
	dir := t.TempDir()
	dev, js := startOperated(t, dir)
	limits := map[string]int64{}
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		if !strings.HasPrefix(name, "EV_") {
			continue
		}
		s := must.Get(js.Stream(t.Context(), name))(t)
		// Each stream holds data: its limit determines how full it is.
		cfg, state := s.CachedInfo().Config, s.CachedInfo().State
		limits[name] = cfg.MaxBytes
		if state.Bytes == 0 {
			generation, partition, _ := strings.Cut(strings.TrimPrefix(name, "EV_"), "_")
			subject := "rath.ev." + generation + "." + partition + ".default.nothing"
			must.Get(js.Publish(t.Context(), subject, make([]byte, 1000)))(t)
			state.Bytes = must.Get(bytesOf(t, js, name))(t)
		}
		cfg.MaxBytes = int64(state.Bytes * 100 / 90)
		must.Get(js.UpdateStream(t.Context(), cfg))(t)
	}
	if names.Err() != nil || len(limits) != streams.EmbeddedPartitions {
		t.Fatal(limits, names.Err())
	}
	var shown messages.Node
	waitFor(t, func() bool {
		line, _, _ := strings.Cut(command(t, "rath cluster nodes ls --format jsonl", dir), "\n")
		return json.Unmarshal([]byte(line), &shown) == nil && len(shown.Full) == streams.EmbeddedPartitions
	})
	if text := command(t, "rath cluster nodes show "+shown.Name, dir); !strings.Contains(text, "EV_1_0") || !strings.Contains(text, "takes no new runs") {
		t.Errorf("the node is shown as %s", text)
	}
	waiting := []*child{startCommand(t, dir, "run", "agent", "-m", "second"), startCommand(t, dir, "submit", "agent", "-m", "third", "--wait")}
	for _, w := range waiting {
		waitFor(t, func() bool {
			return strings.Contains(w.said(), "accepted and waits") && strings.Contains(w.said(), "rath cluster prune")
		})
	}
	for name, limit := range limits {
		s := must.Get(js.Stream(t.Context(), name))(t)
		cfg := s.CachedInfo().Config
		cfg.MaxBytes = limit
		must.Get(js.UpdateStream(t.Context(), cfg))(t)
	}
	for _, w := range waiting {
		must.Report(t, w.Wait())
		if n := strings.Count(w.said(), "accepted and waits"); n != 1 {
			t.Errorf("that a task waits was told %d times", n)
		}
	}
	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev ends with %d", code)
	}
}

func bytesOf(t *testing.T, js jetstream.JetStream, stream string) (uint64, error) {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.Bytes, nil
}
