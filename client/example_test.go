package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// answer is a workflow that has a model answer the task's input.
func answer(s flow.Info) (flow.Workflow, error) {
	var text string
	if err := json.Unmarshal(s.Input, &text); err != nil {
		return nil, fmt.Errorf("the input is not text: %w", err)
	}
	return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
		return (&flow.Agent{Name: "answerer"}).Forward(ctx, v.With(session.UserText(text)))
	}), nil
}

// publish is a workflow that requires an approval first.
func publish(ctx context.Context, s session.Session) (session.Session, error) {
	a, err := flow.Approve(ctx, "Publish the notes?", nil)
	if err != nil {
		return s, err
	}
	if !a.Approved {
		return s, errors.New("not published: " + a.Reason)
	}
	return s.With(session.UserText("published, says " + a.By)), nil
}

// startNode runs a node with a server of its own for the examples, and returns the
// server's address.
func startNode(ctx context.Context) (server string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "rath-example-")
	if err != nil {
		return "", nil, err
	}
	model, err := scripted.New(scripted.Echo(), nil)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	n, err := node.Start(ctx, &node.Options{Store: dir, NATS: node.NATS{Port: -1}, Models: node.Models{Source: model}, Workflows: []flow.Registration{
		{Name: "answer", Revision: "1", NewFor: answer},
		{Name: "publish", Revision: "1", New: func() flow.Workflow { return flow.Func(publish) }},
	}})
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return n.URL(), func() {
		if err := errors.Join(n.Close(), os.RemoveAll(dir)); err != nil {
			fmt.Println(err)
		}
	}, nil
}

// Submit a task and wait for its result; read the session that it made.
func Example() {
	ctx := context.Background()
	server, stop, err := startNode(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	c, err := client.Connect(ctx, server, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	id, err := c.Submit(ctx, "answer", messages.Task{Session: "talk", Input: json.RawMessage(`"Is anybody there?"`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := c.Wait(ctx, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.State)
	talk, err := c.Sessions.Get(ctx, "talk")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, chunk := range talk.Chunks {
		fmt.Printf("%s: %s\n", chunk.Kind, chunk.Text)
	}
	// Output:
	// succeeded
	// user: Is anybody there?
	// assistant: echo: Is anybody there?
}

// Do shows the progress while it waits: pieces of the model's output as they arrive,
// and the commits.
func ExampleClient_Do() {
	ctx := context.Background()
	server, stop, err := startNode(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	c, err := client.Connect(ctx, server, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	text := ""
	task := messages.Task{ID: "greeting", Input: json.RawMessage(`"Hello."`)}
	result, err := c.Do(ctx, "answer", task, func(u client.Update) {
		if u.Delta != nil {
			text += u.Delta.Text
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(text == result.Output, result.Output)
	// The same id with another input is rejected.
	task.Input = json.RawMessage(`"Goodbye."`)
	_, err = c.Do(ctx, "answer", task, nil)
	fmt.Println(errors.Is(err, run.ErrKeyReused))
	// Output:
	// true echo: Hello.
	// true
}

// Tail yields lineage from the beginning, or from where a reader stopped.
func ExampleLineage_Tail() {
	ctx := context.Background()
	server, stop, err := startNode(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	c, err := client.Connect(ctx, server, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	if _, err := c.Submit(ctx, "answer", messages.Task{ID: "hello", Input: json.RawMessage(`"Hello."`)}); err != nil {
		fmt.Println(err)
		return
	}
	for r, err := range c.Lineage.Tail(ctx, "", "") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.Record.Summary)
		if r.Record.Kind == "ended" {
			break
		}
	}
	// Output:
	// session opens
	// run hello of answer submitted
	// run starts
	// user asks "Hello."
	// answerer says "echo: Hello."
	// run succeeded, 1 model call, 5 tokens
}

// A run that waits for an operator uses no resources. Questions.List returns the open
// questions.
func ExampleQuestions_Approve() {
	ctx := context.Background()
	server, stop, err := startNode(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	c, err := client.Connect(ctx, server, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	id, err := c.Submit(ctx, "publish", messages.Task{ID: "notes", Session: "notes"})
	if err != nil {
		fmt.Println(err)
		return
	}
	var asked []client.Question
	for len(asked) == 0 {
		if asked, err = c.Questions.List(ctx); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(asked[0].Run, asked[0].Kind, asked[0].Title)
	if err := c.Questions.Approve(ctx, id, messages.Control{By: "ann", Reason: "read them"}); err != nil {
		fmt.Println(err)
		return
	}
	result, err := c.Wait(ctx, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.State)
	// It cannot be decided twice.
	err = c.Questions.Reject(ctx, id, messages.Control{Step: asked[0].Step, Reason: "too late"})
	fmt.Println(errors.Is(err, run.ErrState))
	// Output:
	// notes approval Publish the notes?
	// succeeded
	// true
}
