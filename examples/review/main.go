// Command review shows a fan-out: two reviewers work concurrently on branches of
// one session, and a judge picks one.
//
//	go run ./examples/review
//
// The model is a script, so it runs without a key and always gives the same
// output.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"

	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/session"
)

//go:embed model.txtar
var script []byte

func main() {
	parsed, err := scripted.Parse("model.txtar", script)
	if err == nil {
		var model llm.Models
		if model, err = scripted.New(parsed, nil); err == nil {
			err = review(context.Background(), os.Stdout, model)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "review:", err)
		os.Exit(1)
	}
}

// review runs the workflow and prints the session that it ended with.
func review(ctx context.Context, w io.Writer, model llm.Models) error {
	r := &inprocess.Runner{Models: model}
	s, err := r.Run(ctx, newReview(), session.New(session.UserText("Review the change to login.go.")))
	if err != nil {
		return err
	}
	for _, c := range s.Chunks() {
		who := c.Origin().Agent
		if who == "" {
			who = string(c.Kind())
		}
		fmt.Fprintf(w, "%-8s %s\n", who, c.Text())
	}
	return nil
}
