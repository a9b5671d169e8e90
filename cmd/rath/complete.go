package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// completeWithin bounds how long a shell waits for completions. It is a variable
// because tests wait longer.
var completeWithin = 300 * time.Millisecond

// completeMost bounds the runs that are read, the newest ones.
const completeMost = 100

// candidates returns the words that may follow, each with a description.
type candidates func(ctx context.Context, s *app.System) ([]cobra.Completion, error)

// completed are the arguments that shells complete, by command.
var completed = map[string]struct {
	from candidates
	most int // arguments
}{
	"answer": {runNames, 1}, "apply": {runNames, 1}, "cancel": {runNames, 1}, "resume": {runNames, 1}, "session message": {sessionNames, 1},
	"session replay": {runNames, 1}, "session rerun": {runNames, 1}, "session rewind": {sessionNames, 1}, "session fork": {sessionNames, 1},
	"session merge": {sessionNames, 2}, "workspace ls": {sessionNames, 1}, "workspace get": {sessionNames, 1}, "workspace merge": {sessionNames, 64}, "show": {sessionNames, 1}, "why": {sessionNames, 1}, "diff": {sessionNames, 2}, "export": {sessionNames, 1},
	"verify": {runNames, 1}, "cluster rebudget": {runNames, 1}, "cluster tail": {sessionNames, 1}, "cluster quarantine": {sessionNames, 1},
	"cluster release": {sessionNames, 1}, "run": {workflowNames, 1}, "submit": {workflowNames, 1}, "workflows show": {workflowNames, 1}, "cluster nodes show": {nodeNames, 1},
	"cluster nodes drain": {nodeNames, 1}, "memory ls": {memoryNames, 1}, "memory find": {memoryNames, 1}, "memory add": {memoryNames, 1},
	"memory read": {memoryNames, 1}, "memory forget": {memoryNames, 1}, "memory export": {memoryNames, 1},
}

// complete adds completions of arguments and flags for shells.
func complete(a *app.App, root *cobra.Command) {
	var kinds, states []string
	for _, k := range messages.Kinds() {
		kinds = append(kinds, string(k))
	}
	for _, st := range []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview, run.Succeeded, run.Failed, run.Cancelled, run.TimedOut} {
		states = append(states, string(st))
	}
	flags := map[string]cobra.CompletionFunc{
		"kind": fixed(kinds), "state": fixed(states), "workflow": asked(a, workflowNames, 0), "session": asked(a, sessionNames, 0),
		"fork-of": asked(a, sessionNames, 0), "format": fixed([]string{"text", "json", "jsonl"}), "color": fixed([]string{"auto", "always", "never"}),
		"level": fixed([]string{"fsync", "lazy"}),
	}
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		for name, f := range flags {
			if c.LocalFlags().Lookup(name) != nil {
				_ = c.RegisterFlagCompletionFunc(name, f) // the flag exists, and has no completion yet
			}
		}
		if of, ok := completed[strings.TrimPrefix(c.CommandPath(), root.Name()+" ")]; ok {
			c.ValidArgsFunction = asked(a, of.from, of.most)
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(root)
}

// fixed completes one of some words, or the last of several with commas between them.
func fixed(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		before, last := "", begun
		if i := strings.LastIndexByte(begun, ','); i >= 0 {
			before, last = begun[:i+1], begun[i+1:]
		}
		for _, w := range words {
			if strings.HasPrefix(w, last) {
				out = append(out, before+w)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// asked completes words from the system, for up to most arguments; 0 is for a flag. It
// completes nothing if the system does not answer in time.
func asked(a *app.App, from candidates, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		found := make(chan []cobra.Completion, 1)
		go func() { // ends with the process if opening a store takes longer
			words, err := ask(ctx, a, cmd, from)
			if err != nil {
				words = nil
			}
			found <- words
		}()
		var out []cobra.Completion
		select {
		case words := <-found:
			for _, w := range words {
				if strings.HasPrefix(w, begun) {
					out = append(out, w)
				}
			}
		case <-ctx.Done():
		}
		if len(out) == 0 { // the word may also be a file
			return nil, cobra.ShellCompDirectiveDefault
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// ask reads the configuration with the flags of the line, and asks the system.
func ask(ctx context.Context, a *app.App, cmd *cobra.Command, from candidates) (words []cobra.Completion, err error) {
	if err := a.Prepare(cmd); err != nil {
		return nil, err
	}
	s, err := a.OpenThere(ctx, &node.Options{Idle: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return from(ctx, s)
}

// runNames are ids of runs, the newest first.
func runNames(ctx context.Context, s *app.System) ([]cobra.Completion, error) {
	runs, err := s.Runs.List(ctx, &client.RunsOptions{Limit: completeMost})
	words := []cobra.Completion{messages.Last}
	for i := range runs {
		r := &runs[i]
		words = append(words, cobra.CompletionWithDesc(string(r.Run), strings.TrimSpace(r.Workflow+" "+string(r.State))))
	}
	return words, err
}

// sessionNames are ids of runs and of their sessions.
func sessionNames(ctx context.Context, s *app.System) ([]cobra.Completion, error) {
	runs, err := s.Runs.List(ctx, &client.RunsOptions{Limit: completeMost})
	words := []cobra.Completion{messages.Last}
	seen := map[session.ID]bool{"": true}
	short := view.ShortIDs(view.RunIDs(runs))
	for i := range runs {
		r := &runs[i]
		words = append(words, cobra.CompletionWithDesc(string(r.Run), strings.TrimSpace(r.Workflow+" "+string(r.State))))
		seen[session.ID(r.Run)] = true // a branch's run has the id of its session
		if !seen[r.Session] {
			seen[r.Session] = true
			words = append(words, cobra.CompletionWithDesc(string(r.Session), "session of run "+short(r.Run)))
		}
	}
	return words, err
}

func workflowNames(ctx context.Context, s *app.System) ([]cobra.Completion, error) {
	all, err := s.Workflows(ctx)
	var words []cobra.Completion
	for _, w := range all {
		words = append(words, cobra.CompletionWithDesc(w.Name, w.Description))
	}
	return words, err
}

func nodeNames(ctx context.Context, s *app.System) ([]cobra.Completion, error) {
	all, err := s.Fleet.Nodes(ctx)
	var words []cobra.Completion
	for i := range all {
		words = append(words, all[i].Name)
	}
	return words, err
}

func memoryNames(ctx context.Context, s *app.System) ([]cobra.Completion, error) {
	return s.Memory.List(ctx)
}
