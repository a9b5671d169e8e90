package llmtest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Vectors are the answer to two texts, in decimal. As [Outcome.Text] it is [VectorsText].
const (
	Vectors     = `{"object":"list","model":"m1","data":[{"object":"embedding","index":0,"embedding":[1,0.5]},{"object":"embedding","index":1,"embedding":[-1e-3,0]}],"usage":{"prompt_tokens":9,"total_tokens":9}}`
	VectorsText = "[[1 0.5] [-0.001 0]]"
)

// RunEmbeddings requests the vectors of two texts, for each possible answer and for the
// rows of the wire.
func RunEmbeddings(t *testing.T, all func(Limits) llm.Models, more []Row) {
	good := Outcome{Text: VectorsText, Usage: session.Usage{Input: 9}}
	rows := []Row{
		{"vectors", []string{Head(200, document), Vectors}, good},
		{"byte by byte", append([]string{Head(200, document)}, drip(Vectors)...), good},
		{"chunked", []string{Head(200, document, chunkedField), chunked(Vectors[:30]), chunked(Vectors[30:]), "0\r\n\r\n"}, good},
		{"byte order mark and space", []string{Head(200, document), "\uFEFF \n" + Vectors + "\n"}, good},
		{"half a document", []string{Head(200, document), Vectors[:len(Vectors)/2]}, Outcome{Code: llm.CodeTruncated, Says: "stops after"}},
		{"shorter than announced", []string{Head(200, document, "Content-Length: 9999\r\n"), Vectors}, Outcome{Code: llm.CodeTruncated, Says: "broke off"}},
		{"chunked and aborted", []string{Head(200, document, chunkedField), chunked(Vectors)}, Outcome{Code: llm.CodeTruncated, Says: "broke off"}},
		{"nothing", []string{Head(200, document)}, Outcome{Code: llm.CodeTruncated, Says: "empty"}},
		{"stalls", []string{Head(200, document), Vectors[:30], Pause}, Outcome{Code: llm.CodeTimeout, Says: "within 1s"}},
		{"never answers", []string{Pause}, Outcome{Code: llm.CodeTimeout, Says: "no first token within 1s"}},
		{"closes at once", nil, Outcome{Code: llm.CodeUnavailable, Says: "cannot reach http://127.0.0.1"}},
		{"a login page", []string{Head(200, "text/html"), "<html><title>Sign in</title>" + CanaryPrompt}, Outcome{Code: llm.CodeMalformed, Says: `a web page titled "Sign in"`}},
		{"not JSON", []string{Head(200, document), `{'data': []}`}, Outcome{Code: llm.CodeMalformed, Says: "not JSON"}},
		{"a huge document", []string{Head(200, document), `{"x":"` + strings.Repeat("x", 300<<10) + `"}`}, Outcome{Code: llm.CodeMalformed, Says: "larger than 262144 bytes"}},
		{"200 with an error", []string{Head(200, document), `{"error":{"message":"no such model","code":"model_not_found"}}`}, Outcome{Code: llm.CodeModelNotFound, Says: "set the provider's model"}},
		{"a completion", []string{Head(200, document), `{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}`}, Outcome{Code: llm.CodeMalformed, Says: "0 vectors for 2 texts"}},
	}
	for _, row := range slices.Concat(rows, refused(), more) {
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			embed(t, all, row)
		})
	}
}

func embed(t *testing.T, all func(Limits) llm.Models, row Row) {
	served(t, row.Pieces, func(t *testing.T, url string, way http.RoundTripper) {
		askEmbeddings(t, all(limits(way)), row, url)
	})
}

func askEmbeddings(t *testing.T, models llm.Models, row Row, url string) {
	p := llm.Provider{Model: Model, BaseURL: url, KeyRef: "MY_KEY"}
	e, err := llm.EmbedderOf(t.Context(), models, p)
	must.Do(t, err)
	if s := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(s, CanaryKey) {
		t.Errorf("it prints its key: %s", s)
	}
	got, err := e.Embed(t.Context(), []string{CanaryPrompt, "another"})
	if row.Want.Code != "" {
		if got != nil {
			t.Errorf("got %+v", got)
		}
		failed(t, row.Want, nil, err)
		return
	}
	must.Do(t, err)
	if text := fmt.Sprint(got.Vectors); text != row.Want.Text || got.Usage != row.Want.Usage || got.Uncounted != (got.Usage.Input == 0) || got.Model != Model {
		t.Errorf("%+v\nwant %+v", got, row.Want)
	}
}

// FuzzEmbeddings reads any answer for one text: it ends as a vector of finite numbers, or
// as an error with a code.
func FuzzEmbeddings(f *testing.F, all func(Limits) llm.Models) {
	f.Fuzz(func(t *testing.T, answer []byte) {
		l := Limits{MaxFrame: 64 << 10, MaxResponse: 256 << 10, FirstToken: time.Minute, Silence: time.Minute, Transport: answered(answer)}
		e, err := llm.EmbedderOf(t.Context(), all(l), llm.Provider{Model: Model, BaseURL: "http://model.test/v1"})
		must.Do(t, err)
		got, err := e.Embed(t.Context(), []string{"hi"})
		if err != nil {
			if llm.CodeOf(err) == "" {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		if len(got.Vectors) != 1 || len(got.Vectors[0]) == 0 || got.Usage.Input < 0 || got.Usage.Output != 0 {
			t.Fatalf("%+v", got)
		}
		for _, x := range got.Vectors[0] {
			if x != x || x-x != 0 {
				t.Fatalf("%v is no number", x)
			}
		}
	})
}
