// Package trading is the first of the three systems: an analyst examines a share, a bear
// and a bull argue about it concurrently, a trader decides, and a risk manager signs.
package trading

import (
	"context"
	_ "embed"
	"errors"

	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

//go:embed model.txtar
var script []byte

// Rung is the example.
func Rung() ladder.Rung {
	return ladder.Rung{
		Dir: "trading", Name: "trading", Does: "A bear and a bull argue about a share.",
		New: newDesk, Input: "Shall we buy NWND?", Script: script,
	}
}

// Desk is a trading desk.
type Desk struct {
	Analyst, Bear, Bull, Trader, Risk *flow.Agent
}

// Forward implements flow.Workflow.
func (w *Desk) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	s, err := w.Analyst.Forward(ctx, s)
	if err != nil {
		return s, err
	}
	// Both see the analyst's findings, and neither sees the other's argument. On a fleet each
	// branch runs on any free node, on a copy of the files.
	j, err := flow.FanOut(ctx, s, []flow.Branch{
		{Name: "bear", Workflow: w.Bear},
		{Name: "bull", Workflow: w.Bull},
	}, nil)
	if err != nil {
		return s, err
	}
	if len(j.Succeeded()) < 2 {
		return s, errors.New("trading: one side was not heard")
	}
	// The session gets the messages of both, one after the other, and the files of both.
	if s, err = flow.Merge(ctx, j, flow.WithFiles(flow.SinceAncestor(), flow.KeepBoth, nil)); err != nil {
		return s, err
	}
	return flow.Sequence(w.Trader, w.Risk).Forward(ctx, s)
}

func newDesk(s flow.Info) (flow.Workflow, error) {
	write, _ := tool.ByName(tool.WriteWorkspaceFile)
	agent := func(name, prompt string, tools ...tool.Tool) *flow.Agent {
		return &flow.Agent{Name: name, Prompt: prompt, Tools: tools, Provider: llm.Provider{Model: s.Model}}
	}
	return ladder.Prompted(s, &Desk{
		Analyst: agent("analyst", "You are the analyst. Say what the figures are.",
			tool.Func("quote", "Tells the figures of a share.", quote, &tool.FuncOptions{Effect: tool.ReadOnly})),
		Bear:   agent("bear", "You are the bear. Argue against it, and write bear.md.", write),
		Bull:   agent("bull", "You are the bull. Argue for it, and write bull.md.", write),
		Trader: agent("trader", "You are the trader. Decide."),
		Risk:   agent("risk", "You are the risk manager. Bound the decision, and write decision.md.", write),
	})
}

type share struct {
	Ticker string `json:"ticker" jsonschema:"such as NWND"`
}

type figures struct {
	Cents  int `json:"cents"`
	Year   int `json:"change_of_a_year_percent"`
	Profit int `json:"price_to_profit"`
}

// quote stands in for a market data server. A real one returns a different price on each
// call, which is still correct here: the result is recorded.
func quote(_ context.Context, in share) (figures, error) {
	if in.Ticker != "NWND" {
		return figures{}, errors.New("there is only NWND")
	}
	return figures{Cents: 4210, Year: 38, Profit: 31}, nil
}
