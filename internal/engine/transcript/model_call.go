package transcript

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Call is a model call in the code of a workflow.
type Call struct {
	Agent     string
	Prompt    string
	Provider  *llm.Provider
	Tools     []llm.ToolSpec
	Choice    string // of tools; "" is the server's own
	Notes     Note
	Ask       string    // a last user message that is not part of the session
	Answer    Answering // over the requests for one answer
	More      bool      // it answers messages that came after the agent was done
	inherited int       // chunks of the session that its parent has
	Shared    int       // messages of the newest request that the session's parent has
	Shown     Rendering // rendered by the previous calls
	// ThoughtsFrom is the first message whose thoughts are sent back: a server rejected
	// earlier ones.
	ThoughtsFrom int
	Table        *tool.Table      // of an agent
	Account      *journal.Account // of an agent's own budget; nil without one
	key          string           // of the cache, once computed
	given        blob.Digest      // the list of its instructions, once stored
	Size         int              // of the newest request as JSON, in bytes
	Images       []int            // the messages in it with images
	Window       Window
	Partial      func(text string) // gets an answer in flight; nil without it
}

// Answering is the progress of a model's answer over several requests. Its state derives
// from the records of their steps alone.
type Answering struct {
	Text string        // the pieces so far, which the next answer continues
	tail []llm.Message // the last messages of the next request, which are no part of the session
	// The answers in a row, by the reason for another one; each has a small limit.
	cut, pause, empty, spelt uint8

	Last bool // no further request may follow
}

// CacheKey names the common prefix of the requests of this session and of its forks: the
// tools and the messages up to the first user message. It selects the server of a
// provider with many servers, so it is the same for other runs of the session and for all
// branches, and different for each tenant.
func (c *Call) CacheKey(t session.Tenant, msgs []llm.Message) string {
	if c.key != "" {
		return c.key
	}
	first := slices.IndexFunc(msgs, func(m llm.Message) bool { return m.Role == llm.User })
	data, err := json.Marshal([]any{t, c.Tools, msgs[:first+1]})
	if err != nil {
		return ""
	}
	key := blob.Sum(data).Short()
	if first >= 0 {
		c.key = key
	}
	return key
}

// Digest identifies the logical arguments; the session is the step's own.
func (c *Call) Digest() string {
	names := make([]string, len(c.Tools))
	for i, t := range c.Tools {
		names[i] = t.Name
	}
	parts := []any{c.Prompt, c.Provider.Model, names, c.Notes.Digest.String(), c.Ask}
	if c.More {
		parts = append(parts, "more")
	}
	if c.Choice != "" {
		parts = append(parts, "choice", c.Choice)
	}
	if len(c.Answer.tail) > 0 {
		parts = append(parts, "tail", c.Answer.tail)
	}
	data, err := json.Marshal(parts)
	if err != nil {
		return ""
	}
	return blob.Sum(data).Short()
}

// Note is recalled text for an agent, which follows the chunk at index After in the
// prompt. The journal holds its digest and the names of the notes; the text is a blob, so
// that it is never part of a session.
type Note struct {
	After  int
	Text   string
	Digest blob.Digest
}

func CallsOf(c session.Chunk) []session.ToolCall {
	var calls []session.ToolCall
	for _, call := range c.Calls() {
		calls = append(calls, call)
	}
	return calls
}

// Reserve fails if the agent's own budget allows no further call.
//
//go:noinline
func (c *Call) Reserve() error {
	if c.Account == nil {
		return nil
	}
	if _, err := c.Account.Reserve(0); err != nil {
		return fmt.Errorf("flow: agent %s: %w", c.Agent, err)
	}
	return nil
}

// Settle charges a call to the agent's own budget.
//
//go:noinline
func (c *Call) Settle(used session.Usage, unpriced string) {
	c.Window.counted(c.Size, used)
	if c.Account != nil {
		*c.Account = c.Account.Settle(0, 1, used)
		c.Account.Unpriced = cmp.Or(c.Account.Unpriced, unpriced)
	}
}
