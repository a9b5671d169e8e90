// Command tools gives an agent Go functions as tools and says of each what a
// crash may do with it.
//
//	go run ./examples/tools
//
// The model is a script, so that it runs without a key and always tells the
// same story.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/session"
)

//go:embed model.txtar
var script []byte

// newBuyer returns an agent that buys at a shop.
func newBuyer(s *shop) *flow.Agent {
	return &flow.Agent{
		Name: "buyer", Prompt: "You are the buyer. Look at the price before you order.", Tools: s.tools(),
	}
}

func main() {
	if err := buy(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func buy(ctx context.Context) error {
	parsed, err := scripted.Parse("model.txtar", script)
	if err != nil {
		return err
	}
	model, err := scripted.New(parsed, nil)
	if err != nil {
		return err
	}
	r := &inprocess.Runner{Models: model}
	s, err := r.Run(ctx, newBuyer(newShop()), session.New(session.UserText("Two packets of tea, please.")))
	if err != nil {
		return err
	}
	for _, c := range s.Chunks() {
		for _, call := range c.Calls() {
			fmt.Printf("%-11s  %s %s\n", c.Kind(), call.Name, call.Args)
		}
		if c.Text() != "" {
			fmt.Printf("%-11s  %s\n", c.Kind(), c.Text())
		}
	}
	return nil
}
