package llm

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/rathcluster/rath/session"
)

// Limits of one request for vectors.
const (
	MaxTexts      = 256
	MaxTextLen    = 32 << 10 // bytes of a text
	MaxTextsLen   = 1 << 20  // bytes of all
	MaxDimensions = 16384
)

// Embedder makes vectors of texts. Its method may be called concurrently.
type Embedder interface {
	// Embed sends one request and returns a vector for each text, in the order of
	// the texts. It never sends it again: the caller decides that, by Retryable.
	//
	// It returns Embeddings only if there is a vector for each text, all of them have
	// the same number of dimensions and each of their numbers is finite. The caller
	// owns them. Texts that are too many, too long, empty or not UTF-8 are
	// CodeInvalidRequest, without a request.
	//
	// The error is an *Error; or, if ctx ended, an error that wraps
	// context.Cause(ctx). As with a Client the time is bounded without a deadline in
	// ctx.
	Embed(ctx context.Context, texts []string) (*Embeddings, error)
}

// Embeddings are the vectors of texts. Vectors of different models, or of one model
// with different dimensions, cannot be compared.
type Embeddings struct {
	Vectors [][]float32
	Usage   session.Usage // has no output
	// Uncounted reports that the server states no tokens. Usage has none then.
	Uncounted bool
	// Model is the server's name of the answering model.
	Model string
}

// embedders are Models that can make vectors.
type embedders interface {
	Embedder(ctx context.Context, p Provider) (Embedder, error)
}

// EmbedderOf returns an embedder with the model of p, as [Models.Client] returns a
// client. all must have a method Embedder of the form of EmbedderOf without the
// parameter all. Models without that method, and kinds whose protocol has no vectors,
// are CodeInvalidRequest.
func EmbedderOf(ctx context.Context, all Models, p Provider) (Embedder, error) {
	if e, ok := all.(embedders); ok {
		return e.Embedder(ctx, p)
	}
	what := "the models of this process make no vectors of texts"
	if p.Kind != "" {
		what = fmt.Sprintf("models of kind %q make no vectors of texts", Clip(p.Kind, 40))
	}
	return nil, invalid("%s: name a model of kind \"openai\"", what)
}

// ValidateTexts checks the texts of a request for vectors. It returns an *Error with
// CodeInvalidRequest that names the text.
func ValidateTexts(texts []string) error {
	if len(texts) == 0 || len(texts) > MaxTexts {
		return invalid("embed: %d texts: want 1 to %d in a request", len(texts), MaxTexts)
	}
	all := 0
	for i, t := range texts {
		switch all += len(t); {
		case t == "":
			return invalid("embed: text %d is empty", i)
		case len(t) > MaxTextLen:
			return invalid("embed: text %d has %d bytes: want at most %d", i, len(t), MaxTextLen)
		case !utf8.ValidString(t):
			return invalid("embed: text %d is not UTF-8", i)
		}
	}
	if all > MaxTextsLen {
		return invalid("embed: the texts have %d bytes: want at most %d in a request", all, MaxTextsLen)
	}
	return nil
}
