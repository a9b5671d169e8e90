// Package shop is the fifth example of the ladder: Go functions as tools, and the effect of
// a crash on each of them. The tools are in tools.go.
package shop

import (
	_ "embed"

	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
)

//go:embed model.txtar
var script []byte

// Rung is the example.
func Rung() ladder.Rung {
	shop := newShop()
	return ladder.Rung{
		Dir: "05-custom-tool", Name: "buy", Does: "Buys at a shop.",
		New: func(s flow.Info) (flow.Workflow, error) {
			buyer := newBuyer(shop)
			buyer.Provider = llm.Provider{Model: s.Model}
			return ladder.Prompted(s, buyer)
		},
		Input: "Two packets of tea, please.", Script: script,
	}
}

// newBuyer returns an agent that buys at a shop.
func newBuyer(s *shop) *flow.Agent {
	return &flow.Agent{
		Name: "buyer", Prompt: "You are the buyer. Look at the price before you order.", Tools: s.tools(),
	}
}
