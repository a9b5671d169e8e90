package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/llmtest"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/session"
)

// serve puts a script behind a real socket and returns a client for it.
func serve(t testing.TB, script string, so *scripted.Options, o *llm.ServerOptions) (llm.Client, *scripted.Model) {
	t.Helper()
	s := must.Get(scripted.Parse("test", []byte(script)))(t)
	m := must.Get(scripted.New(s, so))(t)
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	models := openai.New(o)
	client := must.Get(models.Client(t.Context(), llm.Provider{Model: "m1", BaseURL: srv.URL + "/v1"}))(t)
	return client, m
}

func user(text string) *llm.Request {
	return &llm.Request{Provider: llm.Provider{Model: "m1"}, Messages: []llm.Message{{Role: llm.User, Text: text}}}
}

const everything = `
-- text --
user: text

Hello <you> & "me",
Grüße 🙂.

-- calls --
user: calls
not result: f
reasoning: Hm, let me see 🙂
usage: input=12 output=7 cache_read=5 cache_write=2 micro_usd=345
call: f @c1 {"x": "ä🙂\n"}
call: g {}
raw-call: h not json "at all

-- answer --
user: calls
result: f
finish: length

Done.

-- offers --
user: offers
offers: f

There is f.

-- rate --
user: rate
status: 429
retry-after: 1500ms

slow down

-- context --
user: context
code: context_length

too long

-- quota --
user: quota
code: quota

-- auth --
user: auth
code: auth

-- refused --
user: refused
code: refused

-- model --
user: model
code: model_not_found

-- overloaded --
user: overloaded
status: 503

-- drop --
user: drop
fault: drop

-- html --
user: html
fault: html

-- truncate --
user: truncate
fault: truncate

one two three four

-- abort --
user: abort
fault: abort

one two three four

-- garbage --
user: garbage
fault: garbage

one two three four

-- error --
user: error
fault: error
code: overloaded

one two three four

-- stall --
user: stall
fault: stall

one two three four

-- hang --
user: hang
fault: hang
`

// The script gives the same results in process and over a socket: the same answers, the
// same deltas, the same classes of errors, the same log.
func TestScriptedServerIsTheScriptedModel(t *testing.T) {
	t.Parallel()
	var httpLog, processLog bytes.Buffer
	o := &llm.ServerOptions{Timeouts: llm.Timeouts{Silence: time.Second, FirstToken: 2 * time.Second}}
	now := func() time.Time { return time.Unix(0, 0) }
	overHTTP, _ := serve(t, everything, &scripted.Options{Log: &httpLog, Now: now}, o)
	_, inProcess := serve(t, everything, &scripted.Options{Log: &processLog, Now: now, Hang: 10 * time.Millisecond}, nil)

	calls := user("calls")
	first := must.Get(inProcess.Complete(t.Context(), calls, nil))(t)
	processLog.Reset()
	answered := first.Message()
	answered.Calls = slices.Clone(answered.Calls)
	answered.Calls[2].Args = `{"arguments":"not json \"at all"}` // as it is sent over a socket
	calls.Messages = append(calls.Messages, answered,
		llm.Message{Role: llm.Tool, CallID: "c1", Name: "f", Text: "ok"}, llm.Message{Role: llm.Tool, CallID: first.Calls[1].ID, Name: "g"},
		llm.Message{Role: llm.Tool, CallID: first.Calls[2].ID, Name: "h"})
	offers := user("offers")
	offers.Tools = []llm.ToolSpec{{Name: "f", Description: "d", Schema: `{"type":"object"}`}, {Name: "g"}}

	requests := []*llm.Request{calls, offers}
	for _, text := range []string{
		"text", "calls", "rate", "context", "quota", "auth", "refused", "model", "overloaded",
		"drop", "html", "truncate", "abort", "garbage", "error", "stall", "hang", "no rule matches this",
	} {
		requests = append(requests, user(text))
	}
	for i, r := range requests {
		r.StepKey = fmt.Sprintf("run/%d/1", i)
		type result struct {
			Deltas []llm.Delta
			Resp   *llm.Response
			Code   llm.Code
			Status int
			After  time.Duration
		}
		ask := func(c llm.Client) (res result, text string) {
			var err error
			res.Resp, err = c.Complete(t.Context(), r, func(d llm.Delta) { res.Deltas = append(res.Deltas, d) })
			if res.Resp != nil {
				res.Resp.Opaque = "" // thoughts have an origin over a socket alone
			}
			if e, ok := errors.AsType[*llm.Error](err); ok {
				res.Code, res.After, text = e.Code, e.RetryAfter, e.Message
			}
			return res, text
		}
		want, said := ask(inProcess)
		got, saidToo := ask(overHTTP)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s\n%s", r.Messages[0].Text, diff, saidToo)
		}
		if want.Resp == nil && want.Code == "" {
			t.Errorf("%s: neither an answer nor an error", r.Messages[0].Text)
		}
		if r.Messages[0].Text == "rate" && !strings.Contains(saidToo, said) {
			t.Errorf("%q became %q", said, saidToo)
		}
	}
	if diff := cmp.Diff(strings.ReplaceAll(processLog.String(), `"process"`, `"http"`), httpLog.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTriesAreSeenByTheWitness(t *testing.T) {
	var log bytes.Buffer
	client, _ := serve(t, "-- busy --\nnot try: 3\nstatus: 503\n-- ok --\n\nHello\n", &scripted.Options{Log: &log}, nil)
	r := user("hi")
	r.StepKey = "run/2.fast.0/1"
	for r.Try = 1; r.Try <= 3; r.Try++ {
		resp, err := client.Complete(t.Context(), r, nil)
		if (err == nil) != (r.Try == 3) || err == nil && resp.Text != "Hello" {
			t.Fatal(resp, err)
		}
	}
	dec := json.NewDecoder(&log)
	for try := 1; try <= 3; try++ {
		var e scripted.Entry
		must.Do(t, dec.Decode(&e))
		if e.Step != r.StepKey || max(e.Try, 1) != try || e.Digest != scripted.Digest(r.Messages) {
			t.Errorf("try %d: %+v", try, e)
		}
	}
}

// pipes are the connections of a process to itself. Only time unblocks their users, so
// they can be used in a bubble.
type pipes struct {
	opened chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{opened: make(chan net.Conn, 64), closed: make(chan struct{})} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p.opened <- there
	return here, nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.opened:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestConnectionsAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened atomic.Int32
		srv := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/busy/chat/completions" {
					http.Error(w, "busy", http.StatusTooManyRequests)
					return
				}
				// The end of the answer arrives separately from its last event.
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, hello)
				must.Report(t, http.NewResponseController(w).Flush())
				time.Sleep(20 * time.Millisecond)
			}),
			ConnState: func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					opened.Add(1)
				}
			},
		}
		wires := newPipes()
		var serving sync.WaitGroup
		serving.Go(func() { _ = srv.Serve(wires) }) // until it is closed
		defer serving.Wait()
		defer srv.Close()
		transport := &http.Transport{DialContext: wires.dial}
		defer transport.CloseIdleConnections()
		models := openai.New(&llm.ServerOptions{Transport: transport})
		for range 20 {
			for path, want := range map[string]llm.Code{"": "", "/busy": llm.CodeRateLimited} {
				client := must.Get(models.Client(t.Context(), llm.Provider{Model: "m1", BaseURL: "http://model.test" + path}))(t)
				if _, err := client.Complete(t.Context(), user("hi"), nil); llm.CodeOf(err) != want {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Second) // the server is done with all of them
		if n := opened.Load(); n > 2 {
			t.Errorf("%d connections for 40 calls in a row", n)
		}
	})
}

func TestResolve(t *testing.T) {
	var asked http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Clone()
		if strings.HasSuffix(r.URL.Path, "/models") {
			var ids []string
			for i := range 12 {
				ids = append(ids, fmt.Sprintf(`{"id":"m%02d","created":1.5}`, i))
			}
			fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(ids, ","))
			return
		}
		fmt.Fprint(w, `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"model":"served"}`)
	}))
	defer srv.Close()
	local := srv.URL + "/v1/"
	for _, c := range []struct {
		name string
		p    llm.Provider
		env  string // NAME=value words
		o    llm.ServerOptions
		auth string
		code llm.Code
		says []string
	}{
		{name: "local server, no key", p: llm.Provider{Model: "m", BaseURL: local}},
		{name: "base from the environment", p: llm.Provider{Model: "m"}, env: "OPENAI_BASE_URL=" + local + " OPENAI_API_KEY=k123456", auth: "Bearer k123456"},
		{name: "base from the options", p: llm.Provider{Model: "m"}, env: "OPENAI_BASE_URL=http://127.0.0.1:1", o: llm.ServerOptions{BaseURL: local}},
		{name: "the process's key is not for a provider's server", p: llm.Provider{Model: "m", BaseURL: local}, env: "OPENAI_API_KEY=k123456"},
		{name: "unless it names it", p: llm.Provider{Model: "m", BaseURL: local, KeyRef: "OPENAI_API_KEY"}, env: "OPENAI_API_KEY=k123456", auth: "Bearer k123456"},
		{name: "key from the configuration", p: llm.Provider{Model: "m", BaseURL: local, KeyRef: "team"}, env: "team=no", o: llm.ServerOptions{Key: func(ref string) (string, error) { return " secret-of-" + ref, nil }}, auth: "Bearer secret-of-team"},
		{name: "default model", p: llm.Provider{BaseURL: local}, env: "OPENAI_DEFAULT_MODEL=m"},
		{name: "default model of the options", p: llm.Provider{BaseURL: local}, o: llm.ServerOptions{DefaultModel: "m"}, env: "OPENAI_DEFAULT_MODEL=other"},

		{name: "no key", p: llm.Provider{Model: "m"}, code: llm.CodeNoKey, says: []string{"api.openai.com", "export OPENAI_API_KEY=", "OPENAI_BASE_URL"}},
		{name: "blank key", p: llm.Provider{Model: "m"}, env: "OPENAI_API_KEY=", code: llm.CodeNoKey},
		{name: "missing key", p: llm.Provider{Model: "m", BaseURL: local, KeyRef: "TEAM_KEY"}, code: llm.CodeNoKey, says: []string{`"TEAM_KEY"`, "export TEAM_KEY="}},
		{name: "broken key", p: llm.Provider{Model: "m", BaseURL: local, KeyRef: "K"}, env: "K=abc\x01def", code: llm.CodeNoKey, says: []string{"the key in K has"}},
		{name: "no model", p: llm.Provider{BaseURL: local}, code: llm.CodeNoModel, says: []string{"OPENAI_DEFAULT_MODEL", "offers m00, m01", "m09 and 2 more"}},
		{name: "no model, no server", p: llm.Provider{BaseURL: "http://127.0.0.1:1/v1"}, code: llm.CodeNoModel, says: []string{"OPENAI_DEFAULT_MODEL"}},
		{name: "wrong base", p: llm.Provider{Model: "m"}, env: "OPENAI_BASE_URL=localhost:99", code: llm.CodeInvalidRequest, says: []string{"OPENAI_BASE_URL: base_url"}},
		{name: "wrong provider", p: llm.Provider{Model: "m", MaxTokens: -1}, code: llm.CodeInvalidRequest, says: []string{"max_tokens"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Env = func(name string) string {
				for kv := range strings.SplitSeq(c.env, " ") {
					if v, ok := strings.CutPrefix(kv, name+"="); ok {
						return v
					}
				}
				return ""
			}
			models := openai.New(&c.o)
			client, err := models.Client(t.Context(), c.p)
			if c.code != "" {
				if !errors.Is(err, c.code) {
					t.Fatalf("got %v", err)
				}
				for _, s := range c.says {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("%q is not in %v", s, err)
					}
				}
				return
			}
			must.Do(t, err)
			r := user("x")
			r.Provider = c.p
			resp, err := client.Complete(t.Context(), r, nil)
			if err != nil || resp.Model != "served" {
				t.Fatalf("%+v, %v", resp, err)
			}
			if got := asked.Get("Authorization"); got != c.auth {
				t.Errorf("authorization %q, want %q", got, c.auth)
			}
		})
	}
}

var update = flag.Bool("update", false, "write the golden files")

// The bytes on the wire, for every model name and setting, are kept as a golden file:
// strict servers reject any difference.
func TestBody(t *testing.T) {
	var body []byte
	var header http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		body, header = b.Bytes(), r.Header.Clone()
		fmt.Fprint(w, `{"choices":[{"message":{"content":"hi","tool_calls":[{"id":"a","function":{"name":"f","arguments":""},"extra_content":{"google":{"thought_signature":"sig=="}}}]},"finish_reason":"stop"}]}`)
	}))
	defer srv.Close()
	models := openai.New(nil)
	ask := func(r *llm.Request) *llm.Response {
		t.Helper()
		r.Provider.BaseURL = srv.URL
		client := must.Get(models.Client(t.Context(), r.Provider))(t)
		resp := must.Get(client.Complete(t.Context(), r, nil))(t)
		return resp
	}
	full := &llm.Request{
		Provider: llm.Provider{
			Model: "o3-local", Temperature: new(0.0), TopP: new(0.0), FrequencyPenalty: new(0.5), PresencePenalty: new(-0.5), Seed: new(int64(0)),
			MaxTokens: 100, Stop: []string{"END"}, ReasoningEffort: "low", ParallelToolCalls: new(false),
			ResponseFormat: json.RawMessage(`{"type":"json_object"}`),
		},
		Tools:      []llm.ToolSpec{{Name: "f", Description: "does f", Schema: `{"type":"object","properties":{"x":{"type":"string"}}}`}, {Name: "g"}},
		ToolChoice: "f",
		Messages: []llm.Message{
			{Role: llm.System, Text: "You are <b>."},
			{Role: llm.User, Text: "", Name: "alice"},
			{Role: llm.User, Text: "hi", Name: "not a wire name"},
			{Role: llm.Assistant, Calls: []session.ToolCall{{ID: "1", Name: "g"}}},
			{Role: llm.Tool, CallID: "1", Name: "g", Text: ""},
		},
		CacheKey: "not for this host",
		StepKey:  "run/1/2",
	}
	resp := ask(full)
	golden := func(name string) {
		t.Helper()
		var pretty bytes.Buffer
		must.Do(t, json.Indent(&pretty, body, "", "  "))
		pretty.WriteByte('\n')
		file := "testdata/" + name + ".json"
		if *update {
			must.Do(t, os.WriteFile(file, pretty.Bytes(), 0o644))
		}
		want := must.Get(os.ReadFile(file))(t)
		want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
		if diff := cmp.Diff(string(want), pretty.String()); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
	golden("full")
	if header.Get(llm.StepHeader) != "run/1/2" || header.Get(llm.TryHeader) != "" || header.Get("Authorization") != "" || header.Get("Accept") != "text/event-stream" {
		t.Errorf("header %v", header)
	}
	one := slices.Clone(body)
	ask(full)
	if !bytes.Equal(one, body) {
		t.Error("one request, two bodies")
	}

	// A longer transcript begins with the bytes of the shorter one, and the data that
	// the server attached to a call are sent back to it.
	full.Messages = append(full.Messages, resp.Message(), llm.Message{Role: llm.Tool, CallID: "a", Text: "done"})
	ask(full)
	old := `"tool_call_id":"1"}`
	end := bytes.Index(one, []byte(old)) + len(old)
	if end < len(old) || !bytes.HasPrefix(body, one[:end]) {
		t.Errorf("the transcript's bytes changed when it grew:\n%s\n%s", one, body)
	}
	if !bytes.Contains(body, []byte(`"extra_content":{"google":{"thought_signature":"sig=="}}`)) {
		t.Errorf("the signature is lost: %s", body)
	}
	resp.Opaque = strings.ReplaceAll(resp.Opaque, "127.0.0.1", "127.0.0.2")
	ask(&llm.Request{Provider: llm.Provider{Model: "m"}, Messages: []llm.Message{resp.Message()}})
	if bytes.Contains(body, []byte("sig==")) {
		t.Errorf("the signature went to another server: %s", body)
	}

	ask(&llm.Request{
		Provider: llm.Provider{Model: "gpt-6-sol", MaxTokens: 5, Extra: json.RawMessage(`{"top_k":3,"stream_options":null,"max_tokens":7}`)},
		Messages: []llm.Message{{Role: llm.User, Text: "hi"}}, ToolChoice: "auto",
	})
	golden("extra")

	ask(&llm.Request{Provider: llm.Provider{Model: "m"}, Messages: llmtest.Pictured()})
	golden("images")
	longer := slices.Clone(body)
	ask(&llm.Request{Provider: llm.Provider{Model: "m"}, Messages: llmtest.Pictured()[:4]})
	if short, ok := bytes.CutSuffix(body, []byte("]}]}")); !ok || !bytes.Contains(longer, short) { // the user continues
		t.Errorf("the transcript's bytes changed when it grew:\n%s\n%s", body, longer)
	}
}

func TestRequestsAreChecked(t *testing.T) {
	client, _ := serve(t, "-- a --\n\nx\n", nil, nil)
	for name, r := range map[string]*llm.Request{
		"no messages": {},
		"schema":      {Messages: user("x").Messages, Tools: []llm.ToolSpec{{Name: "f", Schema: "{"}}},
	} {
		if _, err := client.Complete(t.Context(), r, nil); !errors.Is(err, llm.CodeInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	client, _ := serve(b, "-- a --\n\n"+strings.Repeat("word ", 200)+"\n", nil, nil)
	r := user("hi")
	b.ReportAllocs()
	for b.Loop() {
		must.Get(client.Complete(b.Context(), r, func(llm.Delta) {}))(b)
	}
}

// TestRedact: a client masks the key of its server.
func TestRedact(t *testing.T) {
	env := func(name string) string { return map[string]string{"MY_KEY": "letmein4711"}[name] }
	c := must.Get(openai.New(&llm.ServerOptions{Env: env}).Client(t.Context(), llm.Provider{Model: "m", BaseURL: "http://localhost:1/v1", KeyRef: "MY_KEY"}))(t)
	if got := c.(interface{ Redact(string) string }).Redact("say letmein4711"); got != "say "+llm.Redacted {
		t.Errorf("%q", got)
	}
}
