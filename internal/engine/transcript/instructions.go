package transcript

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Instructions are the parts of a call's requests outside of the session's rows, as they
// are stored: each part is a blob, without credentials. All parts except the remark are
// the same for each request of the call.
type Instructions struct {
	named journal.Instructions
	parts []part
}

type part struct {
	digest blob.Digest
	data   []byte
}

// keptTool is a tool of a call in the blob of its table.
type keptTool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Schema      any    `json:"schema,omitempty"` // JSON, or the text if it is not JSON
}

// NewInstructions returns the instructions of a call. redact removes credentials; notes
// are a blob already.
func NewInstructions(prompt, ask string, notes blob.Digest, specs []llm.ToolSpec, redact func(string) string) (*Instructions, error) {
	tools, err := toolTable(specs, redact)
	if err != nil {
		return nil, err
	}
	in := &Instructions{}
	in.named = journal.Instructions{Ask: in.add(redact(ask)), Notes: notes, Prompt: in.add(redact(prompt)), Tools: in.add(tools)}
	return in, nil
}

func (in *Instructions) add(text string) (d blob.Digest) {
	if text != "" {
		data := []byte(text)
		d = blob.Sum(data)
		in.parts = append(in.parts, part{d, data})
	}
	return d
}

// With returns the instructions of a request that ends with a remark; "" is none.
func (in *Instructions) With(remark string) *Instructions {
	if remark == "" {
		return in
	}
	out := &Instructions{in.named, slices.Clip(in.parts)}
	out.named.Remark = out.add(remark)
	return out
}

// Names returns the digests for a record; nil is none.
func (in *Instructions) Names() *journal.Instructions {
	if in == nil || in.named == (journal.Instructions{}) {
		return nil
	}
	return &in.named
}

// toolTable returns a table of tools as JSON, "" for an empty one. Each text is masked
// separately, so that the JSON stays valid.
func toolTable(specs []llm.ToolSpec, redact func(string) string) (string, error) {
	if len(specs) == 0 {
		return "", nil
	}
	tools := make([]keptTool, len(specs))
	for i, s := range specs {
		tools[i] = keptTool{Name: s.Name, Description: redact(s.Description)}
		switch schema := redact(s.Schema); {
		case schema == "":
		case json.Valid([]byte(schema)):
			tools[i].Schema = json.RawMessage(schema)
		default:
			tools[i].Schema = schema
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(tools)
	return b.String(), err
}

// Keep stores the parts that were not stored recently. If it succeeds, a commit may name
// them.
func (in *Instructions) Keep(ctx context.Context, to blob.Store, t session.Tenant, stored *StoredBlobs) error {
	if in == nil {
		return nil
	}
	for _, p := range in.parts {
		key, now := storedBlob{t, p.digest}, time.Now()
		if stored.has(key, now) {
			continue
		}
		if _, err := to.Put(ctx, bytes.NewReader(p.data)); err != nil {
			return fmt.Errorf("flow: keep the instructions of a model's call: %w: %w", session.ErrUnavailable, err)
		}
		stored.add(key, now)
	}
	return nil
}

// StoredBlobs remembers the blobs that were stored recently.
type StoredBlobs struct {
	mu sync.Mutex
	at map[storedBlob]time.Time
}

type storedBlob struct {
	tenant session.Tenant
	digest blob.Digest
}

const (
	// storedFor is the time for which a blob is relied on without checking the store. An
	// unreferenced blob is removed at the earliest a day after it was stored.
	storedFor = 12 * time.Hour
	// maxStored bounds the remembered blobs.
	maxStored = 4096
)

func (b *StoredBlobs) has(k storedBlob, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.at[k]
	// One clock stands still while the machine sleeps, and the other one can be set.
	since, wall := now.Sub(at), now.Round(0).Sub(at.Round(0))
	return ok && since < storedFor && wall >= 0 && wall < storedFor
}

func (b *StoredBlobs) add(k storedBlob, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at == nil || len(b.at) >= maxStored {
		b.at = map[storedBlob]time.Time{}
	}
	b.at[k] = now
}
