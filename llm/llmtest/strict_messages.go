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

// messagesRequest is a body of the Messages protocol.
type messagesRequest struct {
	Model     string          `json:"model"`
	MaxTokens int             `json:"max_tokens"`
	System    []messagesBlock `json:"system"`
	Messages  []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	Choice struct {
		Type string `json:"type"`
	} `json:"tool_choice"`
	Temperature *float64 `json:"temperature"`
	Thinking    struct {
		Type   string `json:"type"`
		Budget int    `json:"budget_tokens"`
	} `json:"thinking"`
}

type messagesBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	Source    struct {
		Data []byte `json:"data"`
	} `json:"source"`
	Cache json.RawMessage `json:"cache_control"`
}

func (b *messagesBlock) thinks() bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }

// blocksOf returns the blocks of a content, which may be a text.
func blocksOf(raw json.RawMessage) ([]messagesBlock, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []messagesBlock{{Type: "text", Text: text}}, nil
	}
	var blocks []messagesBlock
	err := json.Unmarshal(raw, &blocks)
	return blocks, err
}

// checkMessages checks a body of the Messages protocol. It rejects: invalid names and
// schemas, and more than four breakpoints; blank texts; messages that are empty, do not
// begin and end with the user, or do not alternate; ids of calls that are not unique or
// of another form; calls without a result in the next message, results that are not
// first in theirs, failed ones without a text or with an image; thoughts of others, or
// at the end of a message; and beside thinking a required tool, a temperature, too
// small a limit, and, with a budget, a last answer of a loop that does not begin with
// its thought.
func checkMessages(body []byte, mark string) error {
	var r messagesRequest
	if err := json.Unmarshal(body, &r); err != nil || !utf8.Valid(body) {
		return fmt.Errorf("the body is not JSON of a request: %v", err)
	}
	if r.Model == "" || r.MaxTokens <= 0 || len(r.Messages) == 0 {
		return errors.New("model, max_tokens and messages: Field required")
	}
	for _, t := range r.Tools {
		if !longName.MatchString(t.Name) {
			return fmt.Errorf("tools: name %q does not match ^[a-zA-Z0-9_-]{1,128}$", t.Name)
		}
		if err := checkSchema(t.Name, t.Schema, "oneOf", "allOf", "anyOf"); err != nil {
			return err
		}
	}
	for _, b := range r.System {
		if b.Type != "text" || strings.TrimSpace(b.Text) == "" {
			return errors.New("system: text content blocks must contain non-whitespace text")
		}
	}
	if n := bytes.Count(body, []byte(`"cache_control":{"type":"ephemeral"`)); n > 4 {
		return fmt.Errorf("A maximum of 4 blocks with cache_control may be provided. Found %d.", n)
	}
	return r.checkTurns(mark)
}

// checkTurns checks the messages.
func (r *messagesRequest) checkTurns(mark string) error {
	var before []string // calls of the message before
	used := map[string]bool{}
	var lastAnswer []messagesBlock
	for i, m := range r.Messages {
		blocks, err := blocksOf(m.Content)
		switch {
		case err != nil || len(blocks) == 0:
			return fmt.Errorf("messages.%d: all messages must have non-empty content (%v)", i, err)
		case m.Role != []string{"user", "assistant"}[i%2]:
			return fmt.Errorf("messages.%d: roles must alternate, and the first is user; found %q", i, m.Role)
		}
		calls, results := []string{}, []string{}
		for j := range blocks {
			b := &blocks[j]
			if err := b.check(m.Role, mark); err != nil {
				return fmt.Errorf("messages.%d.content.%d: %w", i, j, err)
			}
			switch {
			case b.Type == "tool_use" && used[b.ID]:
				return fmt.Errorf("messages.%d: `tool_use` ids must be unique", i)
			case b.Type == "tool_use":
				used[b.ID] = true
				calls = append(calls, b.ID)
			case b.Type == "tool_result" && len(results) < j:
				return fmt.Errorf("messages.%d: tool_result blocks must come first", i)
			case b.Type == "tool_result" && (!slices.Contains(before, b.ToolUseID) || slices.Contains(results, b.ToolUseID)):
				return fmt.Errorf("messages.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s", i, b.ToolUseID)
			case b.Type == "tool_result":
				results = append(results, b.ToolUseID)
			}
		}
		if len(results) < len(before) {
			return fmt.Errorf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after", i-1)
		}
		if m.Role == "assistant" {
			if lastAnswer = blocks; blocks[len(blocks)-1].thinks() {
				return fmt.Errorf("messages.%d: The final block in an assistant message cannot be `thinking`.", i)
			}
		}
		if before = calls; i == len(r.Messages)-1 {
			if m.Role == "assistant" {
				return errors.New("This model does not support assistant message prefill. The conversation must end with a user message.")
			}
			return r.checkThinking(lastAnswer, len(results) > 0)
		}
	}
	return nil
}

// checkThinking checks a request for thoughts. looped: the newest message has results of the
// last answer's calls.
func (r *messagesRequest) checkThinking(last []messagesBlock, looped bool) error {
	t := r.Thinking
	switch {
	case t.Type != "enabled" && t.Type != "adaptive":
		return nil
	case r.Choice.Type == "any" || r.Choice.Type == "tool":
		return errors.New("Thinking may not be enabled when tool_choice forces tool use.")
	case r.Temperature != nil && *r.Temperature != 1:
		return errors.New("`temperature` may only be set to 1 when thinking is enabled.")
	case t.Type == "enabled" && (t.Budget < 1024 || t.Budget >= r.MaxTokens):
		return errors.New("`max_tokens` must be greater than `thinking.budget_tokens`, which is at least 1024")
	case t.Type == "enabled" && looped && !last[0].thinks():
		return fmt.Errorf("Expected `thinking` or `redacted_thinking`, but found `%s`. When `thinking` is enabled, a final `assistant` message must start with a thinking block", last[0].Type)
	}
	return nil
}

// check checks a single block.
func (b *messagesBlock) check(role, mark string) error {
	switch b.Type {
	case "text":
		if strings.TrimSpace(b.Text) == "" {
			return errors.New("text content blocks must contain non-whitespace text")
		}
		return nil
	case "image", "tool_result":
		if role != "user" || b.Type == "image" && len(b.Source.Data) == 0 {
			return fmt.Errorf("unexpected %s in a message of %s", b.Type, role)
		}
	case "tool_use", "thinking", "redacted_thinking":
		if role != "assistant" {
			return fmt.Errorf("unexpected %s in a message of %s", b.Type, role)
		}
	default:
		return fmt.Errorf("unknown block %q", b.Type)
	}
	switch {
	case b.thinks() && len(b.Cache) > 0:
		return errors.New("cache_control cannot be set on thinking blocks")
	case b.thinks() && !strings.Contains(b.Signature+b.Data, mark):
		return errors.New("Invalid `signature` in `thinking` block")
	case b.Type == "tool_use" && (!plainID.MatchString(b.ID) || !longName.MatchString(b.Name)):
		return errors.New("tool_use.id, name: String should match pattern")
	case b.Type == "tool_use" && !isObject(string(b.Input)):
		return errors.New("tool_use.input: Input should be a valid dictionary")
	case b.Type == "tool_result":
		return b.checkResult()
	}
	return nil
}

// checkResult checks the content of a result.
func (b *messagesBlock) checkResult() error {
	inner, err := blocksOf(b.Content)
	if err != nil {
		return err
	}
	for _, in := range inner {
		switch {
		case in.Type == "text" && strings.TrimSpace(in.Text) == "":
			return errors.New("tool_result: text content blocks must contain non-whitespace text")
		case in.Type != "text" && b.IsError:
			return errors.New("tool_result: all content must be type `text` if `is_error` is true")
		case in.Type != "text" && in.Type != "image":
			return fmt.Errorf("tool_result: unexpected %q", in.Type)
		}
	}
	if b.IsError && len(inner) == 0 {
		return errors.New("content cannot be empty if `is_error` is true")
	}
	return nil
}
