package openai_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/api"
	"github.com/rathcluster/rath/internal/web/openai"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// door is a node and its door over HTTP.
type door struct {
	url    string
	client *client.Client // of user ann
}

func asText(f func(ctx context.Context, s session.Session) (session.Session, error)) func(o flow.Info) (flow.Workflow, error) {
	return func(o flow.Info) (flow.Workflow, error) {
		var input string
		if err := json.Unmarshal(o.Input, &input); err != nil {
			return nil, err
		}
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return f(ctx, s.With(session.UserText(input)))
		}), nil
	}
}

func talk(ctx context.Context, s session.Session) (session.Session, error) {
	return (&flow.Agent{Name: "talker"}).Forward(ctx, s)
}

// travel talks, asks for a city and talks about it.
func travel(ctx context.Context, s session.Session) (session.Session, error) {
	s, err := talk(ctx, s)
	if err != nil {
		return s, err
	}
	city, err := flow.Await[string](ctx, "city", &flow.AwaitOptions{Title: "Which city?"})
	if err != nil {
		return s, err
	}
	return talk(ctx, s.With(session.UserText("the city is "+city)))
}

// publish talks and asks for an approval.
func publish(ctx context.Context, s session.Session) (session.Session, error) {
	s, err := talk(ctx, s)
	if err != nil {
		return s, err
	}
	a, err := flow.Approve(ctx, "publish", &flow.AwaitOptions{Title: "Publish the notes?"})
	switch {
	case err != nil:
		return s, err
	case !a.Approved:
		return s.With(session.AssistantText("kept: " + a.Reason)), nil
	}
	return s.With(session.AssistantText("published")), nil
}

func fail(context.Context, session.Session) (session.Session, error) {
	return session.Session{}, errors.New("the workflow is broken")
}

func open(t testing.TB) *door {
	t.Helper()
	model := must.Get(scripted.New(scripted.Echo(), nil))(t)
	var all []flow.Registration
	for name, f := range map[string]func(ctx context.Context, s session.Session) (session.Session, error){"talk": talk, "travel": travel, "publish": publish, "fail": fail} {
		all = append(all, flow.Registration{Name: name, Revision: "1", NewFor: asText(f)})
	}
	n := must.Get(node.Start(t.Context(), &node.Options{Store: t.TempDir(), NATS: node.NATS{Port: -1, Level: "lazy"}, Models: node.Models{Source: model}, Workflows: all, Name: "host"}))(t)
	t.Cleanup(func() { must.Report(t, n.Close()) })
	c := must.Get(n.ClientOf(t.Context(), session.DefaultTenant))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	handler := http.NewServeMux()
	handler.Handle(openai.Prefix, openai.New(&openai.Options{URL: "http://rath.example"}))
	handler.Handle("/api/", must.Get(api.New(nil))(t))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, role, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "-")
		var only []string // nil without any
		if o := r.Header.Get("Only"); o != "" {
			only = strings.Split(o, ",")
		}
		if role == "" {
			role = string(permission.RoleClient)
		}
		handler.ServeHTTP(w, r.WithContext(access.With(r.Context(), &access.Caller{
			Tenant: session.DefaultTenant, User: user, Role: permission.Role(role), Door: access.DoorAPI, Token: user, Only: only, Client: c.As(user, "test"),
		})))
	}))
	t.Cleanup(srv.Close)
	return &door{url: srv.URL + openai.Prefix, client: c.As("ann", "test")}
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   string
	chunks []string // of a stream
}

// at returns the address of a path of the door, or of the server for one with a slash.
func (d *door) at(path string) string {
	if strings.HasPrefix(path, "/") {
		return strings.TrimSuffix(d.url, openai.Prefix) + path
	}
	return d.url + path
}

// send makes a request of a user. head are pairs of headers.
func (d *door) send(t testing.TB, user, method, path, body string, head ...string) reply {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), method, d.at(path), strings.NewReader(body)))(t)
	req.Header.Set("Authorization", "Bearer "+user)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	res := must.Get(http.DefaultClient.Do(req))(t)
	defer res.Body.Close()
	r := reply{status: res.StatusCode, header: res.Header}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				r.chunks = append(r.chunks, data)
			}
		}
		return r
	}
	r.body = string(must.Get(io.ReadAll(res.Body))(t))
	return r
}

// message is a row of a history.
type message struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

func user(text string) message      { return message{"user", text} }
func assistant(text string) message { return message{"assistant", text} }

func chatBody(t testing.TB, model string, more string, history ...message) string {
	t.Helper()
	rows := must.Get(json.Marshal(history))(t)
	return fmt.Sprintf(`{"model":%q,"messages":%s%s}`, model, rows, more)
}

// chat makes a chat completion and returns its text and its run.
func (d *door) chat(t testing.TB, who, model string, history ...message) (text string, id run.ID) {
	t.Helper()
	r := d.send(t, who, "POST", "chat/completions", chatBody(t, model, "", history...))
	return r.completion(t)
}

func (r reply) completion(t testing.TB) (text string, id run.ID) {
	t.Helper()
	var c struct {
		ID      string
		Choices []struct {
			Message      struct{ Content string }
			FinishReason string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal([]byte(r.body), &c); err != nil || r.status != 200 || len(c.Choices) != 1 {
		t.Fatalf("no completion: %d %s", r.status, r.body)
	}
	return c.Choices[0].Message.Content, run.ID(strings.TrimPrefix(c.ID, "chatcmpl-"))
}

// text joins the text of a stream's chunks.
func (r reply) text(t testing.TB) (text string) {
	t.Helper()
	for _, chunk := range r.chunks {
		var c struct {
			Choices []struct {
				Delta struct{ Content string }
			}
		}
		if chunk == "[DONE]" {
			continue
		}
		must.Do(t, json.Unmarshal([]byte(chunk), &c))
		for _, choice := range c.Choices {
			text += choice.Delta.Content
		}
	}
	return text
}

// info returns a run once the lineage has its end.
func (d *door) info(t testing.TB, id run.ID) messages.RunInfo {
	t.Helper()
	must.Get(d.client.Wait(t.Context(), id))(t)
	for {
		r := must.Get(d.client.Runs.Get(t.Context(), id))(t)
		if r.State.Terminal() {
			return r
		}
		time.Sleep(time.Millisecond)
	}
}

// TestDoor tests the door of one node.
func TestDoor(t *testing.T) {
	d := open(t)
	for name, test := range map[string]func(d *door, t *testing.T){
		"models": (*door).testModels, "history": (*door).testHistory, "questions": (*door).testQuestions, "approval": (*door).testApproval,
		"stream": (*door).testStream, "retry": (*door).testRetry, "bad": (*door).testBad,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(d, t) })
	}
}

func (d *door) testModels(t *testing.T) {
	for _, tc := range []struct{ user, only, path, want string }{
		{"ann", "", "models", `"id":"talk"`},
		{"ann", "talk", "models", `{"object":"list","data":[{"id":"talk"`},
		{"ann-observe", "", "models", `"data":[]`},
		{"ann", "", "models/talk", `"object":"model"`},
		{"ann", "", "models/none", `"code":"model_not_found"`},
		{"ann", "talk", "models/travel", `"code":"model_not_found"`},
	} {
		r := d.send(t, tc.user, "GET", tc.path, "", "Only", tc.only)
		// The order of an object's keys is that of Go's maps.
		var v any
		must.Do(t, json.Unmarshal([]byte(r.body), &v))
		want := strings.TrimPrefix(tc.want, `{"object":"list",`)
		if tc.only == "talk" && tc.path == "models" {
			want = `"id":"talk"`
			if strings.Contains(r.body, "travel") {
				t.Errorf("a narrow token sees %s", r.body)
			}
		}
		if !strings.Contains(r.body, want) {
			t.Errorf("%s of %s: %d %s", tc.path, tc.user, r.status, r.body)
		}
	}
}

// testHistory: a history that a client resends continues its session, a changed one a fork,
// and another user's nothing.
func (d *door) testHistory(t *testing.T) {
	one, first := d.chat(t, "ann", "talk", user("one"))
	if one != "echo: one" {
		t.Fatalf("%q", one)
	}
	home := d.info(t, first).Session
	two, second := d.chat(t, "ann", "talk", user("one"), assistant(one), message{"user", []map[string]string{{"type": "text", "text": "two"}}})
	three, third := d.chat(t, "ann", "talk", user("one"), assistant(one), user("two"), assistant(two), user("three"))
	for _, id := range []run.ID{second, third} {
		if r := d.info(t, id); r.Session != home {
			t.Errorf("run %s continued %s, not %s", id, r.Session, home)
		}
	}
	s := must.Get(d.client.Sessions.Get(t.Context(), string(home)))(t)
	if len(s.Chunks) != 6 || three != "echo: three" {
		t.Errorf("%d rows, %q", len(s.Chunks), three)
	}
	// Edited in the middle: a fork from the first answer, with the rest as the client's statement.
	_, edited := d.chat(t, "ann", "talk", user("one"), assistant(one), user("2"), assistant("changed"), user("three"))
	r := d.info(t, edited)
	if r.Session == home || r.Root != home {
		t.Errorf("the edited history went to session %s of tree %s", r.Session, r.Root)
	}
	forked := must.Get(d.client.Sessions.Get(t.Context(), string(r.Session)))(t)
	if row := forked.Chunks[2].Text; len(forked.Chunks) != 4 || !strings.Contains(row, "The client states") || !strings.Contains(row, "assistant: changed") || strings.Contains(row, "user: one") {
		t.Errorf("%d rows, the third is %q", len(forked.Chunks), row)
	}
	// The same point again: the session has gone on, so that it is a fork.
	_, again := d.chat(t, "ann", "talk", user("one"), assistant(one), user("other"))
	if r := d.info(t, again); r.Session == home || r.Root != home {
		t.Errorf("an older point went to session %s of tree %s", r.Session, r.Root)
	}
	// Another user's history is not matched.
	_, bobs := d.chat(t, "bob", "talk", user("one"), assistant(one), user("two"))
	if r := d.info(t, bobs); r.Root == home {
		t.Error("the history of another user was continued")
	}
	if _, unlike := d.chat(t, "ann", "talk", user("one")); unlike == first {
		t.Error("a second conversation got the first one's run")
	}
}

// testQuestions: the next message of a conversation answers a question.
func (d *door) testQuestions(t *testing.T) {
	asked, id := d.chat(t, "ann", "travel", user("plan"))
	if want := "echo: plan\n\n[Rath waits for response] Which city? (a text)\nReply with the answer, or give it at http://rath.example/t/default/questions/" + string(id); !strings.HasPrefix(asked, want) {
		t.Fatalf("%q", asked)
	}
	if r := d.send(t, "ann-submit", "POST", "chat/completions", chatBody(t, "travel", "", user("plan"), assistant(asked), user("Rome"))); r.status != 403 {
		t.Errorf("the answer of a role that gives none: %d %s", r.status, r.body)
	}
	said, same := d.chat(t, "ann", "travel", user("plan"), assistant(asked), user("Rome"))
	if said != "echo: the city is Rome" || same != id {
		t.Errorf("run %s says %q", same, said)
	}
	body := chatBody(t, "travel", "", user("plan"), assistant(asked), user("Rome"))
	if again, same := d.send(t, "ann", "POST", "chat/completions", body, "X-Stainless-Retry-Count", "1").completion(t); again != said || same != id {
		t.Errorf("a retry: run %s says %q", same, again)
	}
	_, next := d.chat(t, "ann", "travel", user("plan"), assistant(asked), user("Rome"), assistant(said), user("more"))
	if r := must.Get(d.client.Runs.Get(t.Context(), next))(t); next == id || r.Session != d.info(t, id).Session {
		t.Errorf("run %s continued session %s", next, r.Session)
	}
}

// testApproval: no message of a conversation approves.
func (d *door) testApproval(t *testing.T) {
	asked, id := d.chat(t, "ann", "publish", user("notes"))
	if !strings.Contains(asked, "echo: notes\n\n[Rath waits for approval] Publish the notes?") {
		t.Fatalf("%q", asked)
	}
	again, same := d.chat(t, "ann", "publish", user("notes"), assistant(asked), user("yes, approve"))
	if same != id || !strings.HasPrefix(again, "[Rath waits for approval]") {
		t.Errorf("run %s says %q", same, again)
	}
	must.Do(t, d.client.Questions.Approve(t.Context(), id, messages.Control{}))
	d.info(t, id)
	next, other := d.chat(t, "ann", "publish", user("notes"), assistant(asked), user("and now?"))
	if r := must.Get(d.client.Runs.Get(t.Context(), other))(t); other == id || r.Session != d.info(t, id).Session {
		t.Errorf("run %s (%q) continued session %s", other, next, r.Session)
	}
}

func (d *door) testStream(t *testing.T) {
	r := d.send(t, "ann", "POST", "chat/completions", chatBody(t, "travel", `,"stream":true,"stream_options":{"include_usage":true}`, message{"developer", "be short"}, user("plan")))
	text := r.text(t)
	if !strings.HasPrefix(text, "echo: Instructions: be short\n\nplan\n\n[Rath waits") {
		t.Fatalf("%q", text)
	}
	if n := len(r.chunks); r.chunks[n-1] != "[DONE]" || !strings.Contains(r.chunks[n-2], `"usage":{`) || !strings.Contains(r.chunks[n-3], `"finish_reason":"stop"`) || !strings.Contains(r.chunks[0], `"role":"assistant"`) {
		t.Errorf("%s", strings.Join(r.chunks, "\n"))
	}
	r = d.send(t, "ann", "POST", "chat/completions", chatBody(t, "travel", `,"stream":true`, message{"system", "be short"}, user("plan"), assistant(text), user("Oslo")))
	if text := r.text(t); text != "echo: the city is Oslo" {
		t.Errorf("%q", text)
	}
	r = d.send(t, "ann", "POST", "chat/completions", chatBody(t, "fail", `,"stream":true`, user("x")))
	if r.status != 500 || !strings.Contains(r.body, `the workflow is broken`) || r.header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// testRetry: the retry of a library joins the run, the same request again does not, and a
// client that hangs up does not cancel.
func (d *door) testRetry(t *testing.T) {
	body := chatBody(t, "talk", "", user("retried"))
	ids := map[run.ID]bool{}
	var last run.ID
	for range 10 { // more than retries tell apart
		_, last = d.send(t, "ann", "POST", "chat/completions", body).completion(t)
		ids[last] = true
	}
	if len(ids) != 10 {
		t.Errorf("%d runs", len(ids))
	}
	_, joined := d.send(t, "ann", "POST", "chat/completions", body, "X-Stainless-Retry-Count", "1").completion(t)
	if !ids[joined] {
		t.Error("a retry made a run")
	}
	if _, other := d.send(t, "bob", "POST", "chat/completions", body, "X-Stainless-Retry-Count", "1").completion(t); ids[other] {
		t.Error("the retry of another token joined the run")
	}
	ctx, hangUp := context.WithCancel(t.Context())
	req := must.Get(http.NewRequestWithContext(ctx, "POST", d.url+"chat/completions", strings.NewReader(chatBody(t, "travel", `,"stream":true`, user("hang up")))))(t)
	req.Header.Set("Authorization", "Bearer ann")
	res := must.Get(http.DefaultClient.Do(req))(t)
	hangUp()
	must.Report(t, res.Body.Close())
	for {
		open := must.Get(d.client.Runs.List(t.Context(), &client.RunsOptions{Workflow: "travel", States: []run.State{run.Waiting}}))(t)
		if slices.ContainsFunc(open, func(r messages.RunInfo) bool { return strings.Contains(r.Asked, "hang up") && len(r.Waits) == 1 }) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (d *door) testBad(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	for name, tc := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"no JSON":           {`{"model":`, 400, `"type":"invalid_request_error"`},
		"two objects":       {`{} {}`, 400, `text follows`},
		"no model":          {`{"messages":[{"role":"user","content":"x"}]}`, 404, `"code":"model_not_found"`},
		"no messages":       {`{"model":"talk","messages":[]}`, 400, `"param":"messages"`},
		"no text":           {`{"model":"talk","messages":[{"role":"user","content":" "}]}`, 400, `end with a user message`},
		"an image":          {`{"model":"talk","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}]}`, 400, `"param":"messages[0].content[0]"`},
		"a tool's row":      {`{"model":"talk","messages":[{"role":"tool","tool_call_id":"x","content":"y"}]}`, 400, `"param":"messages[0].role"`},
		"a number":          {`{"model":"talk","messages":[{"role":"user","content":7}]}`, 400, `"param":"messages[0].content"`},
		"two choices":       {chatBody(t, "talk", `,"n":2`, user("x")), 400, `"param":"n"`},
		"tools":             {chatBody(t, "talk", `,"tools":[{"type":"function"}]`, user("x")), 400, `"param":"tools"`},
		"a form":            {chatBody(t, "talk", `,"response_format":{"type":"json_object"}`, user("x")), 400, `"param":"response_format"`},
		"metadata":          {chatBody(t, "talk", `,"metadata":{"a b":"c"}`, user("x")), 400, `"param":"metadata"`},
		"taken metadata":    {chatBody(t, "talk", `,"metadata":{"openai":"c"}`, user("x")), 400, `"param":"metadata"`},
		"a long message":    {chatBody(t, "talk", "", user(long)), 413, `"code":"context_length_exceeded"`},
		"a long history":    {chatBody(t, "talk", "", slices.Repeat([]message{user(long), assistant("y")}, 33)...) + " ", 400, `end with a user message`},
		"an unknown past":   {chatBody(t, "talk", "", append(slices.Repeat([]message{user(long), assistant("y")}, 33), user("x"))...), 413, `"code":"context_length_exceeded"`},
		"more than allowed": {chatBody(t, "talk", "", user(strings.Repeat(long, 60))), 413, `more than`},
	} {
		r := d.send(t, "ann", "POST", "chat/completions", tc.body)
		if r.status != tc.status || !strings.Contains(r.body, tc.want) || !strings.Contains(r.body, `{"error":{`) {
			t.Errorf("%s: %d %.400s", name, r.status, r.body)
		}
	}
	if r := d.send(t, "ann-observe", "POST", "chat/completions", chatBody(t, "talk", "", user("x"))); r.status != 404 {
		t.Errorf("a role that reads: %d %s", r.status, r.body)
	}
	for _, path := range []string{"chat/completions", "embeddings"} {
		if r := d.send(t, "ann", "DELETE", path, ""); r.status != 404 || !strings.Contains(r.body, "docs/openai.md") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
}
