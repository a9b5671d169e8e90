// Package streaming is the seventh example of the ladder: the updates that clients get
// before the end.
package streaming

import (
	_ "embed"

	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
)

//go:embed model.txtar
var script []byte

// Rung is the example. It runs on a node and first prints the pieces of the answer, as a
// client gets them after a call of
//
//	client.Do(ctx, "story", task, func(u client.Update) { ... u.Delta ... })
//
// Clients in other languages get them as messages on rath.run.<tenant>.<run>.delta.
func Rung() ladder.Rung {
	return ladder.Rung{
		Dir: "07-streaming", Name: "story", Does: "Tells a story, piece by piece.",
		New: newStory, Input: "Tell me a story of one sentence.", Script: script, Streams: true,
	}
}

// newStory is an agent like any other: all model calls stream. A piece is provisional. If
// the answer breaks off, or the node dies, the next try begins from the start; only the whole
// row is recorded.
func newStory(s flow.Info) (flow.Workflow, error) {
	return ladder.Prompted(s, &flow.Agent{
		Name: "teller", Prompt: "You are the teller.", Provider: llm.Provider{Model: s.Model},
	})
}
