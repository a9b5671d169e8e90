package transcript

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// keptTool is a tool of a call in the blob of its table.
type keptTool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Schema      any    `json:"schema,omitempty"` // JSON, or the text if it is not JSON
}

// Keeper stores the instructions of calls.
type Keeper struct {
	Blobs  blob.Store
	Tenant session.Tenant
	Stored *StoredBlobs
	// Redactor returns a function that removes credentials from a text.
	Redactor func() func(text string) string
}

// KeepInstructions stores the parts of the call's next request outside of the session's
// rows, each as a blob without credentials, and the list of them; see
// [journal.Instructions]. It returns the digest of the list, which a commit may name from
// then on; zero is none. Blobs that were stored recently are not stored again.
func (c *Call) KeepInstructions(ctx context.Context, k *Keeper) (blob.Digest, error) {
	remark := c.Answer.Remark()
	if remark == "" {
		if _, ok := k.Stored.since(storedBlob{k.Tenant, c.given}, time.Now()); ok {
			return c.given, nil
		}
		if c.Prompt == "" && c.Ask == "" && len(c.Tools) == 0 && c.Notes.Digest.IsZero() {
			return blob.Digest{}, nil
		}
	}
	redact := k.Redactor()
	tools, err := toolTable(c.Tools, redact)
	if err != nil {
		return blob.Digest{}, err
	}
	p := &keeping{Keeper: k, ctx: ctx, oldest: time.Now()}
	list := journal.Instructions{
		Ask: p.put([]byte(redact(c.Ask))), Notes: c.Notes.Digest, Prompt: p.put([]byte(redact(c.Prompt))), Remark: p.put([]byte(remark)), Tools: p.put(tools),
	}
	d := p.put(list.List())
	if p.err == nil && remark == "" {
		c.given = d
	}
	return d, p.err
}

// keeping stores the blobs of one list.
type keeping struct {
	*Keeper
	ctx    context.Context
	oldest time.Time // when the oldest of the blobs was stored: the list is relied on no longer than its parts
	err    error
}

// put stores a blob, unless it was stored recently or there was an error. It returns the
// blob's digest, zero for an empty one.
func (p *keeping) put(data []byte) (d blob.Digest) {
	if len(data) == 0 || p.err != nil {
		return d
	}
	key, now := storedBlob{p.Tenant, blob.Sum(data)}, time.Now()
	at, ok := p.Stored.since(key, now)
	if !ok {
		if _, err := p.Blobs.Put(p.ctx, bytes.NewReader(data)); err != nil {
			p.err = fmt.Errorf("flow: keep the instructions of a model's call: %w: %w", session.ErrUnavailable, err)
			return d
		}
		at = p.oldest
		p.Stored.add(key, at)
	}
	if at.Before(p.oldest) {
		p.oldest = at
	}
	return key.digest
}

// toolTable returns a table of tools as JSON, nil for an empty one. Each text is masked
// separately, so that the JSON stays valid.
func toolTable(specs []llm.ToolSpec, redact func(string) string) ([]byte, error) {
	if len(specs) == 0 {
		return nil, nil
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
	return b.Bytes(), err
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

// since returns the time at which a blob was stored, and false if that is too long ago.
func (b *StoredBlobs) since(k storedBlob, now time.Time) (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.at[k]
	// One clock stands still while the machine sleeps, and the other one can be set.
	since, wall := now.Sub(at), now.Round(0).Sub(at.Round(0))
	return at, ok && since < storedFor && wall >= 0 && wall < storedFor
}

func (b *StoredBlobs) add(k storedBlob, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at == nil || len(b.at) >= maxStored {
		b.at = map[storedBlob]time.Time{}
	}
	b.at[k] = now
}
