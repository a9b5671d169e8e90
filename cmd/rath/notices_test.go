//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestDevTellsOfRefusals sends tasks that are rejected, and fills a stream: the
// terminal of the node shows each in a line, and of many only their number.
func TestDevTellsOfRefusals(t *testing.T) {
	if isPlayedAtOnce(t) {
		return
	}
	dir := t.TempDir()
	dev, js := startOperated(t, dir)
	nc := js.Conn()
	send := func(subject, body string) {
		t.Helper()
		must.Get(nc.Request(subject, []byte(body), 10*time.Second))(t)
	}
	send("rath.task.default.anonymous.nosuch", `{"id":"one","input":"x"}`)
	send("rath.task.default.anonymous.agent", `no JSON`)
	for _, want := range []string{"refused     task one of nosuch: ", "refused     a task of agent: "} {
		waitFor(t, func() bool { return strings.Contains(dev.said(), want) })
	}
	for i := range 30 {
		send("rath.task.default.anonymous.agent", fmt.Sprint("no JSON either ", i))
	}
	s := must.Get(js.Stream(t.Context(), "KV_"+streams.BucketAlias))(t)
	limit := func(max int64) {
		t.Helper()
		cfg := s.CachedInfo().Config
		cfg.MaxBytes = max
		must.Get(js.UpdateStream(t.Context(), cfg))(t)
	}
	must.Get(js.Publish(t.Context(), "$KV.ALIAS.default.run.filler", make([]byte, 10_000)))(t)
	usual := s.CachedInfo().Config.MaxBytes
	state := must.Get(bytesOf(t, js, "KV_"+streams.BucketAlias))(t)
	limit(int64(state * 100 / 90))
	waitFor(t, func() bool { return strings.Contains(dev.said(), "% full: takes no new runs") })
	limit(usual)
	waitFor(t, func() bool { return strings.Contains(dev.said(), "store       KV_ALIAS: has room again") })

	// The number of the others is printed some seconds after the first ones.
	waitFor(t, func() bool { return strings.Contains(dev.said(), `tasks more; see "`) })
	lines := 0
	for line := range strings.Lines(dev.said()) {
		if strings.HasPrefix(line, "refused ") {
			lines++
			if len(line) > 200 {
				t.Errorf("a line of %d bytes: %s", len(line), line)
			}
		}
	}
	if lines > 15 {
		t.Errorf("%d lines about 32 tasks", lines)
	}
	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev ends with %d", code)
	}
}
