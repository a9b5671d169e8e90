package session_test

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/session"
)

func ExampleNew() {
	s := session.New(session.SystemText("Answer in one line."), session.UserText("Say hello."))
	for i, c := range s.Chunks() {
		fmt.Println(i, c.Kind(), c.Text())
	}
	fmt.Println(s.Len(), s.Unborn())
	// Output:
	// 0 system Answer in one line.
	// 1 user Say hello.
	// 2 true
}

// Values never change: a value that grows from another one is a new value.
func ExampleSession_With() {
	question := session.New(session.UserText("Which colour?"))
	red := question.With(session.AssistantText("Red."))
	blue := question.With(session.AssistantText("Blue."))
	fmt.Println(question.Len(), red.Text(), blue.Text())
	// Output: 1 Red. Blue.
}

// To sets the place of the following work; it opens no sandbox.
func ExampleSession_To() {
	s := session.New(session.UserText("List the files.")).To("local", "./project")
	fmt.Println(s.Placement().Backend, s.Placement().Spec)
	// Output: local ./project
}

// A log holds commits of events; folding them gives the value.
func ExampleApplyCommit() {
	var log commitlog.Memory
	ctx := context.Background()
	k := session.Key{Tenant: session.DefaultTenant, ID: "s1"}
	_, err := log.Append(ctx, commitlog.Position{}, commitlog.Commit{
		Key: k, Root: k.ID, Seq: 1, Epoch: 1, Events: []session.Event{
			session.OpenedEvent(session.Opening{Kind: session.OpenLeaf}),
			session.ChunkEvent(session.UserText("Say hello.")),
			session.ChunkEvent(session.AssistantText("Hello.")),
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := session.Open(k, k.ID)
	for e, err := range log.Read(ctx, k, commitlog.Position{}) {
		if err == nil {
			s, err = commitlog.ApplyCommit(s, e, nil)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(s.Ref(), s.Text())
	// Output: s1:2 Hello.
}
