package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/run"
)

// object is an object of JSON.
type object = map[string]any

// row is a message of a conversation as the client has it.
type row struct {
	Role, Text string
}

// The roles of rows. Developer is read as system.
const (
	roleSystem    = "system"
	roleUser      = "user"
	roleAssistant = "assistant"
)

// decode reads a request, whose unknown fields are skipped: clients send many that change
// nothing here.
func decode(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	err := dec.Decode(into)
	if err == nil && dec.More() {
		err = fmt.Errorf("text follows the object")
	}
	if err != nil {
		return wrong("", strict.Problem(err), "send one object of JSON")
	}
	return nil
}

// wrong is the error of a request whose field cannot be served.
func wrong(field, problem, remedy string) error {
	return &strict.Error{Message: "request", Field: field, Problem: problem, Remedy: remedy}
}

// set reports whether a field of a request is there and has a value.
func set(raw json.RawMessage) bool {
	text := strings.TrimSpace(string(raw))
	return text != "" && text != "null" && text != "[]" && text != "{}"
}

// textOf reads the content of a message: a text, or parts of text.
func textOf(field string, raw json.RawMessage) (string, error) {
	var text string
	if !set(raw) || json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type, Text, Refusal string
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", wrong(field, "it is neither a text nor a list of parts", "send the text")
	}
	var b strings.Builder
	for i, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text":
			b.WriteString(p.Text)
		case "refusal":
			b.WriteString(p.Refusal)
		default:
			return "", wrong(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("a part of type %q", excerpt.Start(p.Type, 40)),
				"send text alone here; images and files go with a task, see `rath submit --help`")
		}
	}
	return b.String(), nil
}

// roleOf reads the role of a message.
func roleOf(field, role string) (string, error) {
	switch role {
	case roleSystem, "developer":
		return roleSystem, nil
	case roleUser, roleAssistant:
		return role, nil
	}
	return "", wrong(field, fmt.Sprintf("%q is no role that this address takes", excerpt.Start(role, 40)), "send system, developer, user or assistant; the tools of a run are its workflow's, see docs/openai.md")
}

// Errors writes the document of an error as the protocol does. Clients repeat a request that
// failed with some of the statuses; the header reports whether a repetition can help.
func Errors(w http.ResponseWriter, r *http.Request, d *problem.Document) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	again := "false"
	if d.RetryAfter > 0 {
		again = "true"
	}
	h.Set("X-Should-Retry", again)
	w.WriteHeader(d.Status)
	if r.Method != http.MethodHead {
		_ = json.NewEncoder(w).Encode(errorOf(d)) // the client has gone if it fails
	}
}

// errorOf returns a document of an error as an object of the protocol.
func errorOf(d *problem.Document) object {
	kind, code := "invalid_request_error", string(d.Code)
	switch {
	case d.Code == problem.CodeUnauthenticated:
		code = "invalid_api_key"
	case d.Code == problem.CodeUnknownWorkflow:
		code = "model_not_found"
	case d.Code == run.CodeTooLarge:
		code = "context_length_exceeded"
	case d.Status == http.StatusForbidden:
		kind = "permission_error"
	case d.Status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case d.Status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	text := d.Detail
	if d.Remedy != "" && !strings.Contains(text, d.Remedy) {
		text += ": " + d.Remedy
	}
	var param any
	if d.Field != "" {
		param = d.Field
	}
	return object{"error": object{"message": text, "type": kind, "param": param, "code": code}}
}
