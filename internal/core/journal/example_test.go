package journal_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
)

// A run claims its session, records its steps and ends. When it is claimed again after
// a crash, its journal holds the recorded steps.
func ExampleNewStore() {
	ctx := context.Background()
	log := &commitlog.Memory{}
	k := session.Key{Tenant: session.DefaultTenant, ID: "s1"}
	clock := func() time.Time { return time.UnixMilli(1_700_000_000_000) }

	store := journal.NewStore(log, &journal.StoreOptions{Incarnation: "node-1", Now: clock})
	g, err := store.Claim(ctx, journal.Claim{
		Session: k, Home: k, Run: "r1", Task: &journal.Task{ID: "r1", Workflow: "hello", Session: k},
		Open:   session.Opening{Kind: session.OpenLeaf},
		Events: []session.Event{session.ChunkEvent(session.UserText("Say hello."))},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	asked := journal.StepRequest{Path: "0", Kind: journal.StepModel, Name: "writer", Input: "digest"}
	decision, _, _ := g.Journal.Next(asked)
	fmt.Println("attempt", g.Attempt, "executes:", decision == journal.Execute)

	done, err := journal.NewEvent(journal.KindStepCompleted, journal.StepCompleted{Attempt: 1, Input: "digest", Kind: journal.StepModel, Name: "writer", Path: "0", Row: true, Run: "r1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = store.Commit(ctx, journal.Batch{
		Session: k, Run: "r1", Attempt: 1, Path: "0", Base: g.Session.Ref().Version,
		Events: []session.Event{session.ChunkEvent(session.AssistantText("Hello.")), done},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The node has crashed; another one takes over.
	other := journal.NewStore(log, &journal.StoreOptions{Incarnation: "node-2", Now: clock})
	g, err = other.Claim(ctx, journal.Claim{Session: k, Home: k, Run: "r1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	decision, step, _ := g.Journal.Next(asked)
	fmt.Println("attempt", g.Attempt, "replays:", decision == journal.Replay, step.Session.Text())
	// Output:
	// attempt 1 executes: true
	// attempt 2 replays: true Hello.
}
