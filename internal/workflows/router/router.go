// Package router holds the two built-in workflows that run other workflows: "auto" lets a
// model choose among the fleet's workflows by their descriptions, and "fanout" runs several
// concurrently and merges their results.
//
// Both are ordinary workflows. The chosen workflows run by name, as branches, on any node
// that offers them. The journal records the decisions, so a router that crashes resumes
// elsewhere without calling a model again. Routers hold no resources while branches run.
// They read the offered workflows from the registry when a choice is due.
package router

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The names of the workflows.
const (
	Auto   = "auto"
	FanOut = "fanout"
)

// Offers returns the offered workflows of all pools. A workflow that was offered a moment
// ago may be missing, unless named contains it.
type Offers func(ctx context.Context, named ...string) ([]messages.Workflow, error)

// Registrations returns the registrations of both workflows, which choose among the
// workflows of offers.
func Registrations(offers Offers) []flow.Registration {
	return []flow.Registration{autoRegistration(offers), fanOutRegistration(offers)}
}

// maxPrompt bounds the prompts in inputs, in bytes.
const maxPrompt = 256 << 10

// refuse returns the error of an invalid input.
func refuse(workflow, field, problem, remedy string) error {
	return &strict.Error{Message: workflow + " input", Field: field, Problem: problem, Remedy: remedy}
}

// start adds the user's message to a session. It returns an error for a session without a
// request.
func start(workflow, prompt string, s session.Session) (session.Session, error) {
	if strings.TrimSpace(prompt) != "" {
		return s.With(session.UserText(prompt)), nil
	}
	if s.Len() == 0 {
		return s, refuse(workflow, "prompt", "it is missing, and the session is empty", "say what to do")
	}
	return s, nil
}

// checkPrompt bounds a prompt of an input.
func checkPrompt(workflow, field, text string) error {
	if len(text) > maxPrompt {
		return fmt.Errorf("%w: %w", refuse(workflow, field, fmt.Sprintf("%d bytes, at most %d are taken", len(text), maxPrompt), "put large data into a workspace"), session.ErrTooLarge)
	}
	return nil
}

// notOffered is the error of workflows that no node offers.
func notOffered(workflow string, names []string) error {
	return fmt.Errorf("%s: no node offers the workflow %s; `rath cluster nodes show NODE` lists a node's workflows; start a node with it: %w",
		workflow, strings.Join(names, ", "), session.ErrNotFound)
}

// failed adds the name of the workflow to its error. It returns errors that stop the
// execution unchanged.
func failed(workflow, name string, err error) error {
	if err == nil || run.IsControl(err) || errors.Is(err, run.ErrDeadline) {
		return err
	}
	return fmt.Errorf("%s: workflow %s: %w", workflow, name, err)
}
