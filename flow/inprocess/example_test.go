package inprocess_test

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/session"
)

// A later run continues the session that a run returned.
func ExampleRunner() {
	echo, err := scripted.New(nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	r := &inprocess.Runner{Models: echo}
	agent := &flow.Agent{Name: "hello"}
	ctx := context.Background()
	s, err := r.Run(ctx, agent, session.New(session.UserText("Hello.")))
	if err == nil {
		s, err = r.Run(ctx, agent, s.With(session.UserText("And again.")))
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range s.Chunks() {
		fmt.Println(c.Text())
	}
	// Output:
	// Hello.
	// echo: Hello.
	// And again.
	// echo: And again.
}
