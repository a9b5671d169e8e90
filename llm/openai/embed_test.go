package openai_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/llmtest"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/session"
)

func TestEmbeddings(t *testing.T) {
	t.Parallel()
	row := func(name string, want llmtest.Outcome, body string) llmtest.Row {
		return llmtest.Row{Name: name, Pieces: []string{llmtest.Head(200, "application/json"), body}, Want: want}
	}
	good := func(u session.Usage) llmtest.Outcome { return llmtest.Outcome{Text: llmtest.VectorsText, Usage: u} }
	bad := func(says string) llmtest.Outcome { return llmtest.Outcome{Code: llm.CodeMalformed, Says: says} }
	// Of a failed call the server's counts are known, too.
	used := func(o llmtest.Outcome) llmtest.Outcome { o.Used = session.Usage{Input: 9}; return o }
	two := func(a, b string) string {
		return `{"model":"m1","data":[` + a + "," + b + `],"usage":{"prompt_tokens":9}}`
	}
	const first, second = `{"index":0,"embedding":[1,0.5]}`, `{"index":1,"embedding":[-0.001,0]}`
	llmtest.RunEmbeddings(t, models, []llmtest.Row{
		row("base64", good(session.Usage{Input: 9}), two(`{"index":0,"embedding":"AACAPwAAAD8="}`, `{"index":1,"embedding":"bxKDugAAAAA="}`)),
		row("in another order", good(session.Usage{Input: 9}), two(second, first)),
		row("without places", good(session.Usage{Input: 9}), two(`{"embedding":[1,0.5]}`, `{"embedding":[-0.001,0]}`)),
		row("places that are text", good(session.Usage{Input: 9}), two(`{"index":"1","embedding":[-0.001,0]}`, `{"index":"0","embedding":[1,0.5]}`)),
		row("only the sum of tokens", good(session.Usage{Input: 7}), strings.Replace(two(first, second), `"prompt_tokens":9`, `"total_tokens":7`, 1)),
		row("no tokens", good(session.Usage{}), `{"data":[`+first+","+second+`],"usage":null}`),
		row("a count that cannot be", good(session.Usage{}), strings.Replace(two(first, second), ":9}", ":-9}", 1)),
		row("tokens out", good(session.Usage{Input: 9}), strings.Replace(two(first, second), ":9}", `:9,"completion_tokens":5}`, 1)),
		row("too few", used(bad("1 vectors for 2 texts")), `{"data":[`+first+`],"usage":{"prompt_tokens":9}}`),
		row("too many", used(bad("3 vectors for 2 texts")), two(first, second+","+second)),
		row("one place twice", used(bad("vector 1 of the answer is of text 0")), two(first, first)),
		row("a place that is none", used(bad("is of text 2")), two(first, strings.Replace(second, "1", "2", 1))),
		row("other dimensions", used(bad("vector 1 of the answer has 3 dimensions, want 2")), two(first, `{"embedding":[1,2,3]}`)),
		row("no dimensions", used(bad("is empty")), two(first, `{"embedding":[]}`)),
		row("no vector", used(bad("is missing")), two(first, `{}`)),
		row("null", used(bad("is empty")), two(first, `{"embedding":null}`)),
		row("NaN as null", used(bad("a number that is none")), two(first, `{"embedding":[1,null]}`)),
		row("NaN", bad("not JSON"), two(first, `{"embedding":[1,NaN]}`)),
		row("NaN in base64", used(bad("a number that is none")), two(first, `{"embedding":"AACAPwAAwH8="}`)),
		row("infinite in base64", used(bad("a number that is none")), two(first, `{"embedding":"AACAPwAAgH8="}`)),
		row("beyond 32 bits", used(bad("not a list of numbers of 32 bits")), two(first, `{"embedding":[1,1e300]}`)),
		row("half a number in base64", used(bad("neither a list")), two(first, `{"embedding":"AACAPwA="}`)),
		row("words", used(bad("neither a list")), two(first, `{"embedding":"far away"}`)),
		row("a list in a list", used(bad("not a list of numbers")), two(first, `{"embedding":[[1,2]]}`)),
		row("data that is none", bad("not the JSON of vectors"), `{"data":7}`),
	})
}

// TestEmbeddingsRequest: the sent requests, and those that are rejected before sending.
func TestEmbeddingsRequest(t *testing.T) {
	var got map[string]any
	var header http.Header
	asked := 0
	model, err := scripted.New(nil, &scripted.Options{Models: []string{"m1"}})
	must.Do(t, err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		header = r.Header
		body, _ := io.ReadAll(r.Body)
		got = nil
		if err := json.Unmarshal(body, &got); err != nil || r.URL.Path != "/v1/embeddings" {
			t.Error(r.URL.Path, err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		model.ServeHTTP(w, r)
	}))
	defer srv.Close()
	all := llm.ByKind(map[string]llm.Models{"openai": openai.New(&llm.ServerOptions{Env: func(name string) string { return map[string]string{"K": "sk-0123456789"}[name] }})})
	p := llm.Provider{Kind: "openai", Model: "m1", BaseURL: srv.URL + "/v1", KeyRef: "K", Extra: json.RawMessage(`{"dimensions":256}`)}
	e, err := llm.EmbedderOf(t.Context(), all, p)
	must.Do(t, err)
	texts := []string{"the quick brown fox", "a quick <fox> & \u2028"}
	out, err := e.Embed(t.Context(), texts)
	if err != nil || len(out.Vectors) != 2 || len(out.Vectors[0]) != scripted.Dimensions || out.Usage.Input != 10 || out.Model != "m1" {
		t.Fatal(out, err)
	}
	if header.Get("Authorization") != "Bearer sk-0123456789" || header.Get("Accept") != "application/json" {
		t.Error(header)
	}
	if got["model"] != "m1" || got["encoding_format"] != "base64" || got["dimensions"] != 256.0 || got["input"].([]any)[1] != texts[1] || len(got) != 4 {
		t.Errorf("the body is %v", got)
	}
	// In this process a text has the same vector, to the bit.
	local, err := llm.EmbedderOf(t.Context(), model, llm.Provider{Model: "m1"})
	must.Do(t, err)
	if same, err := local.Embed(t.Context(), texts); err != nil || !slices.Equal(same.Vectors[1], out.Vectors[1]) || same.Usage != out.Usage {
		t.Errorf("%+v, %v", same, err)
	}

	asked = 0
	for name, texts := range map[string][]string{
		"0 texts": {}, "257 texts": slices.Repeat([]string{"a"}, llm.MaxTexts+1), "text 1 is empty": {"a", ""}, "text 0 is not UTF-8": {"\xff"},
		"text 0 has 32769 bytes": {strings.Repeat("x", llm.MaxTextLen+1)}, "the texts have 1081344 bytes": slices.Repeat([]string{strings.Repeat("x", llm.MaxTextLen)}, 33),
	} {
		if _, err := e.Embed(t.Context(), texts); !errors.Is(err, llm.CodeInvalidRequest) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if asked != 0 {
		t.Errorf("%d requests for what is refused before", asked)
	}
	p.Extra = json.RawMessage(`{"dimensions":128}`)
	if e, err = llm.EmbedderOf(t.Context(), all, p); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Embed(t.Context(), texts); !errors.Is(err, llm.CodeMalformed) || !strings.Contains(err.Error(), "256 dimensions, want 128") {
		t.Error(err)
	}
	for _, bad := range []string{"0", "20000", `"many"`} {
		p.Extra = json.RawMessage(`{"dimensions":` + bad + `}`)
		if _, err := llm.EmbedderOf(t.Context(), all, p); !errors.Is(err, llm.CodeInvalidRequest) {
			t.Errorf("dimensions %s: %v", bad, err)
		}
	}
}

func FuzzEmbeddings(f *testing.F) {
	f.Add([]byte(llmtest.Vectors))
	f.Add([]byte(`{"data":[{"embedding":"AACAPwAAwH8="},{"index":1.5,"embedding":[1]}],"usage":{"total_tokens":"x"}}`))
	llmtest.FuzzEmbeddings(f, models)
}
