package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/session"
)

func TestMain(m *testing.M) { flowtest.Main(m) }

func Example() {
	parsed, err := scripted.Parse("model.txtar", script)
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := scripted.New(parsed, nil)
	if err == nil {
		err = review(context.Background(), os.Stdout, model)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// user     Review the change to login.go.
	// planner  Look at the password check.
	// safety   The password is compared byte by byte: use a constant-time comparison.
}

// TestSurvivesCrashes stops the run at every commit, of the branches too.
func TestSurvivesCrashes(t *testing.T) {
	flowtest.CrashEverywhere(t, func() flow.Workflow { return newReview() },
		session.New(session.UserText("Review the change to login.go.")), "model.txtar", nil)
}
