package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/session"
)

const (
	// doorSubmit and doorList bound the CPU time of the server for a task, and for a page of
	// runs, over HTTP, as multiples of the same over NATS.
	doorSubmit, doorList = 1.3, 2.0

	doorTasks  = 640 // of a round
	doorAtOnce = 32  // submitters, each with a token
	doorRounds = 5
	doorLists  = 48 // of a round
)

var doorRuns = flag.Int("door.runs", 100_000, "runs that BenchmarkDoor lists from")

// door is a node in its own process that serves the API, and its callers.
type door struct {
	*growthProcess
	nc     *nats.Conn
	tokens []string
	client *http.Client
}

// BenchmarkDoor compares the CPU time of a node's process, with its server, for tasks that
// come over HTTP and over NATS, up to the results of their runs; and for pages of a list of
// 100,000 runs, for programs and for browsers. It fails if a bar is missed.
func BenchmarkDoor(b *testing.B) {
	for b.Loop() {
		d := openDoor(b)
		d.compare(b, "submit", doorSubmit, doorTasks, func(way string) {
			send := func(id string, _ int) error { return submit(d.nc, "plain", id) }
			if way == "http" {
				send = d.put
			}
			loadBy(b, d.nc, send, newPrefix(), doorTasks, doorAtOnce)
		})
		load(b, d.nc, "plain", newPrefix(), *doorRuns, 64)
		caughtUp(b, d.nc)
		d.compare(b, "list", doorList, doorLists, func(way string) {
			for i := range doorLists {
				if way == "http" {
					must.Get(d.ask(http.MethodGet, "/runs?limit=100", "", i%doorAtOnce))(b)
				} else if m := must.Get(d.nc.Request("rath.query.default.runs", []byte(`{"limit":100}`), time.Minute))(b); m.Header.Get("Nats-Service-Error-Code") != "" {
					b.Fatalf("list: %v", m.Header)
				}
			}
		})
		page := d.browser(b)
		d.compare(b, "page", doorList, doorLists, func(way string) {
			for range doorLists {
				if way == "http" {
					page("/t/default/runs")
				} else if m := must.Get(d.nc.Request("rath.query.default.runs", []byte(`{"limit":200,"where":"branch=no"}`), time.Minute))(b); m.Header.Get("Nats-Service-Error-Code") != "" {
					b.Fatalf("list: %v", m.Header)
				}
			}
		})
		d.stop(b)
	}
}

func openDoor(b *testing.B) *door {
	b.Helper()
	b.Setenv(growthWeb, "127.0.0.1:0")
	d := &door{growthProcess: startGrowthNode(b, b.TempDir()), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: doorAtOnce}}}
	d.nc = dial(b, d.at.URL)
	s := must.Get(streams.OpenStore(b.Context(), &streams.Options{Client: true, Options: conn.Options{URL: d.at.URL, User: d.at.OperatorUser, Password: d.at.OperatorPassword, Inbox: conn.NodeInbox}}))(b)
	defer func() { must.Report(b, s.Conn.Close()) }()
	for range doorAtOnce {
		d.tokens = append(d.tokens, must.Get(access.NewStore(s).CreateToken(b.Context(), &access.Entry{Tenant: session.DefaultTenant, User: "bench", Role: permission.RoleClient}))(b))
	}
	return d
}

// put submits a task over HTTP.
func (d *door) put(id string, by int) error {
	_, err := d.ask(http.MethodPut, "/runs/"+id, `{"workflow":"plain"}`, by)
	return err
}

func (d *door) ask(method, path, body string, by int) ([]byte, error) {
	r, err := http.NewRequestWithContext(context.Background(), method, d.at.HTTP+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Authorization": {"Bearer " + d.tokens[by]}, "Content-Type": {"application/json"}}
	res, err := d.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, bytes.TrimSpace(data))
	}
	return data, err
}

// browser logs in to the pages, and returns a function that reads one.
func (d *door) browser(b *testing.B) func(path string) {
	b.Helper()
	c := &http.Client{Jar: must.Get(cookiejar.New(nil))(b)}
	r := must.Get(http.NewRequestWithContext(b.Context(), http.MethodPost, d.at.HTTP+"/login", strings.NewReader(url.Values{"secret": {d.tokens[0]}}.Encode())))(b)
	r.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": {d.at.HTTP}, "Sec-Fetch-Site": {"same-origin"}}
	must.Do(b, must.Get(c.Do(r))(b).Body.Close())
	return func(path string) {
		res := must.Get(c.Get(d.at.HTTP + path))(b)
		body := must.Get(io.ReadAll(res.Body))(b)
		must.Do(b, res.Body.Close())
		if res.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("<h1>Runs</h1>")) {
			b.Fatalf("%s: %d %s", path, res.StatusCode, body)
		}
	}
}

// compare measures rounds of both ways in turn, and reports the medians of each and of the
// ratios.
func (d *door) compare(b *testing.B, name string, bar float64, of int, do func(way string)) {
	b.Helper()
	did := map[string][]float64{}
	for i := range doorRounds + 1 {
		for _, way := range []string{"nats", "http"} {
			before := d.cpu(b)
			do(way)
			if i > 0 { // the first round makes what is made once
				did[way] = append(did[way], (d.cpu(b)-before).Seconds()*1e6/float64(of))
			}
		}
	}
	var ratios []float64
	for i, over := range did["http"] {
		ratios = append(ratios, over/did["nats"][i])
	}
	have, over, under := median(ratios), median(did["http"]), median(did["nats"])
	fmt.Printf("\n%s: %.0f µs of CPU over HTTP, %.0f µs over NATS, ratio %.2f, bar %.1f (ratios %.2f)\n", name, over, under, have, bar, ratios)
	b.ReportMetric(over, "µs-http-"+name)
	b.ReportMetric(under, "µs-nats-"+name)
	b.ReportMetric(have, "x-"+name)
	if have > bar {
		b.Errorf("%s over HTTP costs %.2f times as much as over NATS, bar %.1f", name, have, bar)
	}
}
