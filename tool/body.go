package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/schema"
)

// MaxBody is the maximum length of a body in a transcript, in bytes. A longer body is
// stored in the blob store; the transcript has its head and tail.
const MaxBody = 64 << 10

// folded stands for a body over MaxBody.
type folded struct {
	Truncated struct {
		Bytes int    `json:"bytes"`          // of the whole body
		Blob  string `json:"blob,omitempty"` // its digest, if it could be kept
	} `json:"truncated"`
	Head string `json:"head"`
	Tail string `json:"tail"`
}

// fold shortens a body to MaxBody. The head and tail are of the body's JSON
// text; quoting them again can double them, so they get a quarter each at most.
func fold(ctx context.Context, body json.RawMessage, blobs blob.Store) (json.RawMessage, error) {
	if len(body) <= MaxBody {
		return body, nil
	}
	var f folded
	f.Truncated.Bytes = len(body)
	if blobs != nil {
		if ref, err := blobs.Put(ctx, bytes.NewReader(body)); err == nil {
			f.Truncated.Blob = ref.Digest.String()
		} else if ctx.Err() != nil {
			return nil, fmt.Errorf("keep a result of %d bytes: %w", len(body), err)
		} // otherwise the result is still worth its head and tail
	}
	const part = MaxBody/4 - 256
	f.Head, f.Tail = headOf(body, part), tailOf(body, part)
	return schema.Marshal(f)
}

// headOf and tailOf cut text to n bytes and drop a broken character at the cut.
func headOf(text []byte, n int) string {
	if len(text) <= n {
		return string(text)
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return string(text[:n])
}

func tailOf(text []byte, n int) string {
	if len(text) <= n {
		return string(text)
	}
	at := len(text) - n
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return string(text[at:])
}

// clip cuts a text to about n bytes, and marks the cut.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return headOf([]byte(text), n) + "..."
}
