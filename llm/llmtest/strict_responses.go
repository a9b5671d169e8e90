//lint:file-ignore ST1005 the errors have the words of the servers

package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// responsesRequest is a body of the Responses protocol.
type responsesRequest struct {
	Model string          `json:"model"`
	Input []responsesItem `json:"input"`
	Tools []struct {
		Type       string          `json:"type"`
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"tools"`
}

type responsesItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments *string         `json:"arguments"`
	Output    *string         `json:"output"`
	Encrypted string          `json:"encrypted_content"`
	Summary   json.RawMessage `json:"summary"`
}

// responsesPart is a part of a message's content.
type responsesPart struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Image string `json:"image_url"`
}

func (it *responsesItem) content() ([]responsesPart, error) {
	var text string
	if json.Unmarshal(it.Content, &text) == nil {
		return []responsesPart{{Type: "input_text", Text: text}}, nil
	}
	var parts []responsesPart
	err := json.Unmarshal(it.Content, &parts)
	return parts, err
}

// checkResponses checks a body of the Responses protocol.
func checkResponses(body []byte, mark string) error {
	var r responsesRequest
	if err := json.Unmarshal(body, &r); err != nil || !utf8.Valid(body) {
		return fmt.Errorf("Invalid body: %v", err)
	}
	if r.Model == "" || len(r.Input) == 0 {
		return errors.New("Missing required parameter: 'model' or 'input'")
	}
	for i, t := range r.Tools {
		if t.Type != "function" || !shortName.MatchString(t.Name) {
			return fmt.Errorf("Invalid 'tools[%d].name': string does not match pattern", i)
		}
		if err := checkSchema(t.Name, t.Parameters, "oneOf", "anyOf", "allOf", "enum", "not"); err != nil {
			return err
		}
	}
	var open []string
	used := map[string]bool{}
	for i := range r.Input {
		it := &r.Input[i]
		if err := it.check(mark); err != nil {
			return fmt.Errorf("input[%d]: %w", i, err)
		}
		switch it.Type {
		case "reasoning":
			if i+1 == len(r.Input) || !r.Input[i+1].assistants() {
				return fmt.Errorf("Item '%s' of type 'reasoning' was provided without its required following item.", it.ID)
			}
		case "function_call":
			if used[it.CallID] {
				return fmt.Errorf("input[%d]: call_id %s is that of an earlier call", i, it.CallID)
			}
			used[it.CallID] = true
			open = append(open, it.CallID)
		case "function_call_output":
			at := slices.Index(open, it.CallID)
			if at < 0 {
				return fmt.Errorf("No tool call found for function call output with call_id %s.", it.CallID)
			}
			open = slices.Delete(open, at, at+1)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("No tool output found for function call %s.", strings.Join(open, ", "))
	}
	return nil
}

// assistants reports whether an item is a part of an answer.
func (it *responsesItem) assistants() bool {
	return it.Type == "reasoning" || it.Type == "function_call" || (it.Type == "" || it.Type == "message") && it.Role == "assistant"
}

// check checks a single item.
func (it *responsesItem) check(mark string) error {
	prefix := map[string]string{"reasoning": "rs_", "function_call": "fc_", "message": "msg_"}[it.Type]
	if it.ID != "" && !strings.HasPrefix(it.ID, prefix) {
		return fmt.Errorf("Invalid 'id': '%s'. Expected an ID that begins with '%s'.", it.ID, strings.TrimSuffix(prefix, "_"))
	}
	switch it.Type {
	case "", "message":
		parts, err := it.content()
		if err != nil || !slices.Contains([]string{"system", "developer", "user", "assistant"}, it.Role) {
			return fmt.Errorf("Invalid message of role %q: %v", it.Role, err)
		}
		for _, p := range parts {
			if p.Type == "input_image" && (it.Role != "user" || !strings.HasPrefix(p.Image, "data:image/")) {
				return errors.New("Invalid image")
			}
		}
	case "reasoning":
		if !strings.Contains(it.Encrypted, mark) || it.Summary == nil {
			return errors.New("The encrypted content could not be verified.")
		}
	case "function_call", "function_call_output":
		switch {
		case !plainID.MatchString(it.CallID) || len(it.CallID) > 64:
			return errors.New("Invalid 'call_id': string too long, or does not match pattern. Expected a string with maximum length 64")
		case it.Type == "function_call" && (!shortName.MatchString(it.Name) || it.Arguments == nil):
			return fmt.Errorf("Invalid call of %q", it.Name)
		case it.Type == "function_call_output" && it.Output == nil:
			return errors.New("Missing required parameter: 'output'")
		}
	default:
		return fmt.Errorf("Invalid item %q", it.Type)
	}
	return nil
}
