package flow_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// An agent asks the model, runs the tools that it calls and asks again, until the
// model answers without a call.
func ExampleAgent() {
	script, err := scripted.Parse("model", []byte("-- say --\nresult: weather\n\nIt is sunny in Rome.\n-- call --\nuser: weather\ncall: weather {\"city\":\"Rome\"}\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := scripted.New(script, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	type place struct {
		City string `json:"city"`
	}
	weather := tool.Func("weather", "Current weather of a city.", func(_ context.Context, in place) (string, error) {
		return in.City + ": sunny", nil
	}, &tool.FuncOptions{Effect: tool.ReadOnly})
	agent := &flow.Agent{Name: "forecaster", Prompt: "Answer in one line.", Tools: []tool.Tool{weather}}
	s, err := (&inprocess.Runner{Models: model}).Run(context.Background(), agent, session.New(session.UserText("What is the weather in Rome?")))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range s.Chunks() {
		fmt.Println(c.Kind())
	}
	fmt.Println(s.Text())
	// Output:
	// user
	// assistant
	// tool_result
	// assistant
	// It is sunny in Rome.
}

// A branch that fails is rejected with a reason and leaves no trace in the session; the
// next one becomes the session.
func ExampleFork() {
	work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		for _, idea := range []string{"a rough one", "a good one"} {
			try, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			try = try.With(session.UserText(idea))
			if idea == "a good one" {
				return flow.Adopt(ctx, s, try, "it holds")
			}
			if err := flow.Reject(ctx, try, "it does not hold"); err != nil {
				return s, err
			}
		}
		return s, nil
	})
	s, err := new(inprocess.Runner).Run(context.Background(), work, session.New(session.UserText("go")))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range s.Chunks() {
		fmt.Println(c.Text())
	}
	// Output:
	// go
	// a good one
}

// A recorded Do is not repeated when Forward runs again, here because the run waited for
// a value from outside.
func ExampleDo() {
	r := new(inprocess.Runner)
	r.Answer = func(context.Context, run.Question) (any, error) { return 7, nil }
	forward, charged := 0, 0
	work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		forward++
		receipt, err := flow.Do(ctx, "charge", func(context.Context) (string, error) {
			charged++
			return "receipt 31", nil
		}, tool.NonIdempotent)
		if err != nil {
			return s, err
		}
		stars, err := flow.Await[int](ctx, "stars", &flow.AwaitOptions{Title: "How was it?"})
		if err != nil {
			return s, err
		}
		return s.With(session.UserText(fmt.Sprintf("%s, %d stars", receipt, stars))), nil
	})
	s, err := r.Run(context.Background(), work, session.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	last, _ := s.Last(session.User)
	fmt.Println(last.Text())
	fmt.Printf("Forward ran %d times, charged %d time\n", forward, charged)
	// Output:
	// receipt 31, 7 stars
	// Forward ran 2 times, charged 1 time
}

// A run finds the note of an earlier run by keyword.
func ExampleRemember() {
	r := &inprocess.Runner{} // keeps notes as long as it lives
	learn := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Remember(ctx, "team", "lessons", "When slug joins words, skip the empty ones.")
		return s, err
	})
	use := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		hits, err := flow.Recall(ctx, "team", "joins of words", 1)
		if err != nil {
			return s, err
		}
		for _, h := range hits {
			s = s.With(session.UserText("Remember: " + h.Snippet))
		}
		return s, nil
	})
	ctx := context.Background()
	if _, err := r.Run(ctx, learn, session.New()); err != nil {
		fmt.Println(err)
		return
	}
	s, err := r.Run(ctx, use, session.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	last, _ := s.Last(session.User)
	fmt.Println(last.Text())
	// Output:
	// Remember: When slug joins words, skip the empty ones.
}

// A fan-out runs branches of a session concurrently; the merge takes the additions of
// each.
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
	s, err := new(inprocess.Runner).Run(context.Background(), work, session.New(session.UserText("go")))
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

// An agent calls another one as a tool. The other one works in a session of its own, and
// its answer is the result of the call.
func ExampleWorkflowTool() {
	script, err := scripted.Parse("model", []byte("-- reads --\nsystem: You read.\ntext: page 12\n-- tells --\ntool: page\ntext: It is on page 12.\n"+
		"-- asks --\ncall: reader {\"input\":\"Where is the index?\"}\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := scripted.New(script, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	reader := flow.WorkflowTool("reader", "Reads the book.", &flow.Agent{Name: "reader", Prompt: "You read."})
	lead := &flow.Agent{Name: "lead", Prompt: "You answer.", Tools: []tool.Tool{reader}}
	s, err := (&inprocess.Runner{Models: model}).Run(context.Background(), lead, session.New(session.UserText("Find the index.")))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range s.Chunks() {
		if c.Text() != "" {
			fmt.Printf("%s: %s\n", c.Kind(), c.Text())
		}
	}
	// Output:
	// user: Find the index.
	// tool_result: "page 12"
	// assistant: It is on page 12.
}

// A model chooses the workflow that continues a session. It gets the names and the
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
	s, err := (&inprocess.Runner{Models: model}).Run(context.Background(), work, session.New(session.UserText("What is this line?")))
	if err != nil {
		fmt.Println(err)
		return
	}
	last, _ := s.Last(session.User)
	fmt.Println(last.Text())
	// Output:
	// explained
}

// A run that waits for approval holds no resources. Here the answer comes from the same
// process; with nodes it comes by `rath answer`.
func ExampleApprove() {
	r := new(inprocess.Runner)
	r.Answer = func(_ context.Context, q run.Question) (any, error) {
		fmt.Println("asked:", q.Title)
		return flow.Approval{Approved: true, By: "ana"}, nil
	}
	work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		a, err := flow.Approve(ctx, "Publish?", &flow.AwaitOptions{Timeout: 7 * 24 * time.Hour})
		if err != nil {
			return s, err
		}
		return s.With(session.UserText(fmt.Sprintf("approved by %s: %v", a.By, a.Approved))), nil
	})
	s, err := r.Run(context.Background(), work, session.New(session.UserText("go")))
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
