package pages_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/webtest"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/pages"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

func TestMain(m *testing.M) {
	local.Reexec()
	natstest.Main(m)
}

// soon bounds each wait of a test.
const soon = time.Minute

// world is a node with runs of each kind, and the pages over it.
type world struct {
	t      testing.TB
	node   *node.Instance
	client *client.Client
	server *httptest.Server
	role   permission.Role
	last   http.Header
}

// begin starts a world.
func begin(t testing.TB) *world {
	t.Helper()
	model := must.Get(scripted.New(must.Get(scripted.Parse("world.txtar", webtest.Script))(t), nil))(t)
	n := must.Get(node.Start(t.Context(), &node.Options{
		Store: t.TempDir(), Name: "dev", NATS: node.NATS{Level: "lazy", Port: -1}, Models: node.Models{Source: model, Default: "gpt-5.4-mini"},
		Workflows: webtest.Workflows(), Fleet: node.Fleet{Gossip: node.DevGossip()},
	}))(t)
	t.Cleanup(func() { must.Report(t, n.Close()) })
	c := must.Get(n.Client(t.Context()))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	w := &world{t: t, node: n, client: c, role: permission.RoleClient}
	p := pages.New(&pages.Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), FormToken: func(context.Context) string { return "token-1" },
		Stream: func(rw http.ResponseWriter, _ *http.Request, id run.ID) {
			rw.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(rw, "event: step.done\ndata: {\"kind\":\"step.done\",\"run\":%q}\n\n", id)
		},
	})
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		p.ServeHTTP(rw, r.WithContext(access.With(r.Context(), &access.Caller{
			Tenant: session.DefaultTenant, User: "bob", Role: w.role, Door: access.DoorPage, Token: "p1", Client: c,
		})))
	}))
	t.Cleanup(w.server.Close)
	return w
}

// files stores the files of a project, and returns their head.
func (w *world) files() string {
	dir := w.t.TempDir()
	for name, text := range webtest.Files {
		must.Do(w.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return must.Get(workspace.Import(w.t.Context(), w.client.Blobs(), dir, nil))(w.t).Head.String()
}

// submit starts a run, and waits until it is in one of some states.
func (w *world) submit(workflow string, task messages.Task, text string, states ...run.State) messages.RunInfo {
	w.t.Helper()
	if text != "" {
		task.Input = must.Get(json.Marshal(text))(w.t)
	}
	must.Get(w.client.Submit(w.t.Context(), workflow, task))(w.t)
	return w.until(task.ID, states...)
}

func (w *world) until(id run.ID, states ...run.State) messages.RunInfo {
	w.t.Helper()
	for deadline := time.Now().Add(soon); ; {
		r, err := w.client.Runs.Get(w.t.Context(), id)
		for _, s := range states {
			if err == nil && r.State == s && (s != run.Waiting || len(r.Waits) > 0) {
				return r
			}
		}
		if err == nil && r.State.Terminal() || time.Now().After(deadline) {
			w.t.Fatalf("run %s: %+v, %v; want %v", id, r, err, states)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// get reads a page and parses it.
func (w *world) get(path string, want int) *html.Node {
	w.t.Helper()
	return w.answer(must.Get(http.NewRequest(http.MethodGet, w.server.URL+path, nil))(w.t), want)
}

// post sends a form and returns the page, or the place to which it leads.
func (w *world) post(path string, want int, form url.Values) (*html.Node, string) {
	w.t.Helper()
	r := must.Get(http.NewRequest(http.MethodPost, w.server.URL+path, strings.NewReader(form.Encode())))(w.t)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return w.answer(r, want), w.last.Get("Location")
}

func (w *world) answer(r *http.Request, want int) *html.Node {
	w.t.Helper()
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	a := must.Get(c.Do(r))(w.t)
	body := must.Get(io.ReadAll(a.Body))(w.t)
	must.Do(w.t, a.Body.Close())
	w.last = a.Header
	if dir := os.Getenv("RATH_PAGES"); dir != "" && want == 200 {
		name := strings.NewReplacer("/", "_", "?", "_", "&", "_", "=", "-").Replace(r.URL.RequestURI()) + ".html"
		must.Do(w.t, os.WriteFile(filepath.Join(dir, name), body, 0o600))
	}
	if a.StatusCode != want {
		w.t.Fatalf("%s %s: %d, want %d\n%s", r.Method, r.URL.Path, a.StatusCode, want, textOf(parsed(w.t, body)))
	}
	if a.Header.Get("Content-Security-Policy") == "" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
		w.t.Errorf("%s: the headers of protection are missing: %v", r.URL.Path, a.Header)
	}
	return parsed(w.t, body)
}

// parsed is a page as a browser without scripts reads it.
func parsed(t testing.TB, body []byte) *html.Node {
	t.Helper()
	return must.Get(html.ParseWithOptions(bytes.NewReader(body), html.ParseOptionEnableScripting(false)))(t)
}

// find returns the elements with an attribute value; "" is any.
func find(n *html.Node, tag, attr, value string) (out []*html.Node) {
	for d := range n.Descendants() {
		if d.Type != html.ElementNode || tag != "" && d.Data != tag {
			continue
		}
		if got, ok := attrOf(d, attr); attr == "" || ok && (value == "" || got == value) {
			out = append(out, d)
		}
	}
	return out
}

func attrOf(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

// textOf returns the text of an element, its blanks as one.
func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode && d.Parent.Data != "script" && d.Parent.Data != "style" {
			b.WriteString(d.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// value is the value of a hidden field.
func value(t testing.TB, n *html.Node, name string) string {
	t.Helper()
	for _, in := range find(n, "input", "name", name) {
		v, _ := attrOf(in, "value")
		return v
	}
	t.Fatalf("the page has no field %s", name)
	return ""
}
