// Command hello runs an agent in this process: no server, no store, no key.
//
//	go run ./examples/hello
//
// Without OPENAI_DEFAULT_MODEL it asks the model echo, which repeats what it is
// told. With it and OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own,
// the same program asks that one.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

func main() {
	models, err := node.DefaultModels(os.Getenv, cmp.Or(os.Getenv("OPENAI_DEFAULT_MODEL"), node.EchoModel))
	if err == nil {
		err = hello(context.Background(), os.Stdout, models)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

// hello asks twice in one session and prints what was said.
func hello(ctx context.Context, w io.Writer, models llm.Models) error {
	r := &inprocess.Runner{Models: models} // everything else in memory
	agent := &flow.Agent{Name: "hello", Prompt: "Answer in one line."}

	s, err := r.Run(ctx, agent, session.New(session.UserText("Say hello.")))
	if err != nil {
		return err
	}
	// s is a value: it stays as it is, and s.With is another one.
	t, err := r.Run(ctx, agent, s.With(session.UserText("And in French?")))
	if err != nil {
		return err
	}
	for _, c := range t.Chunks() {
		if _, err := fmt.Fprintf(w, "%-9s  %s\n", c.Kind(), c.Text()); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(w, "%d chunks before, %d now, %d model calls\n", s.Len(), t.Len(), t.Usage().Calls)
	return err
}
