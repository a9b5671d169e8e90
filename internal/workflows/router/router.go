// Package router holds the two built-in workflows that put other workflows to
// work: "auto" lets a model choose, by their descriptions, among the workflows
// that the fleet offers, and "fanout" runs several side by side and merges what
// they come to.
//
// Both are ordinary workflows. What they choose runs by name, as a branch, on
// any node that offers it; what they decided is in their journals, so a router
// that dies goes on elsewhere without asking a model again. They hold nothing
// while branches run, and know nothing of workflows that no task asks for:
// what is on offer is read from the registry when a choice is due.
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

// Offers returns the workflows on offer, of all pools. What was put on offer a moment
// ago may be missing, but for the workflows that are named.
type Offers func(ctx context.Context, named ...string) ([]messages.Workflow, error)

// Registrations offer both workflows. model is asked where a task names none;
// "" is the node's own.
func Registrations(offers Offers) []flow.Registration {
	return []flow.Registration{autoRegistration(offers), fanOutRegistration(offers)}
}

// maxPrompt bounds the prompts in inputs, in bytes.
const maxPrompt = 256 << 10

// refuse says what is wrong with an input.
func refuse(workflow, field, problem, remedy string) error {
	return &strict.Error{Message: workflow + " input", Field: field, Problem: problem, Remedy: remedy}
}

// start adds what the user says to a session. A session that holds nothing to
// work on is refused.
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
		return fmt.Errorf("%w: %w", refuse(workflow, field, fmt.Sprintf("%d bytes, at most %d are taken", len(text), maxPrompt), "put what is large into a workspace"), session.ErrTooLarge)
	}
	return nil
}

// notOffered is the error of workflows that no node offers.
func notOffered(workflow string, names []string) error {
	return fmt.Errorf("%s: no node offers the workflow %s; `rath cluster nodes show NODE` tells what a node offers; start one that has it: %w",
		workflow, strings.Join(names, ", "), session.ErrNotFound)
}

// failed names the workflow that an error comes from, and leaves errors alone
// that stop the execution.
func failed(workflow, name string, err error) error {
	if err == nil || run.IsControl(err) || errors.Is(err, run.ErrDeadline) {
		return err
	}
	return fmt.Errorf("%s: workflow %s: %w", workflow, name, err)
}
