package openai_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"testing"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/anthropic"
	"github.com/rathcluster/rath/llm/llmtest"
	"github.com/rathcluster/rath/llm/openai"
)

var (
	sessions = flag.Int("sessions", 80, "how many random sessions TestSessions makes")
	seed     = flag.Uint64("seed", 1, "the seed of TestSessions")
)

// TestSessions: any session, with any change of the model, server or key, becomes a request
// that each strict server accepts.
func TestSessions(t *testing.T) {
	t.Parallel()
	key := func(ref string) (string, error) { return "key-of-" + ref, nil }
	chat := func(way http.RoundTripper) llm.Models {
		return openai.New(&llm.ServerOptions{Transport: way, Key: key})
	}
	claude := func(way http.RoundTripper) llm.Models {
		return anthropic.New(&llm.ServerOptions{Transport: way, Key: key})
	}
	of := func(d llmtest.Dialect, models func(http.RoundTripper) llm.Models, url, model, ref, extra string) llmtest.StrictClient {
		p := llm.Provider{BaseURL: url, Model: model, KeyRef: ref}
		if d == llmtest.OpenAIResponses {
			p.Kind = openai.KindResponses
		}
		if extra != "" {
			p.Extra = json.RawMessage(extra)
		}
		return llmtest.StrictClient{Dialect: d, Provider: p, Models: models}
	}
	const budget, adaptive = `{"thinking":{"type":"enabled","budget_tokens":2000}}`, `{"thinking":{"type":"adaptive"}}`
	llmtest.RunSessions(t, *seed, *sessions, []llmtest.StrictClient{
		of(llmtest.OpenAIChat, chat, "https://api.openai.com/v1", "m", "A", ""),
		of(llmtest.MistralChat, chat, "https://api.mistral.ai/v1", "m", "A", ""),
		of(llmtest.MistralChat, chat, "http://gpu.test/v1", "devstral-small", "", ""),
		of(llmtest.TemplateChat, chat, "http://gpu.test/v1", "gemma", "", ""),
		of(llmtest.ThinkingChat, chat, "https://api.thinks.test/v1", "m", "A", ""),
		of(llmtest.ThinkingChat, chat, "https://api.thinks.test/v1", "other", "A", ""),
		of(llmtest.OpenAIResponses, chat, "https://api.openai.com/v1", "m", "A", ""),
		of(llmtest.OpenAIResponses, chat, "https://api.openai.com/v1", "m", "B", ""),
		of(llmtest.AnthropicMessages, claude, "https://api.anthropic.com/v1", "one", "A", budget),
		of(llmtest.AnthropicMessages, claude, "https://api.anthropic.com/v1", "one", "B", adaptive),
		of(llmtest.AnthropicMessages, claude, "https://api.anthropic.com/v1", "two", "A", ""),
	})
}
