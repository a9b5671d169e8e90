package lineage_test

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/lineage"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// exampleLog holds a session that was asked something.
func exampleLog() (*session.MemoryLog, session.Key, error) {
	log, k := &session.MemoryLog{}, session.Key{Tenant: "default", ID: "s1"}
	_, err := run.Direct(log, nil).Claim(context.Background(), run.Claim{
		Session: k, Home: k, Run: "run-1", Task: &run.Task{ID: "run-1", Workflow: "fix", Session: k},
		Open: session.Opening{Kind: session.OpenLeaf}, Events: []session.Event{session.ChunkEvent(session.UserText("mend slug.sh"))},
	})
	return log, k, err
}

// Each commit becomes records that a plain subscriber can read.
func ExampleDerive() {
	log, k, err := exampleLog()
	if err != nil {
		fmt.Println(err)
		return
	}
	for e, err := range log.Read(context.Background(), k, session.Position{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		records, err := lineage.Derive(e)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, r := range records {
			fmt.Println(r.TailSubject(), "-", r.Summary)
		}
	}
	// Output:
	// rath.tail.default.s1.opened.s1 - session opens
	// rath.tail.default.s1.chunk.s1 - user asks "mend slug.sh"
	// rath.tail.default.s1.submitted.s1 - run run-1 of fix submitted
	// rath.tail.default.s1.claimed.s1 - run starts
}

// A graph answers questions about the records it was fed, in any order.
func ExampleGraph() {
	log, k, err := exampleLog()
	if err != nil {
		fmt.Println(err)
		return
	}
	g := lineage.NewGraph()
	for e, err := range log.Read(context.Background(), k, session.Position{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		records, err := lineage.Derive(e)
		if err != nil {
			fmt.Println(err)
			return
		}
		g.Add(records...)
	}
	r, err := g.LastRun("default")
	fmt.Println(r.ID, "of", r.Workflow, "is", r.State, err)
	tree, err := g.Tree(k, nil)
	fmt.Print(tree)
	fmt.Println(g.Check("default"), err)
	// Output:
	// run-1 of fix is running <nil>
	// s1  1 user        asks "mend slug.sh"
	// [] <nil>
}
