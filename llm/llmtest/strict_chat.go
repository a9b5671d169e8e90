//lint:file-ignore ST1005 the errors have the words of the servers

package llmtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// chatRequest is a body of chat completions.
type chatRequest struct {
	Model    string        `json:"model"`
	Messages []chatMessage `json:"messages"`
	Tools    []struct {
		Type     string `json:"type"`
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
}

type chatMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Name      string          `json:"name"`
	CallID    string          `json:"tool_call_id"`
	Reasoning *string         `json:"reasoning_content"`
	Text      *string         `json:"reasoning"`
	Details   json.RawMessage `json:"reasoning_details"`
	Calls     []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name string  `json:"name"`
			Args *string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// chatPart is a part of a message's content.
type chatPart struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Image struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// content returns the texts and images of a message.
func (m *chatMessage) content() ([]chatPart, error) {
	raw := bytes.TrimSpace(m.Content)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []chatPart{{Type: "text", Text: text}}, nil
	}
	var parts []chatPart
	err := json.Unmarshal(raw, &parts)
	if err == nil && len(parts) == 0 {
		err = errors.New("content is an empty list")
	}
	return parts, err
}

// checkChat checks a body of chat completions.
func (d Dialect) checkChat(body []byte, mark string) error {
	var r chatRequest
	if err := json.Unmarshal(body, &r); err != nil || !utf8.Valid(body) {
		return fmt.Errorf("We could not parse the JSON body of your request: %v", err)
	}
	if r.Model == "" || len(r.Messages) == 0 {
		return errors.New("you must provide a model parameter and messages")
	}
	for i, t := range r.Tools {
		f := t.Function
		if t.Type != "function" || !shortName.MatchString(f.Name) {
			return fmt.Errorf("Invalid 'tools[%d].function.name': string does not match pattern", i)
		}
		if err := checkSchema(f.Name, f.Parameters, "oneOf", "anyOf", "allOf", "enum", "not"); err != nil {
			return err
		}
	}
	open, used := []string{}, map[string]bool{}
	for i := range r.Messages {
		m := &r.Messages[i]
		if len(open) > 0 && m.Role != "tool" {
			return fmt.Errorf("messages[%d]: An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id': %s", i, strings.Join(open, ", "))
		}
		if m.Role == "tool" {
			at := slices.Index(open, m.CallID)
			if at < 0 {
				return fmt.Errorf("messages[%d]: messages with role 'tool' must be a response to a preceding message with 'tool_calls'", i)
			}
			open = slices.Delete(open, at, at+1)
		}
		ids, err := d.checkChatMessage(m, used)
		if err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
		open = append(open, ids...)
	}
	if len(open) > 0 {
		return fmt.Errorf("tool_call_ids did not have response messages: %s", strings.Join(open, ", "))
	}
	switch d {
	case OpenAIChat:
		return d.noThoughts(r.Messages)
	case MistralChat:
		return errors.Join(d.noThoughts(r.Messages), mistralOrder(r.Messages))
	case ThinkingChat:
		return errors.Join(templateOrder(r.Messages), ownThoughts(r.Messages, mark))
	}
	return errors.Join(d.noThoughts(r.Messages), templateOrder(r.Messages))
}

// checkChatMessage checks a single message, and returns the ids of its calls.
func (d Dialect) checkChatMessage(m *chatMessage, used map[string]bool) (ids []string, err error) {
	parts, err := m.content()
	if err != nil {
		return nil, fmt.Errorf("Invalid content: %w", err)
	}
	var text strings.Builder
	for _, p := range parts {
		if p.Type != "text" && (p.Type != "image_url" || m.Role != "user" || !strings.HasPrefix(p.Image.URL, "data:image/")) {
			return nil, fmt.Errorf("Invalid part %q of a message of %s", p.Type, m.Role)
		}
		if text.WriteString(p.Text); p.Type == "text" && p.Text == "" && len(parts) > 1 {
			return nil, errors.New("a text part is empty")
		}
	}
	if m.Name != "" && !shortName.MatchString(m.Name) {
		return nil, errors.New("Invalid 'name': string does not match pattern")
	}
	switch {
	case !slices.Contains([]string{"system", "developer", "user", "assistant", "tool"}, m.Role):
		return nil, fmt.Errorf("Invalid role %q", m.Role)
	case len(m.Calls) > 0 && m.Role != "assistant":
		return nil, errors.New("'tool_calls' are of an assistant")
	case parts == nil && len(m.Calls) == 0:
		return nil, errors.New("Invalid value for 'content': expected a string, got null")
	case m.Role == "assistant" && text.String() == "" && len(m.Calls) == 0:
		return nil, errors.New("Assistant message must have either content or tool_calls")
	}
	for _, c := range m.Calls {
		switch {
		case c.Type != "function" || c.ID == "" || slices.Contains(ids, c.ID):
			return nil, fmt.Errorf("call %q has no id or type of its own", c.ID)
		case d != MistralChat && len(c.ID) > 40:
			return nil, errors.New("Invalid 'tool_calls.id': string too long. Expected a string with maximum length 40")
		case d == MistralChat && !nineID.MatchString(c.ID):
			return nil, fmt.Errorf("Tool call id was %s but must be a-z, A-Z, 0-9, with a length of 9", c.ID)
		case used[c.ID]:
			return nil, fmt.Errorf("id %s is that of an earlier call", c.ID)
		case !shortName.MatchString(c.Function.Name):
			return nil, fmt.Errorf("Invalid 'function.name' %q: string does not match pattern", c.Function.Name)
		case c.Function.Args == nil || d != OpenAIChat && !isObject(*c.Function.Args):
			return nil, errors.New("Invalid 'arguments': want the JSON of an object")
		}
		used[c.ID] = true
		ids = append(ids, c.ID)
	}
	return ids, nil
}

// noThoughts is the rule of servers without thoughts.
func (d Dialect) noThoughts(all []chatMessage) error {
	for i := range all {
		if m := &all[i]; m.Reasoning != nil || m.Text != nil || m.Details != nil || d == MistralChat && m.Name != "" && m.Role != "tool" {
			return fmt.Errorf("messages[%d]: Extra inputs are not permitted", i)
		}
	}
	return nil
}

// ownThoughts is the rule of a server that requires its thoughts back.
func ownThoughts(all []chatMessage, mark string) error {
	thinks := false
	for i := range all {
		m := &all[i]
		switch {
		case m.Role != "assistant" || m.Reasoning == nil && !thinks:
			continue
		case m.Reasoning == nil || *m.Reasoning == "":
			return fmt.Errorf("thinking is enabled but reasoning_content is missing in assistant message at index %d", i)
		case strings.TrimSpace(*m.Reasoning) != "" && !strings.Contains(*m.Reasoning, mark):
			return fmt.Errorf("messages[%d]: reasoning_content is of another model", i)
		}
		thinks = true
	}
	return nil
}

// mistralOrder is the order of roles at Mistral.
func mistralOrder(all []chatMessage) error {
	after := map[string][]string{
		"": {"system", "user", "assistant"}, "system": {"system", "user", "assistant"}, "user": {"system", "user", "assistant"},
		"assistant": {"user", "assistant", "tool"}, "tool": {"assistant", "tool"},
	}
	last := ""
	for i := range all {
		if role := all[i].Role; !slices.Contains(after[last], role) {
			return fmt.Errorf("messages[%d]: Unexpected role '%s' after role '%s'", i, role, last)
		}
		last = all[i].Role
	}
	if last != "user" && last != "tool" {
		return fmt.Errorf("Expected last role User or Tool for serving but got %s", last)
	}
	return nil
}

// templateOrder is the order of roles of the strictest templates.
func templateOrder(all []chatMessage) error {
	if all[0].Role == "system" || all[0].Role == "developer" {
		all = all[1:]
	}
	last := "assistant"
	for i := range all {
		role := all[i].Role
		if role == "system" || role == "developer" {
			return errors.New("System message must be at the beginning.")
		}
		if role != "tool" && role == last {
			return fmt.Errorf("messages[%d]: conversation roles must alternate user/assistant/user/assistant/...", i)
		}
		last = role
	}
	if last == "assistant" {
		return errors.New("the last message must be of the user or a tool")
	}
	return nil
}
