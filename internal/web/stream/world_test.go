package stream_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/stream"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// within bounds each wait of a test.
const within = 2 * time.Minute

// pen is a model that answers each call with the pieces of a channel, up to an empty one.
type pen struct{ pieces chan string }

func (p pen) Client(context.Context, llm.Provider) (llm.Client, error) { return p, nil }

func (p pen) Complete(ctx context.Context, _ *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	var text strings.Builder
	for {
		select {
		case piece := <-p.pieces:
			if piece == "" {
				return &llm.Response{Text: text.String(), Finish: llm.FinishStop, Usage: session.Usage{Input: 3, Output: 2}}, nil
			}
			if piece == "break" {
				return nil, &llm.Error{Code: llm.CodeTruncated, Message: "the answer broke off", RetryAfter: time.Millisecond}
			}
			text.WriteString(piece)
			sink(llm.Delta{Text: piece})
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// fan is a workflow that opens three branches, each with two steps.
func fan() flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		var branches []flow.Branch
		for i := range 3 {
			branches = append(branches, flow.Branch{Name: fmt.Sprint("b", i), Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				for j := range 2 {
					if _, err := flow.Do(ctx, fmt.Sprint("step", j), func(context.Context) (int, error) { return j, nil }, tool.ReadOnly); err != nil {
						return s, err
					}
				}
				return s.With(session.UserText("done")), nil
			})})
		}
		j, err := flow.FanOut(ctx, s, branches, nil)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.PickBest(func(context.Context, *flow.Joined) (int, []string, error) { return 0, nil, nil }))
	})
}

// world is a server, a node and a server of streams.
type world struct {
	t       testing.TB
	srv     *natsserver.Server
	node    *node.Instance
	client  *client.Client
	pen     pen
	streams *stream.Streams
	http    *httptest.Server
	cut     func() error   // breaks the connection of the streams to NATS
	refuse  *atomic.Bool   // the streams cannot connect to NATS
	near    *client.Client // has a connection of its own
	caller  *atomic.Pointer[access.Caller]
	log     *slog.Logger
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, srv: natstest.Start(t, &natsserver.Options{Port: -1}), pen: pen{make(chan string)}, caller: &atomic.Pointer[access.Caller]{}, refuse: new(atomic.Bool)}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	user, password := w.srv.Node()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	w.node = must.Get(node.Start(ctx, &node.Options{
		NATS:  node.NATS{URL: w.srv.URL(), User: user, Password: password, Level: "lazy"},
		Store: t.TempDir(), Models: node.Models{Source: w.pen, Default: "pen"}, Slots: 64, Logger: log,
		Workflows: []flow.Registration{{Name: "fan", Revision: "1", New: fan}},
	}))(t)
	t.Cleanup(func() { must.Report(t, w.node.Close()) })
	var link atomic.Pointer[net.Conn]
	w.client = must.Get(client.Connect(ctx, "", &client.Options{Name: "web", Logger: log, Dialer: func() (net.Conn, error) {
		if w.refuse.Load() {
			return nil, syscall.ECONNREFUSED
		}
		c, err := w.srv.Dial()
		link.Store(&c)
		return c, err
	}}))(t)
	w.near = must.Get(client.Connect(ctx, "", &client.Options{Name: "near", Logger: log, Dialer: w.srv.Dial}))(t)
	t.Cleanup(func() { must.Report(t, w.near.Close()) })
	w.cut = func() error { return (*link.Load()).Close() }
	t.Cleanup(func() { must.Report(t, w.client.Close()) })
	w.caller.Store(&access.Caller{Tenant: session.DefaultTenant, User: "ann", Role: "client", Door: access.DoorAPI, Token: "t1", Client: w.client})
	w.log = log
	w.serve()
	return w
}

// another returns a world with another server of streams.
func (w *world) another() *world {
	o := *w
	o.serve()
	return &o
}

// serve starts a server of streams.
func (w *world) serve() {
	w.streams = stream.New(w.log, refuse)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{of}/{name}", func(out http.ResponseWriter, r *http.Request) {
		sel := stream.Selection{After: r.URL.Query().Get("after"), Workflows: r.URL.Query()["workflow"]}
		switch name := r.PathValue("name"); r.PathValue("of") {
		case "run":
			sel.Run = run.ID(name)
		case "session":
			sel.Session = name
		case "tree":
			sel.Tree = name
		}
		for _, s := range r.URL.Query()["state"] {
			sel.States = append(sel.States, run.State(s))
		}
		w.streams.Serve(out, r.WithContext(access.With(r.Context(), w.caller.Load())), sel)
	})
	w.http = httptest.NewServer(mux)
	w.t.Cleanup(func() {
		w.streams.Close()
		w.http.CloseClientConnections()
		w.http.Close()
	})
}

// refuse answers with the text of an error.
func refuse(w http.ResponseWriter, _ *http.Request, err error) {
	code := http.StatusBadRequest
	switch {
	case errors.Is(err, run.ErrUnknownRun), errors.Is(err, session.ErrNotFound):
		code = http.StatusNotFound
	case errors.Is(err, session.ErrArchived):
		code = http.StatusGone
	case errors.Is(err, run.ErrBusy):
		code = http.StatusServiceUnavailable
	}
	http.Error(w, err.Error(), code)
}

// submit submits a task and returns its run.
func (w *world) submit(workflow string) run.ID {
	w.t.Helper()
	return must.Get(w.client.Submit(w.t.Context(), workflow, messages.Task{Input: json.RawMessage(`"go"`)}))(w.t)
}

// ended waits for the end of a run.
func (w *world) ended(id run.ID) messages.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	r := must.Get(w.client.Wait(ctx, id))(w.t)
	if r.State != run.Succeeded {
		w.t.Fatalf("run %s %s: %s", id, r.State, r.Error)
	}
	return r
}

// write has the model write pieces.
func (w *world) write(pieces ...string) {
	w.t.Helper()
	for _, p := range pieces {
		select {
		case w.pen.pieces <- p:
		case <-time.After(within):
			w.t.Fatalf("no model writes %q", p)
		}
	}
}

// got is an event as a reader gets it.
type got struct {
	id   string
	data string
	messages.StreamEvent
}

// durable reports whether the event is part of a record.
func (g *got) durable() bool { return g.Place != nil }

// reading is a stream that a test reads.
type reading struct {
	t      testing.TB
	code   int
	header http.Header
	body   io.ReadCloser
	lines  *bufio.Scanner
	last   string // the id of the last event, or of a silent move
	cancel context.CancelFunc
}

// open opens a stream, behind the event with an id.
func (w *world) open(path, id string) *reading {
	w.t.Helper()
	r, err := w.try(path, id)
	must.Do(w.t, err)
	return r
}

func (w *world) try(path, id string) (*reading, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.http.URL+path, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	if id != "" {
		req.Header.Set("Last-Event-ID", id)
	}
	resp, err := w.http.Client().Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 8<<20)
	return &reading{t: w.t, code: resp.StatusCode, header: resp.Header, body: resp.Body, lines: lines, last: id, cancel: cancel}, nil
}

func (r *reading) close() {
	r.cancel()
	_ = r.body.Close()
}

// next returns the next event; false at the end of the stream.
func (r *reading) next() (got, bool) {
	var g got
	for r.lines.Scan() {
		line := r.lines.Text()
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && g.data == "": // a silent move, or none
			r.last, g.id = cmp.Or(g.id, r.last), ""
		case line == "":
			r.last = cmp.Or(g.id, r.last) // not before: the connection may break within a line
			if err := json.Unmarshal([]byte(g.data), &g.StreamEvent); err != nil {
				r.t.Errorf("%s: %v", g.data, err)
			}
			return g, true
		case name == "id":
			g.id = value
		case name == "data":
			g.data += value
		}
	}
	return got{}, false
}

// position reads up to the position of a stream, which comes before its events.
func (r *reading) position() {
	for r.last == "" && r.lines.Scan() {
		if id, ok := strings.CutPrefix(r.lines.Text(), "id: "); ok && r.lines.Scan() {
			r.last = id
		}
	}
}

// until reads up to an event of a kind, and returns all of them.
func (r *reading) until(kind messages.EventKind) (all []got) {
	r.t.Helper()
	for {
		g, ok := r.next()
		if !ok {
			last := r.lines.Text()
			if len(all) > 0 {
				last = all[len(all)-1].data
			}
			r.t.Fatalf("the stream of status %d ended before %s, after %v: %s, %v", r.code, kind, kindsOf(all), last, r.lines.Err())
		}
		if all = append(all, g); g.Kind == kind {
			return all
		}
	}
}

// rest reads up to the end of the stream.
func (r *reading) rest() (all []got) {
	for {
		g, ok := r.next()
		if !ok {
			return all
		}
		all = append(all, g)
	}
}

func kindsOf(all []got) (kinds []messages.EventKind) {
	for i := range all {
		kinds = append(kinds, all[i].Kind)
	}
	return kinds
}

// durable returns the events of records, as they came.
func durable(all []got) (out []got) {
	for i := range all {
		if all[i].durable() {
			out = append(out, all[i])
		}
	}
	return out
}

// draft joins the drafts of a step as a reader does.
func draft(all []got, step run.Path) string {
	text := ""
	for i := range all {
		switch e := &all[i]; {
		case e.Kind == messages.EventTextVoid && (e.Step == step || e.Step == ""):
			text = ""
		case e.Kind == messages.EventTextDelta && e.Step == step:
			text += e.Text
		}
	}
	return text
}
