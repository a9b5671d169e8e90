package openai_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/anthropic"
	"github.com/rathcluster/rath/llm/openai"
)

// TestSchemaOmit: keywords of JSON Schema that a server rejects are not sent to it, on
// any wire and at any depth, whether its provider or its host determines them.
// Properties with the name of a keyword are kept, and so is the order.
func TestSchemaOmit(t *testing.T) {
	const (
		arguments = `{"$schema":"x","type":"object","properties":{"additionalProperties":{"type":"string","enum":["additionalProperties"]},"b":{"type":"array","items":{"type":"object","additionalProperties":false,"anyOf":[{"additionalProperties":true},true]}}},"required":["additionalProperties"],"additionalProperties":false,"$defs":{"$schema":{"additionalProperties":false}}}`
		sent      = `{"type":"object","properties":{"additionalProperties":{"type":"string","enum":["additionalProperties"]},"b":{"type":"array","items":{"type":"object","anyOf":[{},true]}}},"required":["additionalProperties"],"$defs":{"$schema":{}}}`
		unknown   = `Invalid JSON payload received. Unknown name \"additionalProperties\" at 'tools[0].function_declarations[0].parameters': Cannot find field.`
	)
	const chat, responses, messages = "/chat/completions", "/responses", "/messages"
	answers := map[string]string{
		chat:      `{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}`,
		responses: `{"object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"ok"}]}]}`,
		messages:  `{"type":"message","role":"assistant","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn"}`,
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		at := r.URL.Path[strings.LastIndex(strings.TrimSuffix(r.URL.Path, "/completions"), "/"):]
		if strings.Contains(strings.ReplaceAll(string(body), sent, ""), "additionalProperties") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"`+unknown+`"}}`)
			return
		}
		if want := map[string]int{chat: 2, responses: 2, messages: 2}[at]; strings.Count(string(body), sent) != want {
			t.Errorf("%s: %s", at, body)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answers[at])
	}))
	defer srv.Close()
	// As any host, the server is at the address of srv.
	here := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, srv.Listener.Addr().String())
	}}
	defer here.CloseIdleConnections()
	omit := []string{"additionalProperties", "$schema"}
	key := func(string) (string, error) { return "sk-1", nil }
	for name, tt := range map[string]struct {
		all  llm.Models
		p    llm.Provider
		fail bool
	}{
		"chat completions":              {openai.New(&llm.ServerOptions{Transport: here}), llm.Provider{BaseURL: srv.URL, SchemaOmit: omit}, false},
		"chat completions, nothing":     {openai.New(&llm.ServerOptions{Transport: here}), llm.Provider{BaseURL: srv.URL}, true},
		"chat completions, Google":      {openai.New(&llm.ServerOptions{Transport: here}), llm.Provider{BaseURL: "http://generativelanguage.googleapis.com/v1beta/openai"}, false},
		"chat completions, other words": {openai.New(&llm.ServerOptions{Transport: here}), llm.Provider{BaseURL: "http://generativelanguage.googleapis.com/v1beta/openai", SchemaOmit: omit[1:]}, true},
		"responses":                     {openai.New(&llm.ServerOptions{Transport: here}), llm.Provider{Kind: openai.KindResponses, BaseURL: srv.URL, SchemaOmit: omit}, false},
		"messages":                      {anthropic.New(&llm.ServerOptions{Transport: here, Key: key}), llm.Provider{Kind: "anthropic", BaseURL: srv.URL, KeyRef: "k", SchemaOmit: omit}, false},
	} {
		tt.p.Model = "m"
		tt.p.ResponseFormat = json.RawMessage(`{"type":"json_schema","json_schema":{"name":"answer","schema":` + arguments + `}}`)
		client, err := tt.all.Client(t.Context(), tt.p)
		must.Do(t, err)
		resp, err := client.Complete(t.Context(), &llm.Request{
			Provider: tt.p, Messages: []llm.Message{{Role: llm.User, Text: "go"}},
			Tools: []llm.ToolSpec{{Name: "f", Schema: arguments}},
		}, nil)
		if tt.fail != (llm.CodeOf(err) == llm.CodeInvalidRequest) || !tt.fail && (err != nil || resp.Text != "ok") {
			t.Errorf("%s: %+v, %v", name, resp, err)
		}
	}
}
