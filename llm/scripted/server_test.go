package scripted

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
)

func post(t *testing.T, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))(t)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp := must.Get(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	data := must.Get(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, resp.Header, string(data)
}

// TestTranscriptOverHTTP checks that a script reads the transcript without the messages
// that are in it only for servers.
func TestTranscriptOverHTTP(t *testing.T) {
	s := must.Get(Parse("script", []byte("-- two --\nlast: One\nround: 2\ntext: Two.\n\n-- one --\ntext: One.\n")))(t)
	m := must.Get(New(s, nil))(t)
	srv := httptest.NewServer(m)
	defer srv.Close()
	for messages, want := range map[string]string{
		`{"role":"user","content":"go"}`: "One.",
		`{"role":"user","content":"go"},{"role":"assistant","content":"One."},{"role":"user","content":"Go on."}`:                                       "Two.",
		`{"role":"user","content":"go"},{"role":"assistant","content":"One."}`:                                                                          "Two.",
		`{"role":"user","content":"go"},{"role":"assistant","content":"Zero"},{"role":"user","content":"Go on."},{"role":"assistant","content":"One."}`: "One.",
	} {
		_, _, body := post(t, srv.URL+"/v1/chat/completions", `{"messages":[`+messages+`]}`)
		if !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %s", messages, body, want)
		}
	}
}

func TestServerSpeaksTheProtocol(t *testing.T) {
	var log bytes.Buffer
	s := research(t)
	m, err := New(s, &Options{Log: &log, Models: []string{"m1", "m2"}})
	must.Do(t, err)
	srv := httptest.NewServer(m)
	defer srv.Close()

	status, h, body := post(t, srv.URL+"/v1/chat/completions",
		`{"model":"m1","messages":[{"role":"developer","content":[{"type":"text","text":"You are the planner"}]},{"role":"user","content":"go"}]}`,
		llm.StepHeader, "run/1/2")
	var answer struct {
		Model   string
		Choices []struct {
			Message      struct{ Role, Content string }
			FinishReason string `json:"finish_reason"`
		}
		Usage map[string]any
	}
	must.Do(t, json.Unmarshal([]byte(body), &answer))
	if status != 200 || h.Get("Content-Type") != "application/json" || answer.Model != "m1" || answer.Choices[0].Message.Content != "1. search\n2. write" ||
		answer.Choices[0].FinishReason != "stop" || answer.Usage["prompt_tokens"] != 40.0 {
		t.Errorf("%d %s", status, body)
	}

	status, h, body = post(t, srv.URL+"/chat/completions", `{"model":"m1","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"a b"}]}`)
	if status != 200 || h.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %v", status, h)
	}
	var words []string
	sc := bufio.NewScanner(strings.NewReader(body))
	for sc.Scan() {
		if data, ok := strings.CutPrefix(sc.Text(), "data: "); ok {
			words = append(words, data)
		}
	}
	// role, "You ", "said: ", "a ", "b", finish, usage, [DONE]
	if len(words) != 8 || words[7] != "[DONE]" || !strings.Contains(words[5], `"finish_reason":"stop"`) || !strings.Contains(words[6], `"choices":[]`) {
		t.Errorf("%d frames:\n%s", len(words), body)
	}

	for _, c := range []struct {
		body, want string
		status     int
	}{
		{`{"model":"m1","messages":[{"role":"user","content":"be shy"}]}`, "rate_limit_exceeded", 429},
		{`{"model":"m9","messages":[{"role":"user","content":"x"}]}`, "model_not_found", 404},
		{`{"model":"m1","messages":[]}`, "no messages", 400},
		{`{"model":"m1","messages":[{"role":"user","content":3}]}`, "neither a string", 400},
		{`{`, "unexpected end of JSON", 400},
	} {
		if status, _, body := post(t, srv.URL+"/v1/chat/completions", c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", c.body, status, body)
		}
	}
	if status, h, _ := post(t, srv.URL+"/v1/chat/completions", `{"model":"m1","messages":[{"role":"system","content":"You are the planner"}]}`); status != 503 ||
		h.Get("Retry-After") != "2" || h.Get("Retry-After-Ms") != "1500" {
		t.Errorf("%d %v", status, h)
	}
	if status, _, body := post(t, srv.URL+"/v1/nothing", ``); status != 404 || !strings.Contains(body, "there are POST /v1/chat/completions") {
		t.Errorf("%d %s", status, body)
	}

	resp, err := http.Get(srv.URL + "/v1/models")
	must.Do(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(data), `"id":"m2"`) {
		t.Errorf("%v %s", err, data)
	}

	var first Entry
	must.Do(t, json.NewDecoder(&log).Decode(&first))
	if first.Step != "run/1/2" || first.Via != "http" || first.Rule != "plan" || first.Messages != 2 || first.Status != 200 ||
		first.Digest != Digest([]llm.Message{{Role: llm.System, Text: "You are the planner"}, {Role: llm.User, Text: "go"}}) {
		t.Errorf("%+v", first)
	}
}

func ExampleModel_ServeHTTP() {
	m, err := New(Echo(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewServer(m)
	defer srv.Close()

	resp, err := http.Post(srv.URL+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"messages": [{"role": "user", "content": "hello"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Choices[0].Message.Content)
	// Output: echo: hello
}
