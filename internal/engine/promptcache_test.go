package engine_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// CacheRules are the rules of a provider's cache of prompts.
type CacheRules struct {
	// Breakpoints: a prefix is stored where a request marks it, at most four times, and
	// is searched there and at the twenty blocks before. Otherwise all prefixes of whole
	// blocks are stored.
	Breakpoints bool
	Block       int // tokens
	Least       int // tokens of the shortest prefix that is stored
}

// The rules that providers publish, as of 2026.
var (
	AnthropicCache = CacheRules{Breakpoints: true, Least: 1024}
	OpenAICache    = CacheRules{Block: 128, Least: 1024}
	BlockCache     = CacheRules{Block: 16, Least: 16} // of vLLM and SGLang
)

// CacheServer SIMULATES the cache of prompts of a model server: it speaks chat
// completions and Anthropic's protocol, answers "ok", counts four bytes as a token, and
// reports the reads and writes of such a cache. An entry exists once the answer to the
// request that writes it has begun. It measures the requests, byte for byte, not a
// provider.
type CacheServer struct {
	Rules CacheRules
	// First is the time to the first byte of an answer.
	First time.Duration

	mu      sync.Mutex
	entries map[[32]byte]bool
	asked   []CacheUse
}

// CacheUse is the use of the cache by a request, in tokens.
type CacheUse struct{ Input, Read, Written int }

// Asked returns the cache uses of the requests, in their order.
func (c *CacheServer) Asked() []CacheUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]CacheUse(nil), c.asked...)
}

// part is a piece of a prompt, in the order of the cache.
type part struct {
	data []byte
	mark bool // a breakpoint is at its end
}

// prompt splits a request into parts.
func prompt(body []byte) (parts []part, messages bool, err error) {
	var r struct {
		Tools    []json.RawMessage `json:"tools"`
		System   []json.RawMessage `json:"system"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
			Calls   json.RawMessage `json:"tool_calls"`
			CallID  string          `json:"tool_call_id"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, false, err
	}
	add := func(raw []byte) {
		mark := []byte(`"cache_control":{"type":"ephemeral"}`)
		plain := bytes.ReplaceAll(raw, append([]byte(","), mark...), nil)
		parts = append(parts, part{plain, len(plain) < len(raw)})
	}
	for _, raw := range append(r.Tools, r.System...) {
		add(raw)
	}
	for _, m := range r.Messages {
		var blocks []json.RawMessage
		if json.Unmarshal(m.Content, &blocks) != nil {
			parts = append(parts, part{data: fmt.Appendf(nil, "%s%s%s%s", m.Role, m.Content, m.Calls, m.CallID)})
			continue
		}
		messages = true
		for _, raw := range blocks {
			add(append([]byte(m.Role), raw...))
		}
	}
	return parts, messages, nil
}

func tokens(n int) int { return (n + 3) / 4 }

// lookBack is the number of blocks before a breakpoint that are searched.
const lookBack = 20

// look returns the cached part of a prompt, and the entries that the request writes.
func (c *CacheServer) look(parts []part) (use CacheUse, writes [][32]byte) {
	var all []byte
	marked := map[int]bool{}
	var ends []int // of the parts, in bytes
	marks := 0
	for _, p := range parts {
		all = append(all, p.data...)
		if ends = append(ends, len(all)); p.mark {
			marks++
			marked[len(ends)-1] = true
		}
	}
	use.Input = tokens(len(all))
	to := 0 // the end of the stored part
	have := func(n int) bool { return c.entries[sha256.Sum256(all[:n])] }
	write := func(n int) {
		if tokens(n) >= c.Rules.Least {
			writes, to = append(writes, sha256.Sum256(all[:n])), max(to, n)
		}
	}
	if !c.Rules.Breakpoints {
		var chain [32]byte // of each block with those before
		for n := c.Rules.Block * 4; n <= len(all); n += c.Rules.Block * 4 {
			chain = sha256.Sum256(append(chain[:], all[n-c.Rules.Block*4:n]...))
			if tokens(n) < c.Rules.Least {
				continue
			}
			if writes, to = append(writes, chain), n; c.entries[chain] {
				use.Read = tokens(n)
			}
		}
		use.Written = tokens(to) - use.Read
		return use, writes
	}
	for i := range ends {
		if !marked[i] || marks > 4 {
			continue
		}
		for j := i; j >= max(i-lookBack, 0); j-- {
			if have(ends[j]) {
				use.Read = max(use.Read, tokens(ends[j]))
				break
			}
		}
		write(ends[i])
	}
	use.Written = max(tokens(to)-use.Read, 0)
	return use, writes
}

// ServeHTTP implements [http.Handler].
func (c *CacheServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var parts []part
	messages := false
	if err == nil {
		parts, messages, err = prompt(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	use, writes := c.look(parts)
	c.asked = append(c.asked, use)
	c.mu.Unlock()
	time.Sleep(c.First)
	c.mu.Lock()
	if c.entries == nil {
		c.entries = map[[32]byte]bool{}
	}
	for _, e := range writes {
		c.entries[e] = true
	}
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if messages || strings.HasSuffix(r.URL.Path, "/messages") {
		fmt.Fprintf(w, `{"type":"message","model":"m1","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":%d,"output_tokens":1,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d}}`,
			use.Input-use.Read-use.Written, use.Read, use.Written)
		return
	}
	fmt.Fprintf(w, `{"model":"m1","choices":[{"message":{"content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":%d}}}`, use.Input, use.Read)
}
