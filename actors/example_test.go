package actors_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// A node accepts a task, executes it and drains.
func ExampleSystem_Accept() {
	events := &commitlog.Memory{}
	values := journal.NewValues(events)
	offered := &engine.Registry{}
	err := offered.Register(flow.Registration{Name: "greet", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			name, err := flow.Do(ctx, "look up the name", func(context.Context) (string, error) { return "Ada", nil }, tool.NonIdempotent)
			if err != nil {
				return s, err
			}
			return s.With(session.AssistantText("Hello, " + name + ".")), nil
		})
	}})
	if err != nil {
		log.Fatal(err)
	}
	sys := actors.New(&actors.Options{
		Log: events, Values: values, Incarnation: "node-1",
		Runtime: &engine.Runtime{Values: values}, Workflows: offered,
	})
	ctx := context.Background()
	k := session.Key{Tenant: session.DefaultTenant, ID: "hello"}
	answer, err := sys.Accept(ctx, journal.Task{ID: "greeting-1", Workflow: "greet", Session: k})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := sys.Drain(ctx); err != nil { // lets the run end
		log.Fatal(err)
	}
	s, err := values.At(ctx, session.Ref{Key: k})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Text())
	// Output:
	// committed
	// Hello, Ada.
}

// A signal reaches a run wherever its session is held; the answer is the
// holder's, here that there is no such run.
func ExampleSystem_Signal() {
	events := &commitlog.Memory{}
	sys := actors.New(&actors.Options{Log: events, Incarnation: "node-1"})
	ctx := context.Background()
	k := session.Key{Tenant: session.DefaultTenant, ID: "hello"}

	cancel := journal.Signal{To: k, Run: "greeting-1", Cancel: &journal.CancelRequested{Reason: "not needed"}}
	fmt.Println(sys.Signal(ctx, cancel))

	if err := sys.Drain(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// journal: greeting-1 is not in the log of default/hello: run: unknown run
}

// An engine.Runtime writes through the store of a System. Run drains when its context
// ends.
func ExampleSystem_Store() {
	ctx, stop := context.WithCancel(context.Background())
	logged := &commitlog.Memory{}
	values := journal.NewValues(logged)
	sys := actors.New(&actors.Options{Log: logged, Values: values, Incarnation: "node-1"})
	ended := make(chan error, 1)
	go func() { ended <- sys.Run(ctx) }()

	rt := &inprocess.Runtime{Runtime: engine.Runtime{Store: sys.Store(), Values: values}}
	s, err := rt.Run(ctx, flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
		return s.With(session.AssistantText("done")), nil
	}), session.New(session.UserText("go")))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Text(), sys.Active())

	stop()
	fmt.Println(<-ended, sys.Active())
	// Output:
	// done 1
	// <nil> 0
}
