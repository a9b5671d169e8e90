package llmtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rathcluster/rath/llm/llmtest"
)

const own = "mark0123"

// TestStrictChat: a server of chat completions rejects the requests that real servers
// reject.
func TestStrictChat(t *testing.T) {
	const user, call, result = `{"role":"user","content":"hi"}`, `{"role":"assistant","content":"","tool_calls":[{"id":"123456789","type":"function","function":{"name":"f","arguments":"{}"}}]}`, `{"role":"tool","tool_call_id":"123456789","content":"1"}`
	all := []llmtest.Dialect{llmtest.OpenAIChat, llmtest.MistralChat, llmtest.TemplateChat, llmtest.ThinkingChat}
	others := all[1:]
	thought := func(text string) string {
		return strings.Replace(call, `"content"`, `"reasoning_content":"`+text+`","content"`, 1)
	}
	for name, tt := range map[string]struct {
		messages []string
		refuse   []llmtest.Dialect
	}{
		"a loop":                     {[]string{`{"role":"system","content":"be"}`, user, call, result}, nil},
		"no messages":                {nil, all},
		"a call without a result":    {[]string{user, call}, all},
		"a user before the result":   {[]string{user, call, user, result}, all},
		"a result of no call":        {[]string{user, result}, all},
		"one id twice":               {[]string{user, call, result, call, result}, all},
		"a long id":                  {[]string{user, strings.ReplaceAll(call, "123456789", strings.Repeat("x", 41)), strings.ReplaceAll(result, "123456789", strings.Repeat("x", 41))}, all},
		"an id of another form":      {[]string{user, strings.ReplaceAll(call, "123456789", "call_1"), strings.ReplaceAll(result, "123456789", "call_1")}, []llmtest.Dialect{llmtest.MistralChat}},
		"a name of another form":     {[]string{user, strings.ReplaceAll(call, `"f"`, `"a.b"`), result}, all},
		"arguments that are none":    {[]string{user, strings.ReplaceAll(call, `"{}"`, `"{"`), result}, others},
		"a user after a result":      {[]string{user, call, result, user}, []llmtest.Dialect{llmtest.MistralChat}},
		"two users":                  {[]string{user, user}, []llmtest.Dialect{llmtest.TemplateChat, llmtest.ThinkingChat}},
		"instructions in the middle": {[]string{user, `{"role":"system","content":"be"}`, user}, []llmtest.Dialect{llmtest.TemplateChat, llmtest.ThinkingChat}},
		"an answer at the end":       {[]string{user, `{"role":"assistant","content":"a"}`}, others},
		"an empty answer":            {[]string{user, `{"role":"assistant","content":""}`, user}, all},
		"its thought":                {[]string{user, thought("so " + own), result}, all[:3]},
		"the thought of another":     {[]string{user, thought("so"), result}, all},
		"a thought alone is missing": {[]string{user, thought(own), result, `{"role":"assistant","content":"a"}`, user}, all},
	} {
		body := []byte(`{"model":"m","messages":[` + strings.Join(tt.messages, ",") + `]}`)
		for _, d := range all {
			refused := false
			for _, one := range tt.refuse {
				refused = refused || one == d
			}
			if err := d.Check(body, own); (err != nil) != refused {
				t.Errorf("%s, %s: %v", name, d, err)
			}
		}
	}
}

// TestStrictOthers: so do servers of the other protocols.
func TestStrictOthers(t *testing.T) {
	const (
		user  = `{"role":"user","content":"hi"}`
		loop  = `{"role":"user","content":"hi"},{"role":"assistant","content":[%s{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[%s]}`
		done  = `{"type":"tool_result","tool_use_id":"a","content":"1"}`
		think = `{"type":"thinking","thinking":"so","signature":"mark0123"},`
	)
	messages := func(of, more string) string {
		return `{"model":"m","max_tokens":4000,` + more + `"messages":[` + of + `]}`
	}
	const budget = `"thinking":{"type":"enabled","budget_tokens":2000},`
	input := func(of string) string { return `{"model":"m","input":[` + of + `]}` }
	const asked = `{"role":"user","content":"hi"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`
	const output = `,{"type":"function_call_output","call_id":"a","output":"1"}`
	for name, tt := range map[string]struct {
		d     llmtest.Dialect
		body  string
		wrong string // "" is accepted
	}{
		"a loop":                  {llmtest.AnthropicMessages, messages(fmt.Sprintf(loop, think, done), budget), ""},
		"thinking without it":     {llmtest.AnthropicMessages, messages(fmt.Sprintf(loop, "", done), budget), "must start with a thinking block"},
		"not so if adaptive":      {llmtest.AnthropicMessages, messages(fmt.Sprintf(loop, "", done), `"thinking":{"type":"adaptive"},`), ""},
		"of another":              {llmtest.AnthropicMessages, messages(strings.ReplaceAll(fmt.Sprintf(loop, think, done), own, "x"), budget), "Invalid `signature`"},
		"a required tool":         {llmtest.AnthropicMessages, messages(user, budget+`"tool_choice":{"type":"any"},`), "forces tool use"},
		"a temperature":           {llmtest.AnthropicMessages, messages(user, budget+`"temperature":0,`), "temperature"},
		"too small a limit":       {llmtest.AnthropicMessages, messages(user, strings.Replace(budget, "2000", "4000", 1)), "budget_tokens"},
		"a blank text":            {llmtest.AnthropicMessages, messages(`{"role":"user","content":"\n"}`, ""), "non-whitespace"},
		"blank instructions":      {llmtest.AnthropicMessages, messages(user, `"system":[{"type":"text","text":" "}],`), "non-whitespace"},
		"two users":               {llmtest.AnthropicMessages, messages(user+","+user, ""), "alternate"},
		"an answer at first":      {llmtest.AnthropicMessages, messages(`{"role":"assistant","content":"a"},`+user, ""), "the first is user"},
		"an answer at last":       {llmtest.AnthropicMessages, messages(user+`,{"role":"assistant","content":"a"}`, ""), "prefill"},
		"a thought at the end":    {llmtest.AnthropicMessages, messages(user+`,{"role":"assistant","content":[`+strings.TrimSuffix(think, ",")+`]},`+user, ""), "final block"},
		"no result":               {llmtest.AnthropicMessages, messages(fmt.Sprintf(loop, "", `{"type":"text","text":"no"}`), ""), "without `tool_result`"},
		"a result that is late":   {llmtest.AnthropicMessages, messages(fmt.Sprintf(loop, "", `{"type":"text","text":"no"},`+done), ""), "must come first"},
		"a result of no call":     {llmtest.AnthropicMessages, messages(fmt.Sprintf(loop, "", done+","+strings.Replace(done, `"a"`, `"b"`, 1)), ""), "unexpected `tool_use_id`"},
		"one result twice":        {llmtest.AnthropicMessages, messages(fmt.Sprintf(loop, "", done+","+done), ""), "unexpected `tool_use_id`"},
		"an id of another form":   {llmtest.AnthropicMessages, messages(strings.ReplaceAll(fmt.Sprintf(loop, "", done), `"a"`, `"a:1"`), ""), "should match pattern"},
		"an id twice":             {llmtest.AnthropicMessages, messages(fmt.Sprintf(loop, "", done)+`,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[`+done+`]}`, ""), "must be unique"},
		"an input of no object":   {llmtest.AnthropicMessages, messages(strings.ReplaceAll(fmt.Sprintf(loop, "", done), `{}`, `[]`), ""), "valid dictionary"},
		"a failure without text":  {llmtest.AnthropicMessages, messages(fmt.Sprintf(loop, "", `{"type":"tool_result","tool_use_id":"a","is_error":true}`), ""), "content cannot be empty"},
		"a failure with an image": {llmtest.AnthropicMessages, messages(fmt.Sprintf(loop, "", `{"type":"tool_result","tool_use_id":"a","is_error":true,"content":[{"type":"image","source":{"data":"eA=="}}]}`), ""), "must be type `text`"},
		"five breakpoints":        {llmtest.AnthropicMessages, messages(`{"role":"user","content":[`+strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},`, 5), ",")+`]}`, ""), "maximum of 4"},
		"a tool of another name":  {llmtest.AnthropicMessages, messages(user, `"tools":[{"name":"a.b","input_schema":{"type":"object"}}],`), "does not match"},
		"a schema of no object":   {llmtest.AnthropicMessages, messages(user, `"tools":[{"name":"a","input_schema":{}}],`), "type"},

		"items":                  {llmtest.OpenAIResponses, input(strings.Replace(asked, `{"type":"f`, `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"mark0123"},{"type":"f`, 1) + output), ""},
		"an item of another":     {llmtest.OpenAIResponses, input(user + `,{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},{"role":"assistant","content":"a"}`), "could not be verified"},
		"a thought alone":        {llmtest.OpenAIResponses, input(user + `,{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"mark0123"},` + user), "required following item"},
		"a call without output":  {llmtest.OpenAIResponses, input(asked), "No tool output"},
		"an output of no call":   {llmtest.OpenAIResponses, input(user + output), "No tool call found"},
		"a call id twice":        {llmtest.OpenAIResponses, input(asked + output + strings.TrimPrefix(asked, user) + output), "earlier call"},
		"a long call id":         {llmtest.OpenAIResponses, input(strings.ReplaceAll(asked+output, `"a"`, `"`+strings.Repeat("x", 65)+`"`)), "call_id"},
		"an id without a prefix": {llmtest.OpenAIResponses, input(strings.Replace(asked, `"call_id"`, `"id":"call_1","call_id"`, 1) + output), "begins with 'fc'"},
		"no input":               {llmtest.OpenAIResponses, input(""), "Missing"},
	} {
		err := tt.d.Check([]byte(tt.body), own)
		if (err != nil) != (tt.wrong != "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: %v, want %q", name, err, tt.wrong)
		}
	}
}

// TestStrictServer: a rejection is an answer of status 400 with a text; an accepted
// request gets an answer whose thought the server accepts again.
func TestStrictServer(t *testing.T) {
	for _, d := range llmtest.Dialects() {
		refused := 0
		s := &llmtest.StrictServer{Dialect: d, Refused: func([]byte, error) { refused++ }}
		ask := func(body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://model.test/v1", strings.NewReader(body)))
			return w
		}
		if w := ask("{}"); w.Code != http.StatusBadRequest || refused != 1 || !strings.Contains(w.Body.String(), `"invalid_request_error"`) {
			t.Errorf("%s: %d %s", d, w.Code, w.Body)
		}
		w := ask(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}],"input":[{"role":"user","content":"hi"}]}`)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"ok"`) || refused != 1 {
			t.Errorf("%s: %d %s", d, w.Code, w.Body)
		}
		if thinks := d == llmtest.ThinkingChat || d == llmtest.OpenAIResponses || d == llmtest.AnthropicMessages; thinks != strings.Contains(w.Body.String(), llmtest.Mark("model.test", "m", "")) {
			t.Errorf("%s: %s", d, w.Body)
		}
	}
}
