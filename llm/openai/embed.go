package openai

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"

	api "github.com/sashabaranov/go-openai"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Embedder returns an embedder with the model of p. Server and key are those of its
// client. Of p's settings only Extra is sent; its member "dimensions" is also the
// required length of each vector.
func (m *models) Embedder(ctx context.Context, p llm.Provider) (llm.Embedder, error) {
	e, err := m.server.Resolve(ctx, p)
	if err != nil {
		return nil, err
	}
	var extra struct {
		Dimensions json.RawMessage `json:"dimensions"`
	}
	out := &embedder{Endpoint: e, extra: p.Extra}
	if len(p.Extra) > 0 && json.Unmarshal(p.Extra, &extra) == nil && exchange.IsSet(extra.Dimensions) {
		if err := json.Unmarshal(extra.Dimensions, &out.dimensions); err != nil || out.dimensions < 1 || out.dimensions > llm.MaxDimensions {
			return nil, e.Fail(llm.CodeInvalidRequest, 0, "dimensions %s: want 1 to %d", llm.Clip(string(extra.Dimensions), 40), llm.MaxDimensions)
		}
	}
	return out, nil
}

// embedder makes vectors at one endpoint.
type embedder struct {
	*exchange.Endpoint
	extra      json.RawMessage
	dimensions int // the requested number; 0 is the model's own
}

var _ llm.Embedder = (*embedder)(nil)

// Embed implements [llm.Embedder].
func (c *embedder) Embed(ctx context.Context, texts []string) (*llm.Embeddings, error) {
	if err := llm.ValidateTexts(texts); err != nil {
		return nil, err
	}
	// Base64 is half as long as decimal numbers. A server that does not support it
	// sends decimal numbers.
	body, err := exchange.Body(api.EmbeddingRequest{
		Input: texts, Model: api.EmbeddingModel(c.Model), EncodingFormat: api.EmbeddingEncodingFormatBase64,
	}, c.extra)
	if err != nil {
		return nil, err
	}
	v := &vectors{e: c.Endpoint, of: len(texts), dimensions: c.dimensions, model: c.Model}
	resp, err := c.Complete(ctx, &llm.Request{}, exchange.PathEmbeddings, body, v)
	if err != nil {
		return nil, err
	}
	return &llm.Embeddings{Vectors: v.all, Usage: resp.Usage, Uncounted: resp.Uncounted, Model: resp.Model}, nil
}

// vectors reads an answer.
type vectors struct {
	e          *exchange.Endpoint
	of         int // texts
	dimensions int // 0 is any number, the same of all
	all        [][]float32
	usage      session.Usage
	model      string
}

var _ exchange.Decoder = (*vectors)(nil)

// embeddings is an answer, decoded as tolerantly as a completion.
type embeddings struct {
	Object exchange.Word `json:"object"`
	Type   exchange.Word `json:"type"`
	Model  exchange.Word `json:"model"`
	Data   []struct {
		Index     *exchange.Count `json:"index"`
		Embedding json.RawMessage `json:"embedding"`
	} `json:"data"`
	Usage json.RawMessage `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// State implements [exchange.Decoder]. An accepted answer is always complete.
func (v *vectors) State() exchange.State {
	return exchange.State{Begun: v.all != nil, Whole: v.all != nil, Used: v.usage}
}

// Done implements [exchange.Decoder].
func (v *vectors) Done() {}

// Response implements [exchange.Decoder].
func (v *vectors) Response() *llm.Response {
	return &llm.Response{Usage: v.usage, Uncounted: v.usage.Tokens() == 0, Model: v.model}
}

// Add handles the answer, which is one document.
func (v *vectors) Add(raw []byte) error {
	var a embeddings
	if err := json.Unmarshal(raw, &a); err != nil {
		return v.e.Malformed("the answer is not the JSON of vectors")
	}
	if exchange.IsSet(a.Error) || a.Object == "error" || a.Type == "error" {
		return v.e.Failure(raw)
	}
	if v.all != nil {
		return v.e.Malformed("the answer comes twice")
	}
	v.count(a.Usage)
	if a.Model != "" {
		v.model = llm.Clip(string(a.Model), llm.MaxNameLen)
	}
	if len(a.Data) != v.of {
		return v.e.Malformed("the answer has %d vectors for %d texts", len(a.Data), v.of)
	}
	all := make([][]float32, v.of)
	for i := range a.Data {
		d := &a.Data[i]
		at := i
		if d.Index != nil {
			at = int(*d.Index)
		}
		if at < 0 || at >= v.of || all[at] != nil {
			return v.e.Malformed("vector %d of the answer is of text %d, of which there is none or which has one", i, at)
		}
		one, problem := vector(d.Embedding)
		switch {
		case problem == "" && v.dimensions == 0:
			v.dimensions = len(one)
		case problem == "" && len(one) != v.dimensions:
			return v.e.Malformed("vector %d of the answer has %d dimensions, want %d", i, len(one), v.dimensions)
		case problem != "":
			return v.e.Malformed("vector %d of the answer %s", i, problem)
		}
		all[at] = one
	}
	v.all = all
	return nil
}

// count records the server's counts. Some servers state only the sum.
func (v *vectors) count(raw json.RawMessage) {
	var u struct {
		usage
		Total exchange.Tokens `json:"total_tokens"`
	}
	_ = json.Unmarshal(raw, &u)
	if u.PromptTokens == 0 && u.InputTokens == 0 {
		u.PromptTokens = u.Total
	}
	v.usage = u.counts()
	v.usage.Output = 0
}

// vector reads a vector as a list of numbers, or as the base64 of little-endian
// float32.
func vector(raw json.RawMessage) (v []float32, problem string) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		return nil, "is missing"
	case raw[0] == '[':
		// A server that computed NaN writes null, which encoding/json reads as 0.
		if bytes.Contains(raw, []byte("null")) {
			return nil, "has a number that is none"
		}
		if json.Unmarshal(raw, &v) != nil {
			return nil, "is not a list of numbers of 32 bits"
		}
	default:
		var data []byte
		if json.Unmarshal(raw, &data) != nil || len(data)%4 != 0 {
			return nil, "is neither a list of numbers nor the base64 of some"
		}
		v = make([]float32, len(data)/4)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
			if f := float64(v[i]); math.IsNaN(f) || math.IsInf(f, 0) {
				return nil, "has a number that is none"
			}
		}
	}
	if len(v) == 0 || len(v) > llm.MaxDimensions {
		return nil, "is empty or has too many dimensions"
	}
	return v, ""
}
