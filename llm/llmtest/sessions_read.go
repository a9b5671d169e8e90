package llmtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rathcluster/rath/llm"
)

var noContext = context.Background()

// sent is a request as its server reads it.
type sent struct {
	items [][]byte          // the messages, as they are sent, without breakpoints
	words string            // all texts, calls, results and images in their order
	ids   map[string]string // the call's id of each call's token
	of    map[string]string // the call's id of each result's token

	failed map[string]bool // the results with a flag that their call failed
}

// breakpoint is a mark of a prompt cache, which moves.
var breakpoint = []byte(`,"cache_control":{"type":"ephemeral"}`)

// read parses a body.
func (d Dialect) read(body []byte) (*sent, error) {
	s := &sent{ids: map[string]string{}, of: map[string]string{}, failed: map[string]bool{}}
	var top struct {
		Input, Messages []json.RawMessage
		System          json.RawMessage
	}
	if err := json.Unmarshal(body, &top); err != nil {
		return nil, err
	}
	for _, raw := range append(top.Messages, top.Input...) {
		s.items = append(s.items, bytes.ReplaceAll(raw, breakpoint, nil))
	}
	s.words = string(top.System)
	switch d {
	case AnthropicMessages:
		for _, raw := range top.Messages {
			var m struct{ Content json.RawMessage }
			_ = json.Unmarshal(raw, &m) // the server accepted it
			blocks, err := blocksOf(m.Content)
			if err != nil {
				return nil, err
			}
			s.blocks(blocks)
		}
	case OpenAIResponses:
		for _, raw := range top.Input {
			var it responsesItem
			if err := json.Unmarshal(raw, &it); err != nil {
				return nil, err
			}
			s.item(&it)
		}
	default:
		for _, raw := range top.Messages {
			var m chatMessage
			if err := json.Unmarshal(raw, &m); err != nil {
				return nil, err
			}
			s.message(&m)
		}
	}
	return s, nil
}

func (s *sent) call(id, args string) {
	s.words += " " + args
	once(s.ids, tokens('C', args), id)
}

func (s *sent) result(id, text string) {
	s.words += " " + text
	once(s.of, tokens('R', text), id)
}

// once records the id of tokens; "" for those that a merge repeated.
func once(ids map[string]string, all []string, id string) {
	for _, token := range all {
		if _, again := ids[token]; again {
			ids[token] = ""
			continue
		}
		ids[token] = id
	}
}

func (s *sent) picture(data []byte) { s.words += " " + string(data) }

func (s *sent) url(url string) {
	_, coded, _ := strings.Cut(url, ",")
	data, _ := base64.StdEncoding.DecodeString(coded) // else it is missing
	s.picture(data)
}

func (s *sent) blocks(all []messagesBlock) {
	for i := range all {
		switch b := &all[i]; b.Type {
		case "text":
			s.words += " " + b.Text
		case "image":
			s.picture(b.Source.Data)
		case "tool_use":
			s.call(b.ID, string(b.Input))
		case "tool_result":
			inner, _ := blocksOf(b.Content) // the server accepted it
			for j := range inner {
				s.result(b.ToolUseID, inner[j].Text)
				for _, token := range tokens('R', inner[j].Text) {
					s.failed[token] = b.IsError
				}
				s.picture(inner[j].Source.Data)
			}
		}
	}
}

func (s *sent) item(it *responsesItem) {
	switch it.Type {
	case "function_call":
		s.call(it.CallID, *it.Arguments)
	case "function_call_output":
		s.result(it.CallID, *it.Output)
	case "", "message":
		parts, _ := it.content() // the server accepted it
		for _, p := range parts {
			s.words += " " + p.Text
			s.url(p.Image)
		}
	}
}

func (s *sent) message(m *chatMessage) {
	parts, _ := m.content() // the server accepted it
	for _, p := range parts {
		if m.Role == "tool" {
			s.result(m.CallID, p.Text)
			continue
		}
		s.words += " " + p.Text
		s.url(p.Image.URL)
	}
	for _, c := range m.Calls {
		s.call(c.ID, *c.Function.Args)
	}
}

var tokenForm = map[byte]*regexp.Regexp{}

func init() {
	for _, kind := range []byte("UACRIJ") {
		tokenForm[kind] = regexp.MustCompile(string(kind) + `\d{5}x`)
	}
}

// tokens are the tokens of a kind in a text, in order.
func tokens(kind byte, text string) []string { return tokenForm[kind].FindAllString(text, -1) }

// has checks that a request has all of the messages.
func (s *sent) has(all []llm.Message) error {
	var words strings.Builder
	for i := range all {
		m := &all[i]
		words.WriteString(" " + m.Text)
		for _, c := range m.Calls {
			words.WriteString(" " + c.Args)
		}
		for _, i := range m.Images {
			words.WriteString(" " + string(i.Data))
		}
	}
	for _, kind := range []byte("UACRIJ") {
		want, got := tokens(kind, words.String()), tokens(kind, s.words)
		if kind == 'R' || kind == 'J' { // they move to their calls
			slices.Sort(want)
			slices.Sort(got)
		}
		if !slices.Equal(want, got) {
			return fmt.Errorf("of kind %c the request has %q, the messages %q", kind, got, want)
		}
	}
	for i := range all {
		token := tokens('R', all[i].Text)
		if all[i].Failed && len(token) == 1 && !s.failed[token[0]] && !regexp.MustCompile(`Error: \s*`+token[0]).MatchString(s.words) {
			return fmt.Errorf("the request does not report that the call of %s failed", token[0])
		}
	}
	return s.paired(all)
}

// paired checks that a result which follows its call has the call's id.
func (s *sent) paired(all []llm.Message) error {
	var calls map[string]string // the token of the newest answer's call, by its id
	for i := range all {
		m := &all[i]
		switch m.Role {
		case llm.Assistant:
			calls = map[string]string{}
			for _, c := range m.Calls {
				if token := tokens('C', c.Args); len(token) == 1 {
					calls[c.ID] = token[0]
				}
			}
			for n, c := range m.Calls { // of two calls with one id it is not known which
				for _, other := range m.Calls[:n] {
					if other.ID == c.ID {
						delete(calls, c.ID)
					}
				}
			}
		case llm.Tool:
			token := tokens('R', m.Text)
			if call, ok := calls[m.CallID]; ok && len(token) == 1 && s.of[token[0]] != "" && s.ids[call] != "" && s.ids[call] != s.of[token[0]] {
				return fmt.Errorf("result %s has the id %q, its call %s %q", token[0], s.of[token[0]], call, s.ids[call])
			}
		}
	}
	return nil
}
