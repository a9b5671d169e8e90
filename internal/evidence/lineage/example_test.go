package lineage_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/session"
)

// exampleLog returns a log of a session with a question.
func exampleLog() (*commitlog.Memory, session.Key, error) {
	log, k := &commitlog.Memory{}, session.Key{Tenant: "default", ID: "s1"}
	_, err := journal.NewStore(log, nil).Claim(context.Background(), journal.Claim{
		Session: k, Home: k, Run: "run-1", Task: &journal.Task{ID: "run-1", Workflow: "fix", Session: k},
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
	for e, err := range log.Read(context.Background(), k, commitlog.Position{}) {
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
			fmt.Println(lineage.TailSubject(&r), "-", r.Summary)
		}
	}
	// Output:
	// rath.tail.default.s1.opened.s1 - session opens
	// rath.tail.default.s1.chunk.s1 - user asks "mend slug.sh"
	// rath.tail.default.s1.submitted.s1 - run run-1 of fix submitted
	// rath.tail.default.s1.claimed.s1 - run starts
}

// exampleGraph returns the graph of that log.
func exampleGraph() (*lineage.Graph, session.Key, error) {
	g := lineage.NewGraph()
	log, k, err := exampleLog()
	if err != nil {
		return g, k, err
	}
	for e, err := range log.Read(context.Background(), k, commitlog.Position{}) {
		if err != nil {
			return g, k, err
		}
		records, err := lineage.Derive(e)
		if err != nil {
			return g, k, err
		}
		g.Add(records...)
	}
	return g, k, nil
}

// A graph answers questions about the records it was fed, in any order.
func ExampleGraph() {
	g, k, err := exampleGraph()
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := g.Run("default", "run-1")
	fmt.Println(r.ID, "of", r.Workflow, "is", r.State, err)
	tree, err := g.Tree(k, nil)
	fmt.Print(tree, err)
	// Output:
	// run-1 of fix is running <nil>
	// s1  1 user        asks "mend slug.sh"
	// <nil>
}

// A selector selects runs by their actions and states.
func ExampleGraph_Select() {
	g, _, err := exampleGraph()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, where := range []string{"state=running and not tool=*", "older=1h or workflow=review", "state=runing"} {
		s, err := lineage.ParseSelector(where)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(s, "chooses", len(g.Select("default", s, time.Now().Add(time.Minute))))
	}
	// Output:
	// state=running and not tool=* chooses 1
	// older=1h or workflow=review chooses 0
	// lineage: selector: want a state: queued, running, waiting, needs_review, succeeded, failed, cancelled or timed_out, found "runing" at character 7
}

// Impact follows a row to every session and step that could see it.
func ExampleGraph_Impact() {
	g, k, err := exampleGraph()
	if err != nil {
		fmt.Println(err)
		return
	}
	i, err := g.Impact(k, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(i.Record.Summary)
	fmt.Println(len(i.Sessions), "session,", len(i.Steps), "steps")
	// Output:
	// user asks "mend slug.sh"
	// 1 session, 0 steps
}
