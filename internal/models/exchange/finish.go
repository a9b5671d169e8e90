package exchange

import (
	"strings"

	"github.com/rathcluster/rath/llm"
)

// maxWord bounds a recorded finish word, in bytes.
const maxWord = 64

// broke marks, in finishes, a word with which a server reports that it gave up.
const broke llm.Finish = "broke off"

// finishes is the closed list of finish words, in lower case: those of the protocols,
// and those of servers and proxies that imitate one protocol with the words of another.
// No word has two meanings, so one table serves all protocols.
var finishes = map[string]llm.Finish{
	"stop": llm.FinishStop, "end_turn": llm.FinishStop, "stop_sequence": llm.FinishStop,
	"eos": llm.FinishStop, "eos_token": llm.FinishStop, "complete": llm.FinishStop, "completed": llm.FinishStop,

	"tool_calls": llm.FinishTools, "tool_call": llm.FinishTools, "tool_use": llm.FinishTools, "function_call": llm.FinishTools,

	"length": llm.FinishLength, "max_tokens": llm.FinishLength, "max_output_tokens": llm.FinishLength,
	"max_completion_tokens": llm.FinishLength, "max_length": llm.FinishLength, "model_length": llm.FinishLength,
	"model_context_window_exceeded": llm.FinishLength, "context_length_exceeded": llm.FinishLength,
	"token_limit": llm.FinishLength, "time_limit": llm.FinishLength,

	"content_filter": llm.FinishFilter, "content_filtered": llm.FinishFilter, "safety": llm.FinishFilter,
	"recitation": llm.FinishFilter, "sensitive": llm.FinishFilter, "prohibited_content": llm.FinishFilter,
	"blocklist": llm.FinishFilter, "spii": llm.FinishFilter, "language": llm.FinishFilter, "image_safety": llm.FinishFilter,
	"guardrail_intervened": llm.FinishFilter, "guardrails": llm.FinishFilter, "error_toxic": llm.FinishFilter,

	"refusal": llm.FinishRefused, "refused": llm.FinishRefused,

	"pause_turn": llm.FinishPause, "pause": llm.FinishPause,

	"error": broke, "abort": broke, "aborted": broke, "cancelled": broke, "canceled": broke, "timeout": broke,
	"network_error": broke, "insufficient_system_resource": broke, "malformed_function_call": broke,
	"malformed_tool_use": broke, "malformed_model_output": broke, "unexpected_tool_call": broke,
}

// unfinished are the words of servers for an answer that has not ended.
var unfinished = map[string]bool{
	"": true, "null": true, "none": true, "nil": true, "undefined": true, "unspecified": true,
	"finish_reason_unspecified": true, "not_finished": true, "unfinished": true, "in_progress": true,
}

// End is the reason why an answer ended, according to its events so far. The zero value
// is the end of an unfinished answer.
type End struct {
	Finish llm.Finish
	Word   string // of the server, where the list has no such word
	proven bool
}

// Whole reports whether the answer is complete.
func (n *End) Whole() bool { return n.proven }

// Done handles the protocol's own end of an answer, such as [DONE], after which no
// event follows. It proves any finish word.
func (n *End) Done() { n.proven = n.Finish != "" }

// Ended handles a finish word of the server of e. A word of the list proves that the
// answer is complete, until more of it arrives. Another word proves completeness only
// with [End.Done]. Ended returns an error if the word reports that the server gave up.
func (p *Passed) Ended(e *Endpoint, word string) error {
	lower := strings.ToLower(word)
	if unfinished[lower] {
		return nil
	}
	switch finish, known := finishes[lower]; {
	case finish == broke:
		return e.BrokenOff(word)
	case known:
		p.End = End{Finish: finish, proven: true}
	default:
		p.End = End{Finish: llm.FinishStop, Word: e.Word(word)}
	}
	p.Begun = true
	return nil
}

// Redact removes from a text the key of the server, and all texts with the form of a
// key.
func (e *Endpoint) Redact(text string) string { return llm.Redact(text, e.key) }

// Word returns the recorded form of a finish word of the server.
func (e *Endpoint) Word(s string) string {
	const mark = len("…")
	if s = llm.Redact(llm.CleanText(s), e.key); len(s) > maxWord {
		s = llm.Clip(s, maxWord-mark)
	}
	return s
}
