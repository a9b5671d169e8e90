// Package provider is the tenth example of the ladder: which model answers, and how.
package provider

import (
	_ "embed"

	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
)

//go:embed model.txtar
var script []byte

// Rung is the example. To ask real models, start a node with a list that has both names:
// examples/10-provider/models.yaml.
func Rung() ladder.Rung {
	return ladder.Rung{
		Dir: "10-provider", Name: "provider", Does: "One model drafts, another one checks.",
		New: newDraft, Input: "How many days has February?", Script: script,
		Models: []string{"fast", "careful"},
	}
}

// newDraft names models and their settings. A provider is plain data: the node maps the
// name to a server, its key and its prices.
func newDraft(s flow.Info) (flow.Workflow, error) {
	fast := llm.Provider{Model: "fast", MaxTokens: 200, Temperature: new(0.0)}
	careful := llm.Provider{Model: "careful", ReasoningEffort: "high"}
	if s.Model != "" { // the task wants another one: for both
		fast, careful = llm.Provider{Model: s.Model}, llm.Provider{Model: s.Model}
	}
	return ladder.Prompted(s, flow.Sequence(
		&flow.Agent{Name: "drafter", Prompt: "You are the drafter. Answer at once.", Provider: fast},
		&flow.Agent{Name: "checker", Prompt: "You are the checker. Correct the answer.", Provider: careful},
	))
}
