package openai_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
)

// asks is a transport that records a request.
type asks struct{ *http.Request }

func (a *asks) RoundTrip(r *http.Request) (*http.Response, error) {
	a.Request = r
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(`{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}],"data":[{"embedding":[1]}]}`))}, nil
}

// TestAzure: the environment determines the address and the key of a request. The key
// for Azure is sent only to Azure.
func TestAzure(t *testing.T) {
	const azure, list = "AZURE_OPENAI_ENDPOINT=https://r.openai.azure.com/ AZURE_OPENAI_API_KEY=azure-key ", "https://other.services.ai.azure.com/openai/v1"
	for name, tt := range map[string]struct {
		env, base, ref string
		url, key, auth string
		says           string
	}{
		"the resource":          {env: azure, url: "https://r.openai.azure.com/openai/v1/chat/completions", key: "azure-key"},
		"a version":             {env: azure + "AZURE_OPENAI_API_VERSION=2024-10-21", url: "https://r.openai.azure.com/openai/deployments/my%20model/chat/completions?api-version=2024-10-21", key: "azure-key"},
		"its other key":         {env: "AZURE_OPENAI_ENDPOINT=https://r.openai.azure.com AZURE_API_KEY=second OPENAI_API_KEY=third", url: "https://r.openai.azure.com/openai/v1/chat/completions", key: "second"},
		"OpenAI's key":          {env: "OPENAI_BASE_URL=https://r.openai.azure.com/openai/v1 OPENAI_API_KEY=third", url: "https://r.openai.azure.com/openai/v1/chat/completions", key: "third"},
		"a gateway before it":   {env: "AZURE_OPENAI_ENDPOINT=https://gate.example/azure/v1 AZURE_OPENAI_API_KEY=azure-key", url: "https://gate.example/azure/v1/chat/completions", key: "azure-key"},
		"OpenAI's server wins":  {env: azure + "OPENAI_BASE_URL=https://h.example/v1 OPENAI_API_KEY=third", url: "https://h.example/v1/chat/completions", auth: "Bearer third"},
		"a list's server":       {env: azure + "K=of-list", base: list, ref: "K", url: list + "/chat/completions", key: "of-list"},
		"a provider's server":   {env: azure, base: list, url: list + "/chat/completions"},
		"OpenAI without a key":  {env: "AZURE_OPENAI_API_KEY=azure-key", says: "export OPENAI_API_KEY"},
		"no key":                {env: "AZURE_OPENAI_ENDPOINT=https://r.openai.azure.com", says: "no key for r.openai.azure.com; export AZURE_OPENAI_API_KEY"},
		"an endpoint with user": {env: "AZURE_OPENAI_ENDPOINT=https://u:secret99@r.openai.azure.com", says: "AZURE_OPENAI_ENDPOINT: base_url of host"},
	} {
		var got asks
		models := openai.New(&llm.ServerOptions{Transport: &got, Env: func(name string) string {
			for kv := range strings.SplitSeq(tt.env, " ") {
				if v, ok := strings.CutPrefix(kv, name+"="); ok {
					return v
				}
			}
			return ""
		}})
		p := llm.Provider{Model: "my model", BaseURL: tt.base, KeyRef: tt.ref, MaxTokens: 5}
		client, err := models.Client(t.Context(), p)
		if tt.says != "" {
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "secret99") || strings.Contains(err.Error(), "azure-key") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := user("x")
		r.Provider = p
		if _, err := client.Complete(t.Context(), r, nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.URL.String() != tt.url || got.Header.Get("Api-Key") != tt.key || got.Header.Get("Authorization") != tt.auth {
			t.Errorf("%s: %s with %q and %q", name, got.URL, got.Header.Get("Api-Key"), got.Header.Get("Authorization"))
		}
		e, err := llm.EmbedderOf(t.Context(), models, p)
		if err == nil {
			_, err = e.Embed(t.Context(), []string{"a"})
		}
		if want := strings.Replace(tt.url, "/chat/completions", "/embeddings", 1); err != nil || got.URL.String() != want || got.Header.Get("Api-Key") != tt.key {
			t.Errorf("%s: vectors at %s: %v", name, got.URL, err)
		}
	}
	if _, err := openai.New(nil).Client(t.Context(), llm.Provider{Model: "m"}); !errors.Is(err, llm.CodeNoKey) {
		t.Error(err)
	}
}
