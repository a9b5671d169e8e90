package openai_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
)

const (
	canaryKey    = "sk-canary-0123456789"
	canaryPrompt = "the-canary-prompt-sings"
)

// rawServer answers every request with the given pieces, byte for byte, each
// in a write of its own; "PAUSE" instead waits until the client is gone.
func rawServer(t *testing.T, pieces ...string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for _, p := range pieces {
			if p == "PAUSE" {
				_, _ = conn.Read(make([]byte, 1)) // the client closes
				return
			}
			if _, err := conn.Write([]byte(p)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/v1"
}

func head(status int, kind string, more ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: %s\r\n%sConnection: close\r\n\r\n", status, kind, strings.Join(more, ""))
}

var sse = head(200, "text/event-stream")

// data makes events of chunks.
func data(chunks ...string) string {
	return "data: " + strings.Join(chunks, "\n\ndata: ") + "\n\n"
}

// delta is a chunk that says something, fin one that ends.
func delta(members string) string {
	return `{"id":"x","object":"chat.completion.chunk","created":1,"model":"m1","choices":[{"index":0,"delta":{` + members + `},"finish_reason":null}]}`
}

func say(text string) string { return delta(`"content":"` + text + `"`) }

func calls(list string) string { return delta(`"tool_calls":[` + list + `]`) }

func fin(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func chunked(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func drip(s string) []string { return strings.Split(s, "") }

type outcome struct {
	text, reasoning string
	calls           []llm.ToolCall
	finish          llm.Finish
	usage           llm.Usage
	code            llm.Code
	says            string // what the error's text contains
}

// Each scenario was seen at a real server or proxy.
func TestAnswers(t *testing.T) {
	stop := fin("stop")
	call := func(args ...string) []llm.ToolCall { // id, name, args triples
		var cs []llm.ToolCall
		for i := 0; i < len(args); i += 3 {
			cs = append(cs, llm.ToolCall{ID: args[i], Name: args[i+1], Args: args[i+2]})
		}
		return cs
	}
	tools := llm.FinishTools
	for _, c := range []struct {
		name   string
		pieces []string
		want   outcome
	}{
		// Whole answers.
		{"plain", []string{sse, data(say("Hello"), say(" you"), stop, "[DONE]")}, outcome{text: "Hello you", finish: "stop"}},
		{"chunked", []string{head(200, "text/event-stream", "Transfer-Encoding: chunked\r\n"), chunked(data(say("Hel"))), chunked(data(say("lo"), stop, "[DONE]")), "0\r\n\r\n"}, outcome{text: "Hello", finish: "stop"}},
		{"CRLF", []string{sse, strings.ReplaceAll(data(say("Hello"), stop, "[DONE]"), "\n", "\r\n")}, outcome{text: "Hello", finish: "stop"}},
		{"CR alone", []string{sse, strings.ReplaceAll(data(say("Hello"), stop, "[DONE]"), "\n", "\r")}, outcome{text: "Hello", finish: "stop"}},
		{"byte order mark", []string{sse, "\uFEFF" + data(say("Hello"), stop, "[DONE]")}, outcome{text: "Hello", finish: "stop"}},
		{"no space after the colon", []string{sse, "data:" + say("Hello") + "\n\ndata:" + stop + "\n\ndata:[DONE]\n\n"}, outcome{text: "Hello", finish: "stop"}},
		{"byte by byte", append([]string{sse}, drip(data(say("Grüße 🙂"), stop, "[DONE]"))...), outcome{text: "Grüße 🙂", finish: "stop"}},
		{"no [DONE]", []string{sse, data(say("Hello"), stop)}, outcome{text: "Hello", finish: "stop"}},
		{"last line without an end", []string{sse, data(say("Hel")) + "data: " + `{"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}`}, outcome{text: "Hello", finish: "stop"}},
		{"no blank lines", []string{sse, strings.ReplaceAll(data(say("Hel"), say("lo"), stop, "[DONE]"), "\n\n", "\n")}, outcome{text: "Hello", finish: "stop"}},
		{"several data lines", []string{sse, "data: {\"choices\":\ndata: [{\"delta\":{\"content\":\"Hello\"},\ndata: \"finish_reason\":\"stop\"}]}\n\n"}, outcome{text: "Hello", finish: "stop"}},
		{"comments and fields", []string{sse, strings.Repeat(": ping\n\n", 1000) + "id: 1\nevent: message\nretry: 5\n" + data(say("Hello"), stop, "[DONE]")}, outcome{text: "Hello", finish: "stop"}},
		{"breaks after the finish", []string{head(200, "text/event-stream", "Transfer-Encoding: chunked\r\n"), chunked(data(say("Hello"), stop))}, outcome{text: "Hello", finish: "stop"}},
		{"stays open after the finish", []string{sse, data(say("Hello"), stop), "PAUSE"}, outcome{text: "Hello", finish: "stop"}},
		{"usage at the end", []string{sse, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8,"cache_write_tokens":1},"cost":0.000123}}`, "[DONE]")}, outcome{text: "Hello", finish: "stop", usage: llm.Usage{Input: 9, Output: 2, CacheRead: 8, CacheWrite: 1, MicroUSD: 123}}},
		{"DeepSeek counters, nulls", []string{sse, data(`{"choices":null,"usage":null}`, say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9.0,"completion_tokens":"2","prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":1}}`, "[DONE]")}, outcome{text: "Hello", finish: "stop", usage: llm.Usage{Input: 9, Output: 2, CacheRead: 8}}},
		{"a price that is no number", []string{sse, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"cost":{"total_cost":0.005}}}`, `{"choices":[],"usage":"none"}`, "[DONE]")}, outcome{text: "Hello", finish: "stop", usage: llm.Usage{Input: 9, Output: 2}}},
		{"counters beyond all sums", []string{sse, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9223372036854775807,"completion_tokens":2}}`, "[DONE]")}, outcome{text: "Hello", finish: "stop"}},
		{"counters that cannot be", []string{sse, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":1e30,"completion_tokens":-2,"cost":1e300}}`, "[DONE]")}, outcome{text: "Hello", finish: "stop"}},
		{"a negative count beside one", []string{sse, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":-9223372036854775808}}`, "[DONE]")}, outcome{text: "Hello", finish: "stop"}},
		{"counters without a number", []string{sse, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":"none","completion_tokens":{}}}`, "[DONE]")}, outcome{text: "Hello", finish: "stop"}},
		{"a cost without tokens", []string{sse, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":0,"cost":0.000123}}`, "[DONE]")}, outcome{text: "Hello", finish: "stop", usage: llm.Usage{MicroUSD: 123}}},
		{"a cost beyond all sums", []string{sse, data(say("Hello"), stop, `{"choices":[],"usage":{"cost":1e999,"prompt_tokens":9,"completion_tokens":2}}`, "[DONE]")}, outcome{text: "Hello", finish: "stop", usage: llm.Usage{Input: 9, Output: 2}}},
		{"more from the cache than there is", []string{sse, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1e11,"cache_write_tokens":5}}}`, "[DONE]")}, outcome{text: "Hello", finish: "stop", usage: llm.Usage{Input: 9, Output: 2, CacheRead: 9}}},
		{"odd types", []string{sse, data(`{"id":7,"created":1.5,"model":null,"choices":[{"index":"0","delta":{"role":null,"content":"Hello","tool_calls":null},"finish_reason":"eos"}]}`)}, outcome{text: "Hello", finish: "stop"}},
		{"other choices", []string{sse, data(`{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"stop"}]}`, say("Hello"), stop)}, outcome{text: "Hello", finish: "stop"}},
		{"JSON instead of a stream", []string{head(200, "application/json"), "{\n  \"model\": \"m1\",\n  \"choices\": [{\"message\": {\"content\": \"Hello <b>\", \"tool_calls\": [{\"id\": \"a\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, \"finish_reason\": \"tool_calls\"}],\n \"usage\": {\"prompt_tokens\": 3}}\n"}, outcome{text: "Hello <b>", calls: call("a", "f", "{}"), finish: tools, usage: llm.Usage{Input: 3}}},
		{"stream labelled JSON", []string{head(200, "application/json"), "\n" + data(say("Hello"), stop, "[DONE]")}, outcome{text: "Hello", finish: "stop"}},
		{"length", []string{sse, data(say("Hello"), fin("length"))}, outcome{text: "Hello", finish: "length"}},
		{"filter", []string{sse, data(say("Hello"), fin("content_filter"))}, outcome{text: "Hello", finish: "content_filter"}},
		{"refusal", []string{sse, data(delta(`"refusal":"I can"`), delta(`"refusal":"not."`), stop)}, outcome{text: "I cannot.", finish: "content_filter"}},
		{"empty", []string{sse, data(stop)}, outcome{finish: "stop"}},
		{"tool_calls without calls", []string{sse, data(say("Hello"), fin("tool_calls"))}, outcome{text: "Hello", finish: "stop"}},

		// Characters in pieces.
		{"bytes split between deltas", []string{sse, data(say("a\xf0\x9f"), say("\x99"), say("\x82b"), stop)}, outcome{text: "a🙂b", finish: "stop"}},
		{"surrogates split between deltas", []string{sse, data(say(`a\ud83d`), say(`\ude42b\ud83d\ude42`), stop)}, outcome{text: "a🙂b🙂", finish: "stop"}},
		{"half a character at the end", []string{sse, data(say("a\xf0\x9f"), stop)}, outcome{text: "a\uFFFD", finish: "stop"}},
		{"half a pair at the end", []string{sse, data(say(`a\ud83d`), say(`b\ud83d`), stop)}, outcome{text: "a\uFFFDb\uFFFD", finish: "stop"}},
		{"invalid bytes inside", []string{sse, data(say("a\xffb\xf0\x9fc"), stop)}, outcome{text: "a\uFFFDb\uFFFDc", finish: "stop"}},

		// Reasoning.
		{"reasoning_content", []string{sse, data(delta(`"reasoning_content":"Hm \ud83d"`), delta(`"reasoning_content":"\ude42"`), say("Hello"), stop)}, outcome{reasoning: "Hm 🙂", text: "Hello", finish: "stop"}},
		{"reasoning", []string{sse, data(delta(`"reasoning":"Hm","reasoning_details":[{"text":"Hm"}]`), say("Hello"), stop)}, outcome{reasoning: "Hm", text: "Hello", finish: "stop"}},
		{"reasoning_details", []string{sse, data(delta(`"reasoning":null,"reasoning_details":[{"type":"reasoning.text","text":"Hm"},{"type":"reasoning.summary","summary":"!"}]`), say("Hello"), stop)}, outcome{reasoning: "Hm!", text: "Hello", finish: "stop"}},
		{"content in parts", []string{sse, data(delta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm"}]},{"type":"text","text":"Hello"}]`), stop)}, outcome{reasoning: "Hm", text: "Hello", finish: "stop"}},

		// Calls.
		{"calls interleaved", []string{sse, data(
			calls(`{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}`), calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}`),
			calls(`{"index":1,"function":{"arguments":"{}"}},{"index":0,"function":{"arguments":"\"🙂\"}"}}`), fin("tool_calls"))}, outcome{calls: call("a", "f", `{"x":"🙂"}`, "b", "g", "{}"), finish: tools}},
		{"calls without index and id", []string{sse, data(calls(`{"function":{"name":"f","arguments":"{\"x\":1}"}}`), calls(`{"function":{"name":"g","arguments":"{\"y\""}}`), calls(`{"function":{"arguments":":2}"}}`), stop)}, outcome{calls: call("call_0", "f", `{"x":1}`, "call_1", "g", `{"y":2}`), finish: tools}},
		{"calls without index, with ids", []string{sse, data(calls(`{"id":"a","function":{"name":"f","arguments":"{"}},{"id":"b","function":{"name":"f","arguments":"{"}}`), calls(`{"id":"b","function":{"arguments":"}"}},{"id":"a","function":{"arguments":"}"}}`), stop)}, outcome{calls: call("a", "f", "{}", "b", "f", "{}"), finish: tools}},
		{"calls by position", []string{sse, data(calls(`{"function":{"name":"f"}},{"function":{"name":"g"}}`), calls(`{"function":{"arguments":"1"}},{"function":{"arguments":"2"}}`), stop)}, outcome{calls: call("call_0", "f", "1", "call_1", "g", "2"), finish: tools}},
		{"all calls have index 0", []string{sse, data(calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`), calls(`{"index":0,"id":"b","function":{"name":"f","arguments":"{}"}}`), stop)}, outcome{calls: call("a", "f", "{}", "b", "f", "{}"), finish: tools}},
		{"a new id with each piece", []string{sse, data(calls(`{"index":0,"id":"a","function":{"name":"f","arguments":""}}`), calls(`{"index":0,"id":"b","function":{"arguments":"{}"}}`), stop)}, outcome{calls: call("a", "f", "{}"), finish: tools}},
		{"the name with each piece", []string{sse, data(calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}`), calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}`), stop)}, outcome{calls: call("a", "f", "{}"), finish: tools}},
		{"the name in pieces, arguments first", []string{sse, data(calls(`{"index":0,"id":"a","function":{"arguments":"{"}}`), calls(`{"index":0,"function":{"name":"web_"}}`), calls(`{"index":0,"function":{"name":"search","arguments":"}"}}`), stop)}, outcome{calls: call("a", "web_search", "{}"), finish: tools}},
		{"one id twice", []string{sse, data(calls(`{"index":0,"id":"a","function":{"name":"f"}},{"index":1,"id":"a","function":{"name":"g"}}`), stop)}, outcome{calls: call("a", "f", "", "call_1", "g", ""), finish: tools}},
		{"arguments as an object, id a number", []string{sse, data(calls(`{"index":0,"id":7,"function":{"name":"f","arguments":{"x": [1,"ä"]}}}`), stop)}, outcome{calls: call("7", "f", `{"x": [1,"ä"]}`), finish: tools}},
		{"function_call", []string{sse, data(delta(`"function_call":{"name":"f","arguments":"{"}`), delta(`"function_call":{"arguments":"}"}`), fin("function_call"))}, outcome{calls: call("call_0", "f", "{}"), finish: tools}},
		{"calls cut at the limit", []string{sse, data(calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x"}}`), fin("length"))}, outcome{calls: call("a", "f", `{"x`), finish: "length"}},

		// Answers that are not whole.
		{"ends without a finish", []string{sse, data(say("Hello"))}, outcome{code: llm.CodeTruncated, says: "without a finish reason after 5 bytes"}},
		{"[DONE] without a finish", []string{sse, data(say("Hello"), "[DONE]")}, outcome{code: llm.CodeTruncated, says: "without a finish reason"}},
		{"ends inside an event", []string{sse, data(say("Hello")) + "data: {\"choices\":[{\"delta\":{\"content\":\"x"}, outcome{code: llm.CodeTruncated, says: "broke off"}},
		{"chunked and aborted", []string{head(200, "text/event-stream", "Transfer-Encoding: chunked\r\n"), chunked(data(say("Hello")))}, outcome{code: llm.CodeTruncated, says: "broke off"}},
		{"shorter than announced", []string{head(200, "application/json", "Content-Length: 999\r\n"), `{"choices":[`}, outcome{code: llm.CodeTruncated}},
		{"half a document", []string{head(200, "application/json"), `{"choices":[{"message":{"content":"Hel`}, outcome{code: llm.CodeTruncated, says: "stops after"}},
		{"nothing", []string{sse}, outcome{code: llm.CodeTruncated, says: "empty"}},
		{"only comments", []string{sse, ": ping\n\n: ping\n\n"}, outcome{code: llm.CodeTruncated}},
		{"stalls", []string{sse, data(say("Hello")), "PAUSE"}, outcome{code: llm.CodeIdleTimeout, says: "stalled for 200ms"}},
		{"begins with nothing and stalls", []string{sse, data(delta(`"role":"assistant","content":""`)), "PAUSE"}, outcome{code: llm.CodeTimeout, says: "no first token within 1s"}},
		{"never answers", []string{"PAUSE"}, outcome{code: llm.CodeTimeout, says: "no first token within 1s"}},
		{"closes at once", nil, outcome{code: llm.CodeUnavailable, says: "cannot reach http://127.0.0.1"}},
		{"is broken off", []string{sse, data(say("Hello"), fin("error"))}, outcome{code: llm.CodeUnavailable, says: `broke off: "error"`}},

		// Answers that are something else.
		{"a chunk that is not JSON", []string{sse, data(say("Hello"), `{"choices":[{"delta":{"content":`, stop)}, outcome{code: llm.CodeMalformed}},
		{"a chunk of another type", []string{sse, data(`[1]`)}, outcome{code: llm.CodeMalformed}},
		{"a login page", []string{head(200, "text/html"), "<html><head><title>Sign in</title></head>" + canaryPrompt}, outcome{code: llm.CodeMalformed, says: `a web page titled "Sign in"; is the base URL http://127`}},
		{"a page that says it is a stream", []string{sse, "\n<!DOCTYPE html>"}, outcome{code: llm.CodeMalformed, says: "a web page of 15 bytes"}},
		{"a document that is not JSON", []string{head(200, "application/json"), `{'choices': []}`}, outcome{code: llm.CodeMalformed, says: "not JSON"}},
		{"a huge event", []string{sse, data(say(strings.Repeat("x", 70<<10)), stop)}, outcome{code: llm.CodeMalformed, says: "limit 65536 bytes"}},
		{"a huge document", []string{head(200, "application/json"), `{"x":"` + strings.Repeat("x", 300<<10) + `"}`}, outcome{code: llm.CodeMalformed, says: "larger than 262144 bytes"}},
		{"a huge answer", []string{sse, data(strings.Split(strings.Repeat(say(strings.Repeat("x", 60<<10))+"\n", 5), "\n")[:5]...)}, outcome{code: llm.CodeMalformed, says: "larger than 262144 bytes"}},

		// Errors that servers report in a stream.
		{"error frame", []string{sse, data(say("Hello"), `{"error":{"message":"engine died","type":"server_error","code":500}}`)}, outcome{code: llm.CodeUnavailable, says: "engine died"}},
		{"error frame with a space", []string{sse, data(`{ "error" : {"message":"slow down","type":"rate_limit_error"}}`)}, outcome{code: llm.CodeRateLimited, says: "slow down"}},
		{"error text", []string{sse, data(`{"error":"overloaded"}`)}, outcome{code: llm.CodeOverloaded}},
		{"object error", []string{sse, data(`{"object":"error","message":"the maximum context length is 10","type":"BadRequestError","code":400}`)}, outcome{code: llm.CodeContextLength}},
		{"type error", []string{sse, data(`{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`)}, outcome{code: llm.CodeOverloaded, says: "busy"}},
		{"event: error", []string{sse, data(say("Hello")) + "event: error\ndata: worker lost\n\n"}, outcome{code: llm.CodeUnavailable, says: "worker lost"}},
		{"a bare error line", []string{sse, `{"error":{"message":"bad key ` + canaryKey + `","code":"invalid_api_key"}}` + "\n"}, outcome{code: llm.CodeAuth, says: "[redacted]"}},
		{"an error after the finish", []string{sse, data(say("Hello"), stop, `{"error":{"message":"late"}}`)}, outcome{code: llm.CodeUnavailable, says: "late"}},
		{"200 with an error", []string{head(200, "application/json"), `{"error":{"message":"no such model","code":"model_not_found"}}`}, outcome{code: llm.CodeModelNotFound, says: "set the provider's model"}},
		{"200 with a list of errors", []string{head(200, "application/json"), `[{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]`}, outcome{code: llm.CodeOverloaded}},

		// Errors by status.
		{"429", []string{head(429, "application/json", "Retry-After: 7\r\n"), `{"error":{"message":"slow down"}}`}, outcome{code: llm.CodeRateLimited, says: "HTTP 429: slow down"}},
		{"429 without credit", []string{head(429, "application/json"), `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`}, outcome{code: llm.CodeQuota}},
		{"500 page with secrets", []string{head(500, "text/html"), "<html><title>Oops</title>Authorization: Bearer " + canaryKey + " " + canaryPrompt}, outcome{code: llm.CodeUnavailable, says: `HTTP 500: a web page titled "Oops"`}},
		{"500 dump with secrets", []string{head(500, "application/octet-stream"), canaryKey + canaryPrompt}, outcome{code: llm.CodeUnavailable, says: "bytes that are not JSON"}},
		{"503", []string{head(503, "text/plain"), "no healthy upstream"}, outcome{code: llm.CodeOverloaded, says: "HTTP 503: no healthy upstream"}},
		{"401", []string{head(401, "application/json"), `{"error":{"message":"Incorrect API key provided: ` + canaryKey + `"}}`}, outcome{code: llm.CodeAuth, says: "check the key in MY_KEY"}},
		{"404 model", []string{head(404, "application/json"), `{"error":{"message":"The model 'm1' does not exist"}}`}, outcome{code: llm.CodeModelNotFound}},
		{"404 page", []string{head(404, "text/plain"), "404 page not found"}, outcome{code: llm.CodeInvalidRequest, says: "usually ending in /v1"}},
		{"400 context", []string{head(400, "application/json"), `{"error":{"message":"too long","code":"context_length_exceeded"}}`}, outcome{code: llm.CodeContextLength}},
		{"400 content", []string{head(400, "application/json"), `{"error":{"message":"no","code":"content_filter"}}`}, outcome{code: llm.CodeRefused}},
		{"422 detail", []string{head(422, "application/json"), `{"detail":[{"loc":["body"],"msg":"field required"}]}`}, outcome{code: llm.CodeInvalidRequest, says: "field required"}},
		{"400 long", []string{head(400, "application/json"), `{"error":{"message":"` + strings.Repeat("ä", 4000) + `"}}`}, outcome{code: llm.CodeInvalidRequest, says: "…"}},
		{"307", []string{head(307, "text/plain", "Location: https://other.example/v1/chat/completions?key="+canaryKey+"\r\n")}, outcome{code: llm.CodeInvalidRequest, says: "redirects to https://other.example; set the base URL"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := &openai.Options{
				MaxFrame: 64 << 10, MaxResponse: 256 << 10, Tail: 50 * time.Millisecond,
				Key: func(ref string) (string, error) { return map[string]string{"MY_KEY": canaryKey}[ref], nil },
			}
			if strings.Contains(strings.Join(c.pieces, ""), "PAUSE") {
				o.FirstToken, o.Idle = time.Second, 200*time.Millisecond
			}
			models := openai.New(o)
			defer models.Close()
			p := llm.Provider{Model: "m1", BaseURL: rawServer(t, c.pieces...), KeyRef: "MY_KEY"}
			client, err := models.Client(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if s := fmt.Sprintf("%v %+v %#v %s", client, client, client, client); strings.Contains(s, canaryKey) {
				t.Errorf("a client prints its key: %s", s)
			}
			var text, reasoning strings.Builder
			args := map[int]string{}
			resp, err := client.Complete(t.Context(), &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: canaryPrompt}}}, func(d llm.Delta) {
				text.WriteString(d.Text)
				reasoning.WriteString(d.Reasoning)
				if d.Call != nil {
					args[d.Index] += d.Call.Args
				}
				if !utf8.ValidString(d.Text + d.Reasoning) {
					t.Errorf("a delta is not UTF-8: %+v", d)
				}
			})
			w := c.want
			if w.code != "" {
				e, ok := errors.AsType[*llm.Error](err)
				if !ok || e.Code != w.code || !strings.Contains(err.Error(), w.says) || resp != nil {
					t.Fatalf("got %+v, %v\nwant %s, %q", resp, err, string(w.code), w.says)
				}
				for _, secret := range []string{canaryKey, "canary-0123", canaryPrompt} {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("the error tells %q: %v", secret, err)
					}
				}
				if !strings.Contains(err.Error(), `model "m1" at 127.0.0.1`) || len(err.Error()) > 700 {
					t.Errorf("%d bytes: %v", len(err.Error()), err)
				}
				if c.name == "429" && e.RetryAfter != 7*time.Second {
					t.Errorf("retry after %v", e.RetryAfter)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := outcome{text: resp.Text, reasoning: resp.Reasoning, calls: resp.Calls, finish: resp.Finish, usage: resp.Usage}
			if diff := cmp.Diff(w, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Error(diff)
			}
			if resp.Uncounted != (resp.Usage.Total() == 0) {
				t.Errorf("uncounted: %v, with %+v", resp.Uncounted, resp.Usage)
			}
			if resp.Model != "m1" {
				t.Errorf("model %q", resp.Model)
			}
			joined := 0
			for _, c := range resp.Calls {
				joined += len(c.Args)
			}
			for _, a := range args {
				joined -= len(a)
			}
			if text.String() != resp.Text || reasoning.String() != resp.Reasoning || joined != 0 {
				t.Errorf("the deltas say %q, %q, %v", text.String(), reasoning.String(), args)
			}
		})
	}
}
