package anthropic_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/anthropic"
)

func Example() {
	// Any server that speaks the protocol will do.
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"type":"message","content":[{"type":"thinking","thinking":"A greeting.","signature":"c2ln"},{"type":"text","text":"Good morning."}],
			"stop_reason":"end_turn","usage":{"input_tokens":3,"cache_read_input_tokens":90,"output_tokens":7}}`)
	}))
	defer srv.Close()

	models := anthropic.New(&llm.ServerOptions{Env: func(name string) string {
		return map[string]string{anthropic.EnvBase: srv.URL}[name] // usually os.Getenv
	}})

	ctx := context.Background()
	provider := llm.Provider{Model: "claude-sonnet-4-5"}
	client, err := models.Client(ctx, provider)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Complete(ctx, &llm.Request{
		Provider: provider,
		Messages: []llm.Message{{Role: llm.User, Text: "good morning"}},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.Text)
	fmt.Println(resp.Usage.CacheRead, "of", resp.Usage.Input, "tokens came from the cache")
	// Output:
	// Good morning.
	// 90 of 93 tokens came from the cache
}
