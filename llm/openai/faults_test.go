package openai_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/llmtest"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/session"
)

// data makes events of chunks.
func data(chunks ...string) string { return llmtest.Data(chunks...) }

// delta is a chunk with content, fin one that ends.
func delta(members string) string {
	return `{"id":"x","object":"chat.completion.chunk","created":1,"model":"m1","choices":[{"index":0,"delta":{` + members + `},"finish_reason":null}]}`
}

func say(text string) string { return delta(`"content":"` + text + `"`) }

func calls(list string) string { return delta(`"tool_calls":[` + list + `]`) }

func fin(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func models(l llmtest.Limits) llm.Models {
	return openai.New(&llm.ServerOptions{
		Timeouts: llm.Timeouts{FirstToken: l.FirstToken, Silence: l.Silence}, Tail: l.Tail, MaxFrame: l.MaxFrame, MaxResponse: l.MaxResponse, Key: l.Key, Transport: l.Transport,
	})
}

// chat renders answers of the chat completions protocol.
var chat = llmtest.Wire{
	Models: models,
	Last:   "[DONE]",
	Events: func(parts ...llmtest.Part) []string {
		events := []string{delta(`"role":"assistant","content":""`)}
		for _, p := range parts {
			switch {
			case p.Finish != "":
				events = append(events, fin(string(p.Finish)))
				if p.Usage != (session.Usage{}) {
					events = append(events, `{"choices":[],"usage":`+chatUsage(p.Usage)+`}`)
				}
			default:
				events = append(events, delta(chatMembers(p)))
			}
		}
		return events
	},
	Document: func(parts ...llmtest.Part) string {
		message, finish, used := []string{}, "", session.Usage{}
		for _, p := range parts {
			if p.Finish != "" {
				finish, used = string(p.Finish), p.Usage
				continue
			}
			message = append(message, chatMembers(p))
		}
		return `{"model":"m1","choices":[{"message":{` + strings.Join(message, ",") + `},"finish_reason":"` + finish + `"}],"usage":` + chatUsage(used) + "}\n"
	},
}

func chatMembers(p llmtest.Part) string {
	switch {
	case p.Call == nil && p.Reasoning != "":
		return `"reasoning_content":"` + p.Reasoning + `"`
	case p.Call == nil:
		return `"content":"` + p.Text + `"`
	case p.Call.ID == "":
		return `"tool_calls":[{"index":` + strconv.Itoa(p.Index) + `,"function":{"arguments":"` + p.Call.Args + `"}}]`
	default:
		return `"tool_calls":[{"index":` + strconv.Itoa(p.Index) + `,"id":"` + p.Call.ID + `","type":"function","function":{"name":"` + p.Call.Name + `","arguments":"` + p.Call.Args + `"}}]`
	}
}

func chatUsage(u session.Usage) string {
	data, _ := json.Marshal(map[string]any{"prompt_tokens": u.Input, "completion_tokens": u.Output, "prompt_tokens_details": map[string]any{"cached_tokens": u.CacheRead, "cache_write_tokens": u.CacheWrite}})
	return string(data)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	stop := fin("stop")
	call := func(args ...string) []session.ToolCall { // id, name, args triples
		var cs []session.ToolCall
		for i := 0; i < len(args); i += 3 {
			cs = append(cs, session.ToolCall{ID: args[i], Name: args[i+1], Args: args[i+2]})
		}
		return cs
	}
	tools := llm.FinishTools
	row := func(name string, pieces []string, want llmtest.Outcome) llmtest.Row {
		return llmtest.Row{Name: name, Pieces: pieces, Want: want}
	}
	// The peculiarities of servers of this protocol.
	llmtest.Run(t, chat, []llmtest.Row{
		row("usage at the end", []string{llmtest.SSE, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8,"cache_write_tokens":1},"cost":0.000123}}`, "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop", Usage: session.Usage{Input: 9, Output: 2, CacheRead: 8, CacheWrite: 1, MicroUSD: 123}}),
		row("DeepSeek counters, nulls", []string{llmtest.SSE, data(`{"choices":null,"usage":null}`, say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9.0,"completion_tokens":"2","prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":1}}`, "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop", Usage: session.Usage{Input: 9, Output: 2, CacheRead: 8}}),
		row("a price that is no number", []string{llmtest.SSE, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"cost":{"total_cost":0.005}}}`, `{"choices":[],"usage":"none"}`, "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop", Usage: session.Usage{Input: 9, Output: 2}}),
		row("counters beyond all sums", []string{llmtest.SSE, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9223372036854775807,"completion_tokens":2}}`, "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop"}),
		row("counters that cannot be", []string{llmtest.SSE, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":1e30,"completion_tokens":-2,"cost":1e300}}`, "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop"}),
		row("a negative count beside one", []string{llmtest.SSE, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":-9223372036854775808}}`, "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop"}),
		row("counters without a number", []string{llmtest.SSE, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":"none","completion_tokens":{}}}`, "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop"}),
		row("a cost without tokens", []string{llmtest.SSE, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":0,"cost":0.000123}}`, "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop", Usage: session.Usage{MicroUSD: 123}}),
		row("a cost beyond all sums", []string{llmtest.SSE, data(say("Hello"), stop, `{"choices":[],"usage":{"cost":1e999,"prompt_tokens":9,"completion_tokens":2}}`, "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop", Usage: session.Usage{Input: 9, Output: 2}}),
		row("more from the cache than there is", []string{llmtest.SSE, data(say("Hello"), stop, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1e11,"cache_write_tokens":5}}}`, "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop", Usage: session.Usage{Input: 9, Output: 2, CacheRead: 9}}),
		row("odd types", []string{llmtest.SSE, data(`{"id":7,"created":1.5,"model":null,"choices":[{"index":"0","delta":{"role":null,"content":"Hello","tool_calls":null},"finish_reason":"eos"}]}`)}, llmtest.Outcome{Text: "Hello", Finish: "stop"}),
		row("other choices", []string{llmtest.SSE, data(`{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"stop"}]}`, say("Hello"), stop)}, llmtest.Outcome{Text: "Hello", Finish: "stop"}),
		row("refusal", []string{llmtest.SSE, data(delta(`"refusal":"I can"`), delta(`"refusal":"not."`), stop)}, llmtest.Outcome{Text: "I cannot.", Finish: "refusal"}),
		row("a refusal by its word", []string{llmtest.SSE, data(say("No."), fin("refusal"), "[DONE]")}, llmtest.Outcome{Text: "No.", Finish: "refusal"}),
		row("calls that never came", []string{llmtest.SSE, data(say("Hello"), fin("tool_calls"))}, llmtest.Outcome{Text: "Hello", Finish: tools}),
		row("a pause", []string{llmtest.SSE, data(say("Hello"), fin("pause_turn"))}, llmtest.Outcome{Text: "Hello", Finish: "pause"}),
		row("the limit in words of others", []string{llmtest.SSE, data(say("Hello"), fin("model_context_window_exceeded"))}, llmtest.Outcome{Text: "Hello", Finish: "length"}),
		row("a filter in words of others", []string{llmtest.SSE, data(say("Hello"), fin("SAFETY"))}, llmtest.Outcome{Text: "Hello", Finish: "content_filter"}),
		row("null as a word, cut", []string{llmtest.SSE, data(say("Hel"), fin("null"))}, llmtest.Outcome{Code: llm.CodeTruncated, Says: "without a finish reason after 3 bytes"}),
		row("null as a word, and the last event", []string{llmtest.SSE, data(say("Hel"), fin("None"), fin(""), "[DONE]")}, llmtest.Outcome{Code: llm.CodeTruncated}),
		row("null as a word, then a stop", []string{llmtest.SSE, data(fin("null"), say("Hel"), fin("null"), say("lo"), fin("null"), stop)}, llmtest.Outcome{Text: "Hello", Finish: "stop"}),
		row("null as a word of a document", []string{llmtest.Head(200, "application/json"), `{"choices":[{"message":{"content":"Hel"},"finish_reason":"null"}]}`}, llmtest.Outcome{Code: llm.CodeTruncated}),
		row("a word of tomorrow", []string{llmtest.SSE, data(say("Hello"), fin("Satisfied"), "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop", Word: "Satisfied"}),
		row("a word of tomorrow, with a call", []string{llmtest.SSE, data(calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`), fin("satisfied"), "[DONE]")}, llmtest.Outcome{Calls: call("a", "f", "{}"), Finish: tools, Word: "satisfied"}),
		row("a word of tomorrow, then one of the list", []string{llmtest.SSE, data(say("Hel"), fin("satisfied"), say("lo"), stop)}, llmtest.Outcome{Text: "Hello", Finish: "stop"}),
		row("a word of tomorrow of a document", []string{llmtest.Head(200, "application/json"), `{"model":"m1","choices":[{"message":{"content":"Hello"},"finish_reason":"satisfied"}]}`}, llmtest.Outcome{Text: "Hello", Finish: "stop", Word: "satisfied"}),
		row("a word of tomorrow, cut", []string{llmtest.SSE, data(say("Hel"), fin("satisfied"))}, llmtest.Outcome{Code: llm.CodeTruncated, Says: "without a finish reason"}),
		row("a word of tomorrow, and silence", []string{llmtest.SSE, data(say("Hel"), fin("satisfied")), llmtest.Pause}, llmtest.Outcome{Code: llm.CodeIdleTimeout}),
		row("a long word", []string{llmtest.SSE, data(say("Hello"), fin(strings.Repeat("ä", 50)), "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop", Word: strings.Repeat("ä", 30) + "…"}),
		row("a word with the key", []string{llmtest.SSE, data(say("Hello"), fin("by "+llmtest.CanaryKey), "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop", Word: "by [redacted]"}),
		row("a stop on each piece", []string{llmtest.SSE, data(delta(`"content":"Hel"},"finish_reason":"stop","x":{`), stop, say("lo"), stop)}, llmtest.Outcome{Text: "Hello", Finish: "stop"}),
		row("a stop in the middle, cut", []string{llmtest.SSE, data(say("Hel"), stop, say("l"))}, llmtest.Outcome{Code: llm.CodeTruncated}),
		row("a stop in the middle, and the last event", []string{llmtest.SSE, data(say("Hel"), stop, say("lo"), "[DONE]")}, llmtest.Outcome{Text: "Hello", Finish: "stop"}),
		row("reasoning_content", []string{llmtest.SSE, data(delta(`"reasoning_content":"Hm \ud83d"`), delta(`"reasoning_content":"\ude42"`), say("Hello"), stop)}, llmtest.Outcome{Reasoning: "Hm 🙂", Text: "Hello", Finish: "stop"}),
		row("reasoning", []string{llmtest.SSE, data(delta(`"reasoning":"Hm","reasoning_details":[{"text":"Hm"}]`), say("Hello"), stop)}, llmtest.Outcome{Reasoning: "Hm", Text: "Hello", Finish: "stop"}),
		row("reasoning_details", []string{llmtest.SSE, data(delta(`"reasoning":null,"reasoning_details":[{"type":"reasoning.text","text":"Hm"},{"type":"reasoning.summary","summary":"!"}]`), say("Hello"), stop)}, llmtest.Outcome{Reasoning: "Hm!", Text: "Hello", Finish: "stop"}),
		row("content in parts", []string{llmtest.SSE, data(delta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm"}]},{"type":"text","text":"Hello"}]`), stop)}, llmtest.Outcome{Reasoning: "Hm", Text: "Hello", Finish: "stop"}),
		row("calls without index and id", []string{llmtest.SSE, data(calls(`{"function":{"name":"f","arguments":"{\"x\":1}"}}`), calls(`{"function":{"name":"g","arguments":"{\"y\""}}`), calls(`{"function":{"arguments":":2}"}}`), stop)}, llmtest.Outcome{Calls: call("call_0", "f", `{"x":1}`, "call_1", "g", `{"y":2}`), Finish: tools}),
		row("calls without index, with ids", []string{llmtest.SSE, data(calls(`{"id":"a","function":{"name":"f","arguments":"{"}},{"id":"b","function":{"name":"f","arguments":"{"}}`), calls(`{"id":"b","function":{"arguments":"}"}},{"id":"a","function":{"arguments":"}"}}`), stop)}, llmtest.Outcome{Calls: call("a", "f", "{}", "b", "f", "{}"), Finish: tools}),
		row("calls by position", []string{llmtest.SSE, data(calls(`{"function":{"name":"f"}},{"function":{"name":"g"}}`), calls(`{"function":{"arguments":"1"}},{"function":{"arguments":"2"}}`), stop)}, llmtest.Outcome{Calls: call("call_0", "f", "1", "call_1", "g", "2"), Finish: tools}),
		row("all calls have index 0", []string{llmtest.SSE, data(calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`), calls(`{"index":0,"id":"b","function":{"name":"f","arguments":"{}"}}`), stop)}, llmtest.Outcome{Calls: call("a", "f", "{}", "b", "f", "{}"), Finish: tools}),
		row("a new id with each piece", []string{llmtest.SSE, data(calls(`{"index":0,"id":"a","function":{"name":"f","arguments":""}}`), calls(`{"index":0,"id":"b","function":{"arguments":"{}"}}`), stop)}, llmtest.Outcome{Calls: call("a", "f", "{}"), Finish: tools}),
		row("the name with each piece", []string{llmtest.SSE, data(calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}`), calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}`), stop)}, llmtest.Outcome{Calls: call("a", "f", "{}"), Finish: tools}),
		row("the name in pieces, arguments first", []string{llmtest.SSE, data(calls(`{"index":0,"id":"a","function":{"arguments":"{"}}`), calls(`{"index":0,"function":{"name":"web_"}}`), calls(`{"index":0,"function":{"name":"search","arguments":"}"}}`), stop)}, llmtest.Outcome{Calls: call("a", "web_search", "{}"), Finish: tools}),
		row("one id twice in one piece", []string{llmtest.SSE, data(calls(`{"index":0,"id":"a","function":{"name":"f"}},{"index":1,"id":"a","function":{"name":"g"}}`), stop)}, llmtest.Outcome{Calls: call("a", "f", "", "call_1", "g", ""), Finish: tools}),
		row("arguments as an object, id a number", []string{llmtest.SSE, data(calls(`{"index":0,"id":7,"function":{"name":"f","arguments":{"x": [1,"ä"]}}}`), stop)}, llmtest.Outcome{Calls: call("7", "f", `{"x": [1,"ä"]}`), Finish: tools}),
		row("function_call", []string{llmtest.SSE, data(delta(`"function_call":{"name":"f","arguments":"{"}`), delta(`"function_call":{"arguments":"}"}`), fin("function_call"))}, llmtest.Outcome{Calls: call("call_0", "f", "{}"), Finish: tools}),
		row("an error in a choice", []string{llmtest.SSE, data(say("Hel"), `{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":429,"message":"Provider returned error, try again in 6s"}}]}`)}, llmtest.Outcome{Code: llm.CodeRateLimited, RetryAfter: 6 * time.Second}),
		row("an error beside no choices", []string{llmtest.SSE, data(say("Hel"), `{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`)}, llmtest.Outcome{Code: llm.CodeQuota}),
		row("a failure without an error", []string{llmtest.Head(200, "application/json"), `{"success":false,"errors":[{"code":5021,"message":"exceeded this model context window limit (24000)"}]}`}, llmtest.Outcome{Code: llm.CodeContextLength}),
		row("throttled within a stream", []string{llmtest.SSE, data(say("Hel"), `{"message":"Too many tokens, please wait before trying again.","type":"ThrottlingException"}`)}, llmtest.Outcome{Code: llm.CodeRateLimited}),
		row("all is well", []string{llmtest.SSE, data(`{"choices":[{"delta":{"content":"Hello"}}],"base_resp":{"status_code":0,"status_msg":""}}`, stop)}, llmtest.Outcome{Text: "Hello", Finish: "stop"}),
		row("is broken off", []string{llmtest.SSE, data(say("Hello"), fin("error"))}, llmtest.Outcome{Code: llm.CodeUnavailable, Says: `broke off: "error"`}),
		row("JSON instead of a stream", []string{llmtest.Head(200, "application/json"), "{\n  \"model\": \"m1\",\n  \"choices\": [{\"message\": {\"content\": \"Hello <b>\", \"tool_calls\": [{\"id\": \"a\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, \"finish_reason\": \"tool_calls\"}],\n \"usage\": {\"prompt_tokens\": 3}}\n"}, llmtest.Outcome{Text: "Hello <b>", Calls: call("a", "f", "{}"), Finish: tools, Usage: session.Usage{Input: 3}}),
		row("calls interleaved, the second first", []string{llmtest.SSE, data(
			calls(`{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}`), calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}`),
			calls(`{"index":1,"function":{"arguments":"{}"}},{"index":0,"function":{"arguments":"\"🙂\"}"}}`), fin("tool_calls"))}, llmtest.Outcome{Calls: call("a", "f", `{"x":"🙂"}`, "b", "g", "{}"), Finish: tools}),
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\",\"tool_calls\":[{\"index\":0,\"id\":\"x\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("event: error\rdata: x\r\rdata: {\"choices\":[{\"message\":{\"content\":[{\"text\":\"\\ud83d\"}],\"reasoning\":\"\xf0\"},\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":-1}}"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":{\"a\":1}}},{\"id\":3}]},\"finish_reason\":\"x\"}]}"))
	llmtest.Fuzz(f, chat)
}

// TestSizeOfExtras: the data that a server attaches to its tool calls count as part of
// the answer.
func TestSizeOfExtras(t *testing.T) {
	piece := func(i int) string {
		return calls(`{"index":` + strconv.Itoa(i) + `,"id":"` + strconv.Itoa(i) + `","function":{"name":"f"},"extra_content":"` + strings.Repeat("x", 50<<10) + `"}`)
	}
	pieces := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = piece(i / 2) // the second replaces the first
		}
		return data(append(all, fin("stop"))...)
	}
	for n, want := range map[int]llm.Code{8: "", 16: llm.CodeMalformed} {
		if _, err := llmtest.Read(chat, pieces(n)); llm.CodeOf(err) != want {
			t.Errorf("%d pieces: %v", n, err)
		}
	}
}
