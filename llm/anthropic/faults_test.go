package anthropic_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/anthropic"
	"github.com/rathcluster/rath/llm/llmtest"
	"github.com/rathcluster/rath/session"
)

func models(l llmtest.Limits) llm.Models {
	return anthropic.New(&llm.ServerOptions{
		Timeouts: llm.Timeouts{FirstToken: l.FirstToken, Silence: l.Silence}, Tail: l.Tail, MaxFrame: l.MaxFrame, MaxResponse: l.MaxResponse, Key: l.Key, Transport: l.Transport,
	})
}

// messages renders answers of the Messages protocol.
var messages = llmtest.Wire{
	Models: models,
	Last:   `{"type":"message_stop"}`,
	Events: func(parts ...llmtest.Part) []string {
		events := []string{`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m1","content":[],"stop_reason":null}}`, `{"type":"ping"}`}
		s := blocks{calls: map[int]int{}, open: -1}
		for _, p := range parts {
			events = append(events, s.events(p)...)
		}
		return events
	},
	Document: func(parts ...llmtest.Part) string {
		var list []string
		end := ""
		for _, p := range parts {
			switch {
			case p.Finish != "":
				end = `"stop_reason":"` + reason(p.Finish) + `","usage":` + tokens(p.Usage)
			case p.Call != nil:
				list = append(list, `{"type":"tool_use","id":"`+p.Call.ID+`","name":"`+p.Call.Name+`","input":`+p.Call.Args+`}`)
			default:
				list = append(list, `{"type":"text","text":"`+p.Text+`"}`)
			}
		}
		return `{"type":"message","model":"m1","content":[` + strings.Join(list, ",") + `],` + end + "}"
	},
}

// blocks are the blocks of a stream in progress.
type blocks struct {
	n, open int
	kind    string
	calls   map[int]int // the block of each call
}

func (s *blocks) events(p llmtest.Part) (events []string) {
	switch {
	case p.Finish != "":
		events = s.close(events)
		for i := range len(s.calls) {
			events = append(events, fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, s.calls[i]))
		}
		return append(events, `{"type":"message_delta","delta":{"stop_reason":"`+reason(p.Finish)+`","stop_sequence":null},"usage":`+tokens(p.Usage)+`}`)
	case p.Call != nil:
		events = s.close(events)
		at, ok := s.calls[p.Index]
		if !ok {
			at = s.n
			s.n++
			s.calls[p.Index] = at
			events = append(events, fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":"%s","name":"%s","input":{}}}`, at, p.Call.ID, p.Call.Name))
		}
		return append(events, fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":"%s"}}`, at, p.Call.Args))
	}
	kind, said := "text", p.Text
	if p.Reasoning != "" {
		kind, said = "thinking", p.Reasoning
	}
	if s.open < 0 || s.kind != kind {
		events = s.close(events)
		s.open, s.kind = s.n, kind
		s.n++
		events = append(events, fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"%s","%s":""}}`, s.open, kind, kind))
	}
	return append(events, fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"%s_delta","%s":"%s"}}`, s.open, kind, kind, said))
}

func (s *blocks) close(events []string) []string {
	if s.open >= 0 {
		events = append(events, fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, s.open))
		s.open = -1
	}
	return events
}

func reason(f llm.Finish) string {
	return map[llm.Finish]string{llm.FinishStop: "end_turn", llm.FinishLength: "max_tokens", llm.FinishTools: "tool_use", llm.FinishFilter: "content_filtered"}[f]
}

func tokens(u session.Usage) string {
	return fmt.Sprintf(`{"input_tokens":%d,"output_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d}`, u.Input-u.CacheRead-u.CacheWrite, u.Output, u.CacheRead, u.CacheWrite)
}

func TestAnswers(t *testing.T) {
	const (
		begin = `{"type":"message_start","message":{"model":"m1","usage":{"input_tokens":2,"cache_read_input_tokens":6,"cache_creation_input_tokens":1,"output_tokens":1}}}`
		hello = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hel"}}`
		rest  = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}}`
		end   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`
		input = `{"type":"message_start","message":{"model":"m1"}}`
		last  = `{"type":"message_stop"}`
	)
	word := func(s string) string { return `{"type":"message_delta","delta":{"stop_reason":"` + s + `"}}` }
	worded := llmtest.Outcome{Text: "Hello", Finish: "stop", Word: "satisfied"}
	row := func(name string, want llmtest.Outcome, events ...string) llmtest.Row {
		return llmtest.Row{Name: name, Pieces: []string{llmtest.SSE, llmtest.Data(events...)}, Want: want}
	}
	used := session.Usage{Input: 9, Output: 5, CacheRead: 6, CacheWrite: 1}
	said := func(f llm.Finish, u session.Usage) llmtest.Outcome {
		return llmtest.Outcome{Text: "Hello", Finish: f, Usage: u}
	}
	cut := llmtest.Outcome{Code: llm.CodeTruncated, Used: session.Usage{Input: 9, Output: 1, CacheRead: 6, CacheWrite: 1}}
	stalled := cut
	stalled.Code = llm.CodeIdleTimeout
	llmtest.Run(t, messages, []llmtest.Row{
		row("tokens in two events", said("stop", used), begin, hello, rest, end),
		row("a cut off answer keeps the counts", cut, begin, hello, rest),
		{Name: "a stalled one too", Pieces: []string{llmtest.SSE, llmtest.Data(begin, hello), llmtest.Pause}, Want: stalled},
		row("stop_sequence", said("stop", session.Usage{}), input, hello, rest, `{"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"x"}}`),
		row("context window", said("length", session.Usage{}), input, hello, rest, `{"type":"message_delta","delta":{"stop_reason":"model_context_window_exceeded"}}`),
		row("a refusal", said("refusal", session.Usage{}), input, hello, rest, word("refusal")),
		row("a refusal without words", llmtest.Outcome{Finish: "refusal"}, input, word("refusal"), last),
		row("calls that never came", said("tool_calls", session.Usage{}), input, hello, rest, word("tool_use")),
		row("a pause", said("pause", session.Usage{}), input, hello, rest, word("pause_turn"), last),
		row("the end in words of others", said("stop", session.Usage{}), input, hello, rest, word("stop")),
		row("a reason of tomorrow", worded, input, hello, rest, word("satisfied"), last),
		row("a reason of tomorrow, cut", llmtest.Outcome{Code: llm.CodeTruncated}, input, hello, rest, word("satisfied")),
		row("null as a word, cut", llmtest.Outcome{Code: llm.CodeTruncated}, input, hello, word("null")),
		row("null as a word, and the end", llmtest.Outcome{Code: llm.CodeTruncated}, input, hello, word("null"), last),
		row("more after a reason, cut", llmtest.Outcome{Code: llm.CodeTruncated}, input, hello, word("end_turn"), rest),
		row("more after a reason", said("stop", session.Usage{}), input, hello, word("end_turn"), rest, last),
		row("broken off", llmtest.Outcome{Code: llm.CodeUnavailable, Says: `broke off: "error"`}, input, hello, word("error")),
		{Name: "a document with a reason of tomorrow", Pieces: []string{llmtest.Head(200, "application/json"), `{"type":"message","model":"m1","content":[{"type":"text","text":"Hello"}],"stop_reason":"satisfied"}`}, Want: worded},
		{Name: "a document without a reason", Pieces: []string{llmtest.Head(200, "application/json"), `{"type":"message","content":[{"type":"text","text":"Hel"}],"stop_reason":null}`}, Want: llmtest.Outcome{Code: llm.CodeTruncated}},
		row("events and blocks of tomorrow", said("stop", used), begin, `{"type":"dream","index":"x"}`, hello, `{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s"}}`, `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}`, rest, end),
		row("a block that did not begin", said("stop", session.Usage{}), input, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`, end),
		row("arguments of a block that did not begin", llmtest.Outcome{Code: llm.CodeMalformed}, input, `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}`),
		row("arguments with the beginning", llmtest.Outcome{Calls: []session.ToolCall{{ID: "a", Name: "f", Args: `{"x":1}`}}, Finish: "tool_calls"}, input, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{"x":1}}}`, end),
		row("a negative count in one of two", said("stop", session.Usage{}), strings.Replace(begin, "6", "-6", 1), hello, rest, end),
		row("overloaded in the middle", llmtest.Outcome{Code: llm.CodeOverloaded, Says: "Overloaded", Used: cut.Used}, begin, hello, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`),
		row("no permission in the middle", llmtest.Outcome{Code: llm.CodeAuth}, `{"type":"error","error":{"type":"permission_error","message":"not for you"}}`),
		row("api_error", llmtest.Outcome{Code: llm.CodeUnavailable}, `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`),
		row("too many blocks", llmtest.Outcome{Code: llm.CodeMalformed, Says: "more than 4096 blocks"}, strings.Repeat(`{"type":"content_block_start","content_block":{"type":"text"}}`+"\n\ndata: ", 4100)+end),
		row("too many calls", llmtest.Outcome{Code: llm.CodeMalformed, Says: "more than 256 tool calls"}, strings.Repeat(`{"type":"content_block_start","content_block":{"type":"tool_use"}}`+"\n\ndata: ", 300)+end),
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("data: " + `{"type":"message","content":[{"type":"thinking","thinking":"a","signature":"s"},{"type":"redacted_thinking","data":"x"},{"type":"tool_use","input":[]}],"stop_reason":"end_turn"}` + "\n\n"))
	llmtest.Fuzz(f, messages)
}
