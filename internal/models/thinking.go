package models

import (
	"encoding/json"
	"maps"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/llm"
)

// Thinking is the way to request thoughts before an answer. The zero value requests
// none: the server's default applies.
type Thinking struct {
	// Effort is the server's word, such as high.
	Effort string `json:"effort,omitempty"`
	// Budget is the most tokens of the thoughts of an answer, for models of Anthropic that
	// have no efforts.
	Budget int64 `json:"budget,omitempty"`
	// Extra is a JSON object of members for the body of each request.
	Extra json.RawMessage `json:"extra,omitempty"`
}

// minBudget is the least that Anthropic accepts.
const minBudget = 1024

// thinking reads the setting for thoughts: an effort, or an object.
func (p *parser) thinking(n *yaml.Node, what string) *Thinking {
	what += ": thinking"
	t := &Thinking{}
	if n.Kind == yaml.ScalarNode {
		t.Effort = p.Text(n, what)
		return t
	}
	before := p.Mistakes()
	p.Fields(n, what, map[string]func(*yaml.Node){
		"effort": func(n *yaml.Node) { t.Effort = p.Text(n, what+": effort") },
		"budget": func(n *yaml.Node) {
			if t.Budget = p.number(n, what+": budget"); t.Budget > 0 && t.Budget < minBudget {
				p.Fail(n.Line, "%s: budget %d: want at least %d tokens", what, t.Budget, minBudget)
			}
		},
		"extra": func(n *yaml.Node) {
			var members map[string]any
			data, err := []byte(nil), n.Decode(&members)
			if err == nil {
				data, err = json.Marshal(members)
			}
			if err == nil {
				err = llm.Provider{Extra: data}.Validate()
			}
			if err != nil || len(members) == 0 {
				p.Fail(n.Line, "%s: extra: want members of the request's body, none of which the request sets itself, such as {enable_thinking: true}", what)
			}
			t.Extra = data
		},
	})
	if t.Effort == "" && t.Budget == 0 && t.Extra == nil && p.Mistakes() == before {
		p.Fail(n.Line, "%s: want an effort such as high, budget or extra", what)
	}
	return t
}

// thinks checks the thinking of an entry, once all of it is read.
func (p *parser) thinks(n *yaml.Node, m *Model, what string) {
	t := m.Thinking
	switch {
	case t == nil:
	case m.Embeds():
		p.Fail(n.Line, "%s: thinking: a model for embeddings has no answers; remove it", what)
	case t.Budget > 0 && m.Kind != KindAnthropic:
		p.Fail(n.Line, "%s: thinking: kind %s has no budget of thoughts; write an effort, or extra", what, m.Kind)
	case t.Budget > 0 && m.Output > 0 && t.Budget >= m.Output:
		p.Fail(n.Line, "%s: thinking: budget %d leaves no part of output %d for the answer; lower it", what, t.Budget, m.Output)
	}
}

// ask returns the provider with the settings for thoughts. The settings of p take
// precedence.
func (t *Thinking) ask(kind string, p llm.Provider) llm.Provider {
	if t == nil {
		return p
	}
	if p.ReasoningEffort == "" {
		p.ReasoningEffort = t.Effort
	}
	all, own := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if kind == KindAnthropic && t.Budget > 0 {
		all["thinking"], _ = json.Marshal(map[string]any{"type": "enabled", "budget_tokens": t.Budget}) // of a text and a number
	} else if kind == KindAnthropic && t.Effort != "" {
		all["thinking"] = json.RawMessage(`{"type":"adaptive"}`)
	}
	for _, more := range []json.RawMessage{t.Extra, p.Extra} {
		clear(own)
		if len(more) > 0 && json.Unmarshal(more, &own) != nil {
			return p // the provider's own extra is invalid, and is rejected
		}
		maps.Copy(all, own)
	}
	if len(all) > 0 {
		if data, err := json.Marshal(all); err == nil {
			p.Extra = data
		}
	}
	return p
}
