package api_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/web/problem"
)

// testEvents: a stream of each selection has the end of a run, and a stream of a run ends
// with it.
func (d *door) testEvents(t *testing.T) {
	r := d.run(t, "watched", "talk", `,"input":"hello","session":"watched"`)
	whole := d.ask(t, ann, "GET", "/api/v1/runs/watched/events", "")
	if whole.status != http.StatusOK || !strings.Contains(whole.body, "event: run.started") || !strings.Contains(whole.body, "event: run.ended") {
		t.Errorf("the events of a run that has ended: %d %s", whole.status, whole.body)
	}
	for at, path := range map[string]string{
		"/api/v1/sessions/{session}/events":      "/api/v1/sessions/" + string(r.Session) + "/events",
		"/api/v1/sessions/{session}/tree/events": "/api/v1/sessions/watched/tree/events?kind=run.ended",
		"/api/v1/events":                         "/api/v1/events?workflow=talk",
	} {
		d.watched(t, path, at == "/api/v1/events")
		d.spec.used["GET "+at] = true
	}
	for _, query := range []string{"since=none", "kind=nothing.at.all", "after=1"} {
		if a := d.ask(t, ann, "GET", "/api/v1/events?"+query, ""); a.status != http.StatusBadRequest || a.header.Get("Content-Type") != problem.MediaType {
			t.Errorf("?%s: %d %s", query, a.status, a.body)
		}
	}
}

// watched reads a stream until a run has ended. The run is another one if the stream begins
// at the present end.
func (d *door) watched(t *testing.T, path string, another bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil))(t)
	req.Header = http.Header{"Tenant": {string(ann.tenant)}, "Role": {string(ann.role)}}
	res := must.Get(http.DefaultClient.Do(req))(t)
	defer res.Body.Close()
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || !strings.HasPrefix(got, "text/event-stream") {
		t.Fatalf("%s: %d %s", path, res.StatusCode, got)
	}
	if another {
		d.run(t, "watched-later", "talk", `,"input":"hello again"`)
	}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if lines.Text() == "event: run.ended" {
			return
		}
	}
	t.Errorf("%s ended without the end of a run", path)
}
