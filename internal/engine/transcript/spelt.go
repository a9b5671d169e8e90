package transcript

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// The forms in which models write a call into their text if neither the template of their
// server nor the protocol extracts it.
var callMark = regexp.MustCompile("(?m)^[ \t]*(?:" + strings.Join([]string{
	`</?(?:[a-z]+:)?(?:tool_?calls?|function_?calls?|tool_use|tool_code|invoke|function)\b[^>\n]*>`, // <tool_call>, <invoke name="f">
	`<function=`,
	`\[TOOL_CALLS\]`, `\[TOOL_CALL\]`, `\[TOOL_REQUEST\]`,
	`<\|?(?:python_tag|tool_call|tool_calls_section_begin|tool_call_begin|tool_call_start|action_start)\|?>`,
	`<｜tool▁calls?▁begin｜>`,
	`<\|channel\|>commentary to=`, `to=functions\.`,
	"```tool_(?:code|call)",
}, "|") + ")")

var word = regexp.MustCompile(`[A-Za-z0-9_-]+`)

// nameWithin is the number of words after the mark of a call within which its tool's name
// must be.
const nameWithin = 12

// spelt reports whether a text is a call of one of the agent's tools, or begins or ends
// with one, in a form that models use. A text about such calls has them in the middle, or
// within a fence. formed texts are JSON by request.
func spelt(text string, has func(name string) bool, formed bool) bool {
	text = strings.TrimSpace(text)
	if !formed && bareCall(unfenced(text), has) {
		return true
	}
	for _, at := range callMark.FindAllStringIndex(text, -1) {
		if strings.Count(text[:at[0]], "```")%2 == 1 || at[0] > 0 && !strings.ContainsAny(text[len(text)-1:], ">}])`｜|") {
			continue
		}
		if slices.ContainsFunc(word.FindAllString(text[at[0]:], nameWithin), has) {
			return true
		}
	}
	return false
}

// unfenced returns the content of a text that is one fence of JSON.
func unfenced(text string) string {
	rest, ok := strings.CutPrefix(text, "```")
	if !ok {
		return text
	}
	head, rest, _ := strings.Cut(rest, "\n")
	body, ok := strings.CutSuffix(rest, "```")
	if !ok || strings.Contains(body, "```") || len(head) > 10 {
		return text
	}
	return strings.TrimSpace(body)
}

// bareCall reports whether a text is just the JSON of a call, or of several.
func bareCall(text string, has func(name string) bool) bool {
	if !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
		return false
	}
	var all []map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &all) != nil {
		var one map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &one) != nil {
			return false
		}
		all = append(all, one)
	}
	for _, call := range all {
		if f, ok := call["function"]; ok && len(f) > 0 && f[0] == '{' {
			call = nil
			_ = json.Unmarshal(f, &call)
		}
		var name string
		args := false
		for key, v := range call {
			switch key {
			case "name", "tool", "tool_name", "function", "action":
				_ = json.Unmarshal(v, &name)
			case "arguments", "args", "parameters", "input", "tool_input", "action_input":
				args = true
			case "id", "type":
			default:
				return false
			}
		}
		if !args || !has(name) {
			return false
		}
	}
	return len(all) > 0
}

// The marks around thoughts that models write into their text.
var thoughtMarks = [][2]string{
	{"<think>", "</think>"}, {"<thinking>", "</thinking>"}, {"<thought>", "</thought>"}, {"<seed:think>", "</seed:think>"}, {"[THINK]", "[/THINK]"},
}

// strayEnd is the end of thoughts whose beginning a server's template has put before the
// answer.
var strayEnd = regexp.MustCompile(`(?:^|\n)[ \t]*</think>[ \t]*(?:\n|$)`)

// SplitThoughts splits the thoughts at the beginning of a text from the answer. Thoughts
// whose mark the prompt requests are the author's, and stay.
func SplitThoughts(text, prompt string) (thought, answer string) {
	body := strings.TrimLeft(text, " \t\r\n")
	for _, mark := range thoughtMarks {
		rest, ok := strings.CutPrefix(body, mark[0])
		if !ok || strings.Contains(prompt, mark[0]) {
			continue
		}
		thought, answer, _ = strings.Cut(rest, mark[1])
		return strings.TrimSpace(thought), strings.TrimLeft(answer, "\r\n\t ")
	}
	if at := strayEnd.FindStringIndex(text); at != nil && !strings.Contains(text[:at[0]], "<think>") && !strings.Contains(prompt, "</think>") {
		return strings.TrimSpace(text[:at[0]]), strings.TrimLeft(text[at[1]:], "\r\n\t ")
	}
	return "", text
}
