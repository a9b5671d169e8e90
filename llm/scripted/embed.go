package scripted

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/rathcluster/rath/llm"
)

// Dimensions is the number of dimensions of a [Model]'s vectors.
const Dimensions = 256

// Embedder returns an embedder that needs no model: each word of a text, in lower case,
// is hashed to one of 256 dimensions and a sign, and the sum has the length 1. Texts
// that share words are thus near each other; texts with the same meaning in other words
// are not. It is for tests only, and does not represent the quality of a search.
func (m *Model) Embedder(_ context.Context, p llm.Provider) (llm.Embedder, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return embedder{m, p.Model}, nil
}

type embedder struct {
	*Model
	model string
}

var _ llm.Embedder = embedder{}

// Embed implements [llm.Embedder].
func (e embedder) Embed(ctx context.Context, texts []string) (*llm.Embeddings, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("scripted model: %w", err)
	}
	return e.embed(e.model, texts, "process")
}

func (m *Model) embed(model string, texts []string, via string) (*llm.Embeddings, error) {
	err := llm.ValidateTexts(texts)
	if err == nil && model != "" && len(m.o.Models) > 0 && !slices.Contains(m.o.Models, model) {
		err = &llm.Error{Code: llm.CodeModelNotFound, Status: 404, Message: fmt.Sprintf("the model %q does not exist; there are %v", model, m.o.Models)}
	}
	if m.log != nil {
		shown := make([]llm.Message, len(texts))
		for i, t := range texts {
			shown[i] = llm.Message{Role: llm.User, Text: t}
		}
		entry := Entry{Time: m.o.Now().UTC(), Via: via, Model: model, Messages: len(texts), Digest: Digest(shown), Rule: "embeddings", Status: http.StatusOK}
		if e, ok := errors.AsType[*llm.Error](err); ok {
			entry.Status = statusOf(e.Code)
		}
		if failed := m.log.note(&entry); failed != nil {
			return nil, &llm.Error{Code: llm.CodeUnavailable, Status: 500, Message: failed.Error()}
		}
	}
	if err != nil {
		return nil, err
	}
	out := &llm.Embeddings{Vectors: make([][]float32, len(texts)), Model: model}
	if out.Model == "" {
		out.Model = DefaultModel
	}
	for i, t := range texts {
		out.Vectors[i] = hashed(t)
		out.Usage.Input += llm.Estimate(len(t))
	}
	return out, nil
}

// hashed is the vector of a text.
func hashed(text string) []float32 {
	var sum [Dimensions]float64
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if len(words) == 0 {
		words = []string{text}
	}
	for _, w := range words {
		h := fnv.New64a()
		_, _ = io.WriteString(h, w)
		n := h.Sum64()
		n ^= n >> 29 // the last byte alone decides the lowest bits else
		sum[n%Dimensions] += float64(int64(n>>32&2) - 1)
	}
	length := 0.0
	for _, f := range sum {
		length += f * f
	}
	if length == 0 { // its words cancel out
		sum[0], length = 1, 1
	}
	v := make([]float32, Dimensions)
	for i, f := range sum {
		v[i] = float32(f / math.Sqrt(length))
	}
	return v
}

func (m *Model) serveEmbeddings(w http.ResponseWriter, hr *http.Request) {
	var ask struct {
		Model  string          `json:"model"`
		Input  json.RawMessage `json:"input"`
		Format string          `json:"encoding_format"`
	}
	var texts []string
	body, err := io.ReadAll(http.MaxBytesReader(w, hr.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, &ask)
	}
	if err == nil && json.Unmarshal(ask.Input, &texts) != nil {
		texts = []string{""}
		err = json.Unmarshal(ask.Input, &texts[0])
	}
	if err != nil {
		writeError(w, &llm.Error{Code: llm.CodeInvalidRequest, Status: http.StatusBadRequest, Message: "want a JSON object with a model and an input of texts: " + err.Error()})
		return
	}
	out, err := m.embed(ask.Model, texts, "http")
	if err != nil {
		e, ok := errors.AsType[*llm.Error](err)
		if !ok {
			e = &llm.Error{Code: llm.CodeUnavailable, Status: 500, Message: err.Error()}
		}
		writeError(w, e)
		return
	}
	type vector struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
	}
	answer := struct {
		Object string     `json:"object"`
		Model  string     `json:"model"`
		Data   []vector   `json:"data"`
		Usage  *chatUsage `json:"usage"`
	}{Object: "list", Model: out.Model, Usage: wireUsage(out.Usage)}
	for i, v := range out.Vectors {
		one := vector{"embedding", i, v}
		if ask.Format == "base64" {
			data := make([]byte, 0, 4*len(v))
			for _, f := range v {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f))
			}
			one.Embedding = base64.StdEncoding.EncodeToString(data)
		}
		answer.Data = append(answer.Data, one)
	}
	writeJSON(w, http.StatusOK, answer)
}
