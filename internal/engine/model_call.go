package engine

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// call is a model call as the code asks for it.
type call struct {
	agent     string
	prompt    string
	provider  *llm.Provider
	tools     []llm.ToolSpec
	choice    string // of tools; "" is the server's own
	notes     note
	ask       string     // a last user message that is not part of the session
	answer    answering  // over the requests for one answer
	more      bool       // it answers messages that came after the agent was done
	inherited int        // chunks of the session that its parent has
	shared    int        // messages of the newest request that the session's parent has
	shown     transcript // what the calls before this one rendered
	// thoughtsFrom is the first message whose thoughts go back: a server refused those before.
	thoughtsFrom int
	table        *tool.Table      // of an agent
	account      *journal.Account // of an agent's own budget; nil without one
	key          string           // of the cache, once it is known
	size         int              // of the newest request as JSON, in bytes
	images       []int            // the messages of it that have images
	window       window
	given        *instructions     // once they are known
	partial      func(text string) // gets an answer under way; nil without it
}

// model is the one that the call names, or the task, or the node.
func (c *call) model(ex *Execution) string {
	return cmp.Or(c.provider.Model, ex.around.outermost().Model, ex.rt.Model)
}

// choices returns the models that the call may ask.
func (c *call) choices(ex *Execution) ([]Choice, error) {
	p := *c.provider
	p.Model = c.model(ex)
	return ex.rt.choices(p)
}

// cacheKey names the prefix that requests of this session and of its forks share: the
// tools and the messages up to the first of a user. Which server they come to depends on
// it where a provider has many, so it holds for other runs of the session and for all
// branches alike, and no tenant shares it.
func (c *call) cacheKey(t session.Tenant, msgs []llm.Message) string {
	if c.key != "" {
		return c.key
	}
	first := slices.IndexFunc(msgs, func(m llm.Message) bool { return m.Role == llm.User })
	data, err := json.Marshal([]any{t, c.tools, msgs[:first+1]})
	if err != nil {
		return ""
	}
	key := blob.Sum(data).Short()
	if first >= 0 {
		c.key = key
	}
	return key
}

// digest identifies the logical arguments; the session is the step's own.
func (c *call) digest() string {
	names := make([]string, len(c.tools))
	for i, t := range c.tools {
		names[i] = t.Name
	}
	parts := []any{c.prompt, c.provider.Model, names, c.notes.Digest.String(), c.ask}
	if c.more {
		parts = append(parts, "more")
	}
	if c.choice != "" {
		parts = append(parts, "choice", c.choice)
	}
	if len(c.answer.tail) > 0 {
		parts = append(parts, "tail", c.answer.tail)
	}
	data, err := json.Marshal(parts)
	if err != nil {
		return ""
	}
	return blob.Sum(data).Short()
}

// note is what an agent recalled: text that follows the chunk at index After
// in the prompt. The journal holds its digest and the names of the notes; the
// text is a blob, so that it is never part of a session.
type note struct {
	After  int
	Text   string
	Digest blob.Digest
}

func callsOf(c session.Chunk) []session.ToolCall {
	var calls []session.ToolCall
	for _, call := range c.Calls() {
		calls = append(calls, call)
	}
	return calls
}
