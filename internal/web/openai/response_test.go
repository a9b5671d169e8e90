package openai_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// shown is a response or a conversation, as far as the tests read it.
type shown struct {
	ID, Status string
	Type       string
	Sequence   int `json:"sequence_number"`
	Delta      string
	Output     []struct {
		ID, Type, Name, Arguments string
		Content                   []struct{ Text string }
	}
	Usage    *struct{ InputTokens int }
	Error    any
	Response *shown
	Data     []map[string]any
	FirstID  string `json:"first_id"`
	LastID   string `json:"last_id"`
	HasMore  bool   `json:"has_more"`
}

func (s *shown) text() (text string) {
	for _, o := range s.Output {
		for _, c := range o.Content {
			text += c.Text
		}
	}
	return text
}

func (s *shown) run() run.ID {
	id, _, _ := strings.Cut(strings.TrimPrefix(s.ID, "resp_"), ".")
	return run.ID(id)
}

// show makes a request and reads its answer.
func (d *door) show(t *testing.T, who, method, path, body string) (s shown) {
	t.Helper()
	r := d.send(t, who, method, path, body)
	if err := json.Unmarshal([]byte(r.body), &s); err != nil || r.status != 200 {
		t.Fatalf("%s %s: %d %s", method, path, r.status, r.body)
	}
	return s
}

// until reads a response until it has a status.
func (d *door) until(t *testing.T, id, status string) (s shown) {
	t.Helper()
	for s.Status != status {
		s = d.show(t, "ann", "GET", "responses/"+id, "")
		time.Sleep(time.Millisecond)
	}
	return s
}

// TestResponses tests responses and conversations on one node.
func TestResponses(t *testing.T) {
	d := open(t)
	for name, test := range map[string]func(d *door, t *testing.T){
		"versions": (*door).testVersions, "background": (*door).testBackground, "approvals": (*door).testApprovals, "events": (*door).testEvents,
		"conversation": (*door).testConversation, "bad": (*door).testBadResponses,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(d, t) })
	}
}

// testVersions: a response continues the session of the previous one, and a second one with
// the same previous response is a fork.
func (d *door) testVersions(t *testing.T) {
	one := d.show(t, "ann", "POST", "responses", `{"model":"talk","input":"one","metadata":{"customer":"c1"}}`)
	if one.Status != "completed" || one.text() != "echo: one" {
		t.Fatalf("%+v", one)
	}
	two := d.show(t, "ann", "POST", "responses", `{"model":"talk","input":[{"role":"user","content":"two"}],"previous_response_id":"`+one.ID+`"}`)
	other := d.show(t, "ann", "POST", "responses", `{"model":"talk","input":[{"role":"user","content":[{"type":"input_text","text":"2"}]}],"previous_response_id":"`+one.ID+`"}`)
	first, second, third := d.info(t, one.run()), d.info(t, two.run()), d.info(t, other.run())
	if second.Session != first.Session || third.Session == first.Session || third.Root != first.Root || first.Tags["customer"] != "c1" {
		t.Errorf("%s, then %s and %s; tags %v", first.Session, second.Session, third.Session, first.Tags)
	}
	if again := d.show(t, "ann", "GET", "responses/"+two.ID, ""); again.Status != "completed" || again.text() != "echo: two" {
		t.Errorf("%+v", again)
	}
	input := d.show(t, "ann", "GET", "responses/"+two.ID+"/input_items", "")
	if len(input.Data) != 1 || !strings.Contains(fmt.Sprint(input.Data[0]["content"]), "two") {
		t.Errorf("%v", input.Data)
	}
	// A client that keeps the items itself is matched like a history.
	d.show(t, "ann", "POST", "responses", `{"model":"talk","input":"items"}`)
	kept := d.show(t, "ann", "POST", "responses", `{"model":"talk","input":[{"role":"user","content":"items"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"echo: items"}]},{"role":"user","content":"more"}]}`)
	if kept.text() != "echo: more" {
		t.Errorf("%q", kept.text())
	}
}

func (d *door) testBackground(t *testing.T) {
	s := d.show(t, "ann", "POST", "responses", `{"model":"travel","input":"far","background":true}`)
	if s.Status != "queued" {
		t.Errorf("%+v", s)
	}
	asked := d.until(t, s.ID, "completed")
	if !strings.HasPrefix(asked.text(), "echo: far\n\n[Rath waits for response] Which city?") {
		t.Errorf("%q", asked.text())
	}
	answered := d.show(t, "ann", "POST", "responses", `{"model":"travel","input":"Bonn","previous_response_id":"`+s.ID+`"}`)
	if answered.text() != "echo: the city is Bonn" || answered.run() != s.run() || answered.ID == s.ID {
		t.Errorf("%+v", answered)
	}
	if again := d.show(t, "ann", "GET", "responses/"+answered.ID, ""); again.text() != answered.text() {
		t.Errorf("%q", again.text())
	}
	c := d.show(t, "ann", "POST", "responses", `{"model":"travel","input":"away","background":true}`)
	d.until(t, c.ID, "completed")
	if c = d.show(t, "ann", "POST", "responses/"+c.ID+"/cancel", ""); c.Status != "cancelled" {
		t.Errorf("%+v", c)
	}
	if f := d.show(t, "ann", "POST", "responses", `{"model":"fail","input":"x"}`); f.Status != "failed" || !strings.Contains(fmt.Sprint(f.Error), "the workflow is broken") {
		t.Errorf("%+v", f)
	}
}

func (d *door) testApprovals(t *testing.T) {
	for _, allow := range []bool{true, false} {
		s := d.show(t, "ann", "POST", "responses", `{"model":"publish","input":"paper"}`)
		if len(s.Output) != 2 || s.Output[1].Type != "mcp_approval_request" || s.Output[1].Name != "publish" || !strings.Contains(s.Output[1].Arguments, "Publish the notes?") {
			t.Fatalf("%+v", s)
		}
		body := fmt.Sprintf(`{"model":"publish","previous_response_id":%q,"input":[{"type":"mcp_approval_response","approval_request_id":%q,"approve":%v,"reason":"not yet"}]}`, s.ID, s.Output[1].ID, allow)
		if r := d.send(t, "ann-submit", "POST", "responses", body); r.status != 403 || !strings.Contains(r.body, "permission_error") {
			t.Errorf("the approval of a role that gives none: %d %s", r.status, r.body)
		}
		if r := d.send(t, "ann", "POST", "responses", body, "Only", "talk"); r.status != 404 {
			t.Errorf("the approval of a narrow token: %d %s", r.status, r.body)
		}
		want := "kept: not yet"
		if allow {
			want = "published"
		}
		answered := d.show(t, "ann", "POST", "responses", body)
		if answered.text() != want || answered.run() != s.run() {
			t.Errorf("%+v", answered)
		}
		if r := d.send(t, "ann", "POST", "responses", body, "X-Stainless-Retry-Count", "1"); r.status != 200 || !strings.Contains(r.body, want) {
			t.Errorf("a retry: %d %s", r.status, r.body)
		}
		if r := d.send(t, "ann", "POST", "responses", strings.Replace(body, "not yet", "twice", 1)); r.status != 409 || r.header.Get("X-Should-Retry") != "false" {
			t.Errorf("a second answer: %d %s", r.status, r.body)
		}
	}
}

func (d *door) testEvents(t *testing.T) {
	r := d.send(t, "ann", "POST", "responses", `{"model":"publish","input":"paper","stream":true}`)
	var kinds []string
	var text strings.Builder
	for i, chunk := range r.chunks {
		var e shown
		must.Do(t, json.Unmarshal([]byte(chunk), &e))
		if e.Sequence != i {
			t.Errorf("event %d has the number %d", i, e.Sequence)
		}
		if e.Type == "response.output_text.delta" {
			text.WriteString(e.Delta)
			if kinds[len(kinds)-1] == e.Type {
				continue
			}
		}
		kinds = append(kinds, e.Type)
	}
	if got, want := strings.Join(kinds, " "), "response.created response.in_progress response.output_item.added response.content_part.added response.output_text.delta response.output_text.done "+
		"response.content_part.done response.output_item.done response.output_item.added response.output_item.done response.completed"; got != want || text.String() != "echo: paper" {
		t.Errorf("%s\nwant %s\n%q", got, want, text.String())
	}
}

func (d *door) testConversation(t *testing.T) {
	c := d.show(t, "ann", "POST", "conversations", "{}")
	if s := d.show(t, "ann", "GET", "conversations/"+c.ID, ""); s.ID != c.ID {
		t.Errorf("%+v", s)
	}
	if s := d.show(t, "ann", "GET", "conversations/"+c.ID+"/items", ""); len(s.Data) != 0 {
		t.Errorf("%+v", s)
	}
	for _, text := range []string{"one", "two"} {
		d.info(t, new(d.show(t, "ann", "POST", "responses", fmt.Sprintf(`{"model":"talk","input":%q,"conversation":%q}`, text, c.ID))).run())
	}
	s := d.show(t, "ann", "GET", "conversations/"+c.ID+"/items?order=asc&limit=3", "")
	if len(s.Data) != 3 || !s.HasMore || s.Data[0]["role"] != "user" || s.Data[1]["role"] != "assistant" {
		t.Errorf("%+v", s)
	}
	if s = d.show(t, "ann", "GET", "conversations/"+c.ID+"/items?order=asc&after="+s.LastID, ""); len(s.Data) != 1 || s.HasMore || !strings.Contains(fmt.Sprint(s.Data[0]), "echo: two") {
		t.Errorf("%+v", s)
	}
	if r := d.send(t, "ann", "GET", "conversations/"+c.ID, "", "Only", "travel"); r.status != 404 {
		t.Errorf("the conversation of a narrow token: %d %s", r.status, r.body)
	}
}

func (d *door) testBadResponses(t *testing.T) {
	asked, id := d.chat(t, "ann", "publish", user("open"))
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"both":              {"POST", "responses", `{"model":"talk","input":"x","previous_response_id":"resp_x","conversation":"y"}`, 400, `"param":"conversation"`},
		"no previous":       {"POST", "responses", `{"model":"talk","input":"x","previous_response_id":"resp_none"}`, 404, `unknown_run`},
		"no id":             {"POST", "responses", `{"model":"talk","input":"x","previous_response_id":"run"}`, 404, `begins with resp_`},
		"no conversation":   {"POST", "responses", `{"model":"talk","input":"x","conversation":"none"}`, 404, `not_found`},
		"no input":          {"POST", "responses", `{"model":"talk","input":[]}`, 400, `"param":"input"`},
		"an image":          {"POST", "responses", `{"model":"talk","input":[{"role":"user","content":[{"type":"input_image"}]}]}`, 400, `"param":"input[0].content[0]"`},
		"a tool's output":   {"POST", "responses", `{"model":"talk","input":[{"type":"function_call_output"}]}`, 400, `"param":"input[0]"`},
		"another form":      {"POST", "responses", `{"model":"talk","input":"x","text":{"format":{"type":"json_schema"}}}`, 400, `"param":"text.format"`},
		"not asked":         {"POST", "responses", fmt.Sprintf(`{"model":"publish","input":[{"type":"mcp_approval_response","approval_request_id":"mcpr_%s.2.7","approve":true}]}`, id), 409, `wrong_state`},
		"no step":           {"POST", "responses", fmt.Sprintf(`{"model":"publish","input":[{"type":"mcp_approval_response","approval_request_id":"mcpr_%s.7","approve":true}]}`, id), 400, `approval_request_id`},
		"no request":        {"POST", "responses", `{"model":"publish","input":[{"type":"mcp_approval_response","approval_request_id":"mcpr_none.2.7","approve":true}]}`, 404, `unknown_run`},
		"no response":       {"GET", "responses/resp_none", "", 404, `unknown_run`},
		"nothing to cancel": {"POST", "responses/resp_none/cancel", "", 404, `unknown_run`},
		"items":             {"POST", "conversations", `{"items":[{"role":"user"}]}`, 400, `"param":"items"`},
		"no session":        {"GET", "conversations/none/items", "", 404, `not_found`},
		"a wrong page":      {"GET", "conversations/" + string(must.Get(d.client.Runs.Get(t.Context(), id))(t).Session) + "/items?after=x", "", 400, `"param":"after"`},
		"a wrong limit":     {"GET", "conversations/" + string(must.Get(d.client.Runs.Get(t.Context(), id))(t).Session) + "/items?limit=0", "", 400, `"param":"limit"`},
	} {
		if r := d.send(t, "ann", tc.method, tc.path, tc.body); r.status != tc.status || !strings.Contains(r.body, tc.want) || !strings.Contains(r.body, `{"error":{`) {
			t.Errorf("%s: %d %.400s (%s)", name, r.status, r.body, asked)
		}
	}
	must.Do(t, d.client.Runs.Cancel(t.Context(), id, messages.Control{}))
}
