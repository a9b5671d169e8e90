package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/api"
	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	sandboxes "github.com/rathcluster/rath/sandbox/scripted"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// door is a node and its routes over HTTP. Each request and answer is checked against the
// description of the routes.
type door struct {
	url     string
	clients map[session.Tenant]*client.Client
	spec    *spec
}

const (
	ours   session.Tenant = "default"
	theirs session.Tenant = "other"
)

// caller is who makes a request.
type caller struct {
	tenant session.Tenant
	role   permission.Role
	only   []string
}

var ann = caller{ours, permission.RoleClient, nil}

// attempts counts those of the workflow fickle.
var attempts atomic.Int32

// workflows are those of the tests: one talks, one asks for an approval, one leaves a file,
// one has another asked, and one does not repeat its steps.
func workflows() []flow.Registration {
	write, _ := tool.ByName(tool.WriteWorkspaceFile)
	talk := func(o flow.Info) (flow.Workflow, error) {
		var input string
		if err := json.Unmarshal(o.Input, &input); err != nil {
			return nil, err
		}
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return (&flow.Agent{Name: "talker"}).Forward(ctx, s.With(session.UserText(input)))
		}), nil
	}
	return []flow.Registration{
		{Name: "talk", Revision: "1", NewFor: talk},
		{Name: "publish", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				a, err := flow.Approve(ctx, "Publish the notes?", nil)
				if err == nil && !a.Approved {
					err = errors.New("not published: " + a.Reason)
				}
				return s.With(session.UserText("published")), err
			})
		}},
		{Name: "team", Revision: "1", New: func() flow.Workflow { return flow.Remote{Workflow: "publish"} }},
		{Name: "fickle", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				name := fmt.Sprint("attempt", attempts.Add(1)) // another step whenever it runs
				_, err := flow.Do(ctx, name, func(context.Context) (int, error) { return 1, nil }, tool.ReadOnly)
				if err == nil {
					_, err = flow.Approve(ctx, "Go on?", nil)
				}
				return s, err
			})
		}},
		{Name: "edit", Revision: "1", NewFor: func(o flow.Info) (flow.Workflow, error) {
			content := "one\ntwo\n" + string(o.Input)
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				s, _, err := flow.CallTool(ctx, s.To("local", ""), write, map[string]string{"path": "note.txt", "content": content})
				return s, err
			}), nil
		}},
	}
}

func open(t *testing.T) *door {
	t.Helper()
	model := must.Get(scripted.New(scripted.Echo(), nil))(t)
	n := must.Get(node.Start(t.Context(), &node.Options{
		Store: t.TempDir(), NATS: node.NATS{Port: -1, Level: "lazy"}, Models: node.Models{Source: model}, Workflows: workflows(), Name: "host",
		Sandbox: node.Sandbox{Backends: map[string]sandbox.Backend{"local": sandboxes.New(&sandboxes.Options{Name: "local"})}, Unsafe: true},
	}))(t)
	t.Cleanup(func() { must.Report(t, n.Close()) })
	d := &door{clients: map[session.Tenant]*client.Client{}}
	for _, tenant := range []session.Tenant{ours, theirs} {
		c := must.Get(n.ClientOf(t.Context(), tenant))(t)
		t.Cleanup(func() { must.Report(t, c.Close()) })
		d.clients[tenant] = c.As("ann", "test")
	}
	a := must.Get(api.New(&api.Options{Release: "test"}))(t)
	d.spec = readSpec(t, a.OpenAPI())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var only []string // nil without any
		if named := r.Header.Get("Only"); named != "" {
			only = strings.Split(named, ",")
		}
		tenant := session.Tenant(r.Header.Get("Tenant"))
		a.ServeHTTP(w, r.WithContext(access.With(r.Context(), &access.Caller{
			Tenant: tenant, User: "ann", Role: permission.Role(r.Header.Get("Role")), Door: access.DoorAPI, Only: only, Client: d.clients[tenant],
		})))
	}))
	t.Cleanup(srv.Close)
	d.url = srv.URL
	return d
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// problem reads the document of an error.
func (a answer) problem(t *testing.T) problem.Document {
	t.Helper()
	var p problem.Document
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.header.Get("Content-Type") != problem.MediaType || p.Status != a.status {
		t.Fatalf("no problem document: %d %s", a.status, a.body)
	}
	return p
}

// ask makes a request as a caller and checks both against the description.
func (d *door) ask(t *testing.T, who caller, method, path, body string) answer {
	t.Helper()
	header := http.Header{}
	if body != "" {
		header.Set("Content-Type", "application/json")
	}
	return d.send(t, who, method, path, body, header)
}

func (d *door) send(t *testing.T, who caller, method, path, body string, header http.Header) answer {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), method, d.url+path, strings.NewReader(body)))(t)
	req.Header = header
	req.Header.Set("Tenant", string(who.tenant))
	req.Header.Set("Role", string(who.role))
	req.Header.Set("Only", strings.Join(who.only, ","))
	res := must.Get(http.DefaultClient.Do(req))(t)
	data := must.Get(io.ReadAll(res.Body))(t)
	must.Do(t, res.Body.Close())
	a := answer{res.StatusCode, res.Header, string(data)}
	d.spec.check(t, req, body, a)
	record(t, req, body, a)
	return a
}

var exchanges = flag.String("exchanges", "", "`file` that gets each request with its answer, for the tests in the module openapi")

// Exchange is a line of the file of -exchanges.
type Exchange struct {
	Method, URL     string
	Header, Answer  http.Header
	Body, Answering []byte
	Status          int
}

var recording sync.Mutex

// record appends a request and its answer to the file of -exchanges.
func record(t *testing.T, req *http.Request, body string, a answer) {
	t.Helper()
	if *exchanges == "" {
		return
	}
	recording.Lock()
	defer recording.Unlock()
	f := must.Get(os.OpenFile(*exchanges, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600))(t)
	must.Do(t, json.NewEncoder(f).Encode(Exchange{req.Method, req.URL.String(), req.Header, a.header, []byte(body), []byte(a.body), a.status}))
	must.Do(t, f.Close())
}

// get is ask for an answer of JSON that must succeed.
func (d *door) get(t *testing.T, path string, into any) {
	t.Helper()
	a := d.ask(t, ann, "GET", path, "")
	if a.status != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, a.status, a.body)
	}
	must.Do(t, json.Unmarshal([]byte(a.body), into))
}

// run submits a task and waits for its end.
func (d *door) run(t *testing.T, id, workflow, more string) messages.Result {
	t.Helper()
	d.submit(t, id, workflow, more)
	var r messages.Result
	d.get(t, "/api/v1/runs/"+id+"/result?wait_s=30", &r)
	return r
}

func (d *door) submit(t *testing.T, id, workflow, more string) {
	t.Helper()
	a := d.ask(t, ann, "PUT", "/api/v1/runs/"+id, `{"workflow":"`+workflow+`"`+more+`}`)
	if a.status != http.StatusAccepted || a.body != `{"run":"`+id+`"}`+"\n" {
		t.Fatalf("submit %s: %d %s", id, a.status, a.body)
	}
}

// question waits until a run asks a question.
func (d *door) question(t *testing.T, id run.ID) string {
	t.Helper()
	for {
		f := must.Get(d.clients[ours].Follow(t.Context(), id))(t)
		r, err := d.clients[ours].Runs.Get(t.Context(), id)
		if errors.Is(err, run.ErrUnknownRun) { // a node has not taken its task yet
			f.Close()
			time.Sleep(5 * time.Millisecond)
			continue
		}
		must.Do(t, err)
		if len(r.Waits) > 0 {
			f.Close()
			return string(r.Waits[0].Step)
		}
		if r.State.Terminal() {
			t.Fatalf("run %s ended as %s", id, r.State)
		}
		for _, err := range f.All(t.Context()) {
			must.Do(t, err)
			break
		}
	}
}

// spec is the description of the routes.
type spec struct {
	doc struct {
		OpenAPI    string                                 `json:"openapi"`
		Paths      map[string]map[string]operation        `json:"paths"`
		Components struct{ Schemas map[string]rawSchema } `json:"components"`
	}
	mu       sync.Mutex
	compiled map[string]*jsonschema.Resolved
	used     map[string]bool // the rows that tests have reached with success
}

type rawSchema = json.RawMessage

type operation struct {
	ID         string `json:"operationId"`
	Roles      string `json:"description"`
	Parameters []struct {
		Name, In string
		Schema   rawSchema
	}
	RequestBody *struct {
		Required bool
		Content  map[string]struct{ Schema rawSchema }
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema rawSchema }
	}
}

func readSpec(t *testing.T, text []byte) *spec {
	t.Helper()
	s := &spec{compiled: map[string]*jsonschema.Resolved{}, used: map[string]bool{}}
	must.Do(t, json.Unmarshal(text, &s.doc))
	return s
}

// resolve compiles a schema of the description, whose references lead to the schemas of
// package messages.
func (s *spec) resolve(t *testing.T, raw rawSchema) *jsonschema.Resolved {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var ref struct {
		Ref string `json:"$ref"`
	}
	must.Do(t, json.Unmarshal(raw, &ref))
	if name, ok := strings.CutPrefix(ref.Ref, "#/components/schemas/"); ok {
		raw = s.doc.Components.Schemas[name]
	}
	if r := s.compiled[string(raw)]; r != nil {
		return r
	}
	var schema jsonschema.Schema
	must.Do(t, json.Unmarshal(raw, &schema))
	r := must.Get(schema.Resolve(&jsonschema.ResolveOptions{BaseURI: "https://host/api/v1/openapi.json", Loader: func(u *url.URL) (*jsonschema.Schema, error) {
		text, err := messages.SchemaOf(strings.TrimSuffix(strings.TrimPrefix(u.Path, "/api/v1/schema/"), ".json"))
		if err != nil {
			return nil, err
		}
		var loaded jsonschema.Schema
		return &loaded, json.Unmarshal(text, &loaded)
	}}))(t)
	s.compiled[string(raw)] = r
	return r
}

// find returns the operation of a request.
func (s *spec) find(method, path string) (template string, op operation, ok bool) {
	best := -1
	for at, item := range s.doc.Paths {
		pattern := "^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(at), "[^/]+") + "$"
		if o, has := item[strings.ToLower(method)]; has && regexp.MustCompile(pattern).MatchString(path) {
			if fixed := -strings.Count(at, "{"); best == -1 || fixed > -strings.Count(template, "{") {
				template, op, ok, best = at, o, true, 0
			}
		}
	}
	return template, op, ok
}

// check compares a request that succeeded, and each answer, with the description.
func (s *spec) check(t *testing.T, req *http.Request, body string, a answer) {
	t.Helper()
	at, op, ok := s.find(req.Method, req.URL.EscapedPath())
	if a.status >= 400 {
		a.problem(t)
		s.valid(t, "problem", json.RawMessage(`{"$ref":"#/components/schemas/document"}`), a.body)
		return
	}
	if !ok {
		t.Errorf("%s %s succeeded and is not described", req.Method, req.URL)
		return
	}
	what := req.Method + " " + at
	for name, values := range req.URL.Query() {
		i := slices.IndexFunc(op.Parameters, func(p struct {
			Name, In string
			Schema   rawSchema
		},
		) bool {
			return p.Name == name && p.In == "query"
		})
		if i < 0 {
			t.Errorf("%s: the parameter %s is not described", what, name)
			continue
		}
		var is struct{ Type string }
		must.Do(t, json.Unmarshal(op.Parameters[i].Schema, &is))
		text, _ := json.Marshal(values[0])
		if is.Type == "array" {
			text, _ = json.Marshal(values)
		} else if is.Type == "integer" {
			text = []byte(values[0])
		}
		s.valid(t, what+": "+name, op.Parameters[i].Schema, string(text))
	}
	if body != "" {
		if op.RequestBody == nil {
			t.Fatalf("%s: the body is not described", what)
		}
		if c, ok := op.RequestBody.Content["application/json"]; ok {
			s.valid(t, what+": the body", c.Schema, body)
		}
	}
	r, ok := op.Responses[strconv.Itoa(a.status)]
	if !ok {
		t.Fatalf("%s: the status %d is not described", what, a.status)
	}
	s.mu.Lock()
	s.used[what] = true
	s.mu.Unlock()
	if a.status == http.StatusNotModified {
		return
	}
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	c, ok := r.Content[media]
	if !ok {
		t.Fatalf("%s: the type %s is not described", what, media)
	}
	if c.Schema != nil {
		s.valid(t, what, c.Schema, a.body)
	}
}

func (s *spec) valid(t *testing.T, what string, schema rawSchema, text string) {
	t.Helper()
	var v any
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&v); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := s.resolve(t, schema).Validate(v); err != nil {
		t.Errorf("%s: %v in %s", what, err, fmt.Sprintf("%.400s", text))
	}
}
