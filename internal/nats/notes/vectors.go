package notes

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/llm"
)

// embedWithin bounds how long a write or a search waits for a vector. Both continue without
// one.
const embedWithin = 10 * time.Second

// embedding makes vectors. Without an Embedder it makes none.
type embedding struct {
	llm.Embedder
	model string
	log   *slog.Logger

	mu    sync.Mutex
	asked string          // the last query: a caller with too few usable hits asks for more of the same
	last  notebook.Vector // of it
}

// wants reports whether a note needs another vector than it has.
func (e *embedding) wants(n notebook.Note) bool {
	return e.Embedder != nil && n.Vector.Model != e.model && notebook.Embedded(n.Text) != ""
}

func (e *embedding) of(ctx context.Context, text string) (notebook.Vector, error) {
	ctx, cancel := context.WithTimeout(ctx, embedWithin)
	defer cancel()
	all, err := e.Embed(ctx, []string{notebook.Embedded(text)})
	if err != nil {
		return notebook.Vector{}, err
	}
	if len(all.Vectors) != 1 {
		return notebook.Vector{}, fmt.Errorf("model %s made %d vectors of a text", e.model, len(all.Vectors))
	}
	return notebook.NewVector(e.model, all.Vectors[0])
}

// ofNote makes the vector of a note in a memory whose vectors have so many bytes. Without
// one the note is stored and found by keyword.
func (e *embedding) ofNote(ctx context.Context, n notebook.Note, bytes int) notebook.Vector {
	v, err := e.of(ctx, n.Text)
	if err == nil && bytes+len(v.Numbers) > notebook.MaxVectors {
		err = fmt.Errorf("the vectors of the memory have %d bytes, at most %d are kept: forget some notes (rath memory forget), or name a model of fewer dimensions", bytes, notebook.MaxVectors)
	}
	if err != nil {
		if ctx.Err() == nil {
			e.log.Warn("a note has no vector and is found by its words alone; it gets one when it is written again", "uri", n.URI, "model", e.model, "err", err)
		}
		return notebook.Vector{}
	}
	return v
}

// ofQuery makes the vector of a query, and reuses it for a repeated query.
func (e *embedding) ofQuery(ctx context.Context, text string) (notebook.Vector, error) {
	e.mu.Lock()
	v, have := e.last, e.asked == text && text != ""
	e.mu.Unlock()
	if have {
		return v, nil
	}
	v, err := e.of(ctx, text)
	if err == nil {
		e.mu.Lock()
		e.asked, e.last = text, v
		e.mu.Unlock()
	}
	return v, err
}
