package flow_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// A fan-out runs branches of a session at the same time; the merge takes what
// each of them added.
func ExampleFanOut() {
	answer := func(text string) flow.Workflow {
		return flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
			return s.With(session.UserText(text)), nil
		})
	}
	work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{
			{Name: "left", Workflow: answer("from the left")},
			{Name: "right", Workflow: answer("from the right")},
		}, nil)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
	s, err := new(flow.Runtime).Run(context.Background(), work, session.New(session.UserText("go")))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range s.Chunks() {
		fmt.Println(c.Text())
	}
	// Output:
	// go
	// from the left
	// from the right
}

// A model chooses who goes on with a session. It sees the names and the
// descriptions.
func ExampleSelector() {
	script, err := scripted.Parse("model", []byte("-- choose --\nuser: \"1. explain: Explains a bill.\"\n\nnumber 1 it is\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := scripted.New(script, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer := func(text string) flow.Workflow {
		return flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
			return s.With(session.UserText(text)), nil
		})
	}
	work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		next, err := (&flow.Selector{Name: "router"}).Select(ctx, s,
			flow.Described("refund", "Pays money back.", answer("paid back")),
			flow.Described("explain", "Explains a bill.", answer("explained")),
		)
		if err != nil {
			return s, err
		}
		return next.Forward(ctx, s)
	})
	s, err := (&flow.Runtime{Models: model}).Run(context.Background(), work, session.New(session.UserText("What is this line?")))
	if err != nil {
		fmt.Println(err)
		return
	}
	last, _ := s.Last(session.User)
	fmt.Println(last.Text())
	// Output:
	// explained
}

// A run that asks a person holds nothing while it waits. Here the answer comes
// from the same process; with nodes it comes by `rath approve`.
func ExampleApprove() {
	rt := new(flow.Runtime)
	rt.OnWait = func(ctx context.Context, k session.Key, w run.Suspended) {
		question := w.For[0]
		fmt.Println("asked:", question.Title)
		answer := run.Received{Kind: run.Approve, Path: question.Path, By: "ana"}
		if err := rt.Signal(ctx, run.Signal{To: k, Run: w.Run, Received: &answer}); err != nil {
			fmt.Println(err)
		}
	}
	work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		a, err := flow.Approve(ctx, flow.Question{Title: "Publish?", Expires: 7 * 24 * time.Hour})
		if err != nil {
			return s, err
		}
		return s.With(session.UserText(fmt.Sprintf("approved by %s: %v", a.By, a.Approved))), nil
	})
	s, err := rt.Run(context.Background(), work, session.New(session.UserText("go")))
	if err != nil {
		fmt.Println(err)
		return
	}
	last, _ := s.Last(session.User)
	fmt.Println(last.Text())
	// Output:
	// asked: Publish?
	// approved by ana: true
}
