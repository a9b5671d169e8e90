package main

import (
	"errors"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/testkit/must"
)

const servedScript = `
-- call --
not result: lookup
call: lookup {"word":"tide"}
usage: input=12 output=3

-- answer --
usage: input=20 output=5

The tide turns.
`

// TestModelsServe queries a served script with an ordinary client of OpenAI's protocol:
// for a tool call, for the answer to its result, in one piece and as a stream.
func TestModelsServe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("a process cannot be interrupted from outside here")
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	must.Do(t, os.WriteFile("m.txtar", []byte(servedScript), 0o644))
	served := startCommand(t, dir, "models", "serve", "--script", "m.txtar", "--listen", "127.0.0.1:0", "--log", "calls.jsonl")
	address := regexp.MustCompile(`OPENAI_BASE_URL=(\S+) OPENAI_API_KEY=(\S+) OPENAI_DEFAULT_MODEL=(\S+)`)
	waitFor(t, func() bool { return address.MatchString(served.said()) })
	found := address.FindStringSubmatch(served.said())
	if !strings.HasPrefix(found[1], "http://127.0.0.1:") {
		t.Errorf("it listens on %s", found[1])
	}
	config := openai.DefaultConfig(found[2])
	config.BaseURL = found[1]
	c := openai.NewClientWithConfig(config)
	models, err := c.ListModels(t.Context())
	if err != nil || len(models.Models) != 1 || models.Models[0].ID != found[3] {
		t.Fatalf("models: %+v, %v", models, err)
	}
	r := openai.ChatCompletionRequest{
		Model:    found[3],
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "when does the tide turn?"}},
		Tools: []openai.Tool{{Type: "function", Function: &openai.FunctionDefinition{
			Name: "lookup", Parameters: map[string]any{"type": "object"},
		}}},
	}
	first, err := c.CreateChatCompletion(t.Context(), r)
	must.Do(t, err)
	said := first.Choices[0].Message
	if len(said.ToolCalls) != 1 || said.ToolCalls[0].Function.Name != "lookup" || said.ToolCalls[0].Function.Arguments != `{"word":"tide"}` ||
		first.Choices[0].FinishReason != "tool_calls" || first.Usage.PromptTokens != 12 || first.Usage.CompletionTokens != 3 {
		t.Fatalf("%+v", first)
	}
	r.Messages = append(r.Messages, said, openai.ChatCompletionMessage{Role: "tool", ToolCallID: said.ToolCalls[0].ID, Content: "twice a day"})
	second, err := c.CreateChatCompletion(t.Context(), r)
	if err != nil || second.Choices[0].Message.Content != "The tide turns." || second.Usage.TotalTokens != 25 {
		t.Fatalf("%+v, %v", second, err)
	}
	r.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	stream, err := c.CreateChatCompletionStream(t.Context(), r)
	must.Do(t, err)
	defer stream.Close()
	var text strings.Builder
	pieces, tokens := 0, 0
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		for _, x := range part.Choices {
			text.WriteString(x.Delta.Content)
			pieces++
		}
		if part.Usage != nil {
			tokens = part.Usage.TotalTokens
		}
	}
	if text.String() != "The tide turns." || pieces < 3 || tokens != 25 {
		t.Errorf("%q in %d pieces, %d tokens", text.String(), pieces, tokens)
	}
	vectors, err := c.CreateEmbeddings(t.Context(), openai.EmbeddingRequestStrings{Model: "any", Input: []string{"the tide turns", "it turns"}, EncodingFormat: openai.EmbeddingEncodingFormatBase64})
	if err != nil || len(vectors.Data) != 2 || vectors.Usage.PromptTokens != 6 {
		t.Fatalf("%+v, %v", vectors, err)
	}
	if near, err := vectors.Data[0].DotProduct(&vectors.Data[1]); err != nil || near < 0.3 || near > 0.6 {
		t.Errorf("texts of which one of two and of three words is the same: %v, %v", near, err)
	}
	must.Do(t, os.WriteFile("models.yaml", []byte("models:\n  v: {can: [embeddings], url: "+found[1]+", prices: {date: 2026-11-01, input: 0.02}}\n"), 0o600))
	for line, want := range map[string]string{"ls": "0.02  vectors", "test v": "makes 256 dimensions in", "test": "0.000001 USD, priced"} {
		if said := command(t, "RATH_MODELS=models.yaml rath models "+line, dir); !strings.Contains(said, want) {
			t.Errorf("models %s says\n%s", line, said)
		}
	}
	if code := served.interrupt(); code != app.ExitOK {
		t.Errorf("exit %d", code)
	}
	if log, err := os.ReadFile("calls.jsonl"); err != nil || strings.Count(string(log), "\n") != 6 {
		t.Errorf("the log has\n%s%v", log, err)
	}
}
