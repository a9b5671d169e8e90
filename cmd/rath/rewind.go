package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// submitted is what commands print that submit a task.
type submitted struct {
	Run run.ID `json:"run"`
}

func (a *app) rewindCommand() *cobra.Command {
	var f taskFlags
	var workflow string
	cmd := &cobra.Command{
		Use:   "rewind SESSION:VERSION",
		Short: "Go back to an earlier version of a session, and go on from there",
		Long: `Makes a new session that starts as another one was at an earlier version, with
its files, and prints its id. With --workflow it goes on there: a task of the
workflow runs on the new session, and is followed. What came after that version
stays as it is, as evidence.

A session that an open run works on is refused: cancel the run first. Where no
node runs, this command is one while it lasts: what waits in the store goes on
meanwhile.`,
		Example: `  rath rewind 7f3a:4
  rath rewind @last:4 --workflow agent -m "try the other way"`,
		Args: exactly(1, "one session with a version, such as 7f3a:4"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if workflow == "" && (f.message != "" || f.file != "" || f.model != "" || len(f.tools) > 0) {
				return usage(cmd, errors.New("a task needs --workflow"))
			}
			t, err := a.task(cmd, &f)
			if err != nil {
				return err
			}
			return a.rewind(cmd.Context(), args[0], workflow, t)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&workflow, "workflow", "", "run a task of this workflow on the new session")
	fs.StringVarP(&f.message, "message", "m", "", "its input: JSON, or text")
	fs.StringVarP(&f.file, "file", "f", "", "read the input from a file; - is standard input")
	fs.StringVar(&f.model, "model", "", "model to use")
	fs.StringSliceVar(&f.tools, "tools", nil, "tools that the agent may use, separated by commas")
	fs.StringVar(&f.id, "id", "", "id of the run, its idempotency key (default drawn)")
	return cmd
}

func (a *app) rewind(ctx context.Context, name, workflow string, t messages.Task) (err error) {
	if !strings.Contains(name, ":") {
		return fail(exitUsage, "rewind %s: to which version? name it as %s:3", name, name)
	}
	s, err := a.openThere(ctx, &node.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	n, err := s.resolve(ctx, name)
	if err != nil {
		return err
	}
	after, err := s.newest(ctx)
	if err != nil {
		return err
	}
	branch := workflow == ""
	if branch {
		workflow = node.WorkflowFork
	}
	id, err := s.Rewind(ctx, n.String(), workflow, t)
	if err != nil {
		return err
	}
	if branch {
		r, err := s.Wait(ctx, id)
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			return err
		}
		if done, err := emitOne(a, made{r.Session, r.Version, []string{n.String()}}); done {
			return err
		}
		a.out.Println(r.Session)
		return nil
	}
	seen, err := s.watch(ctx, id, "", after, a.runWatching(ctx, s, string(n.session)))
	a.err.Note("")
	if errors.Is(err, errInterrupted) {
		return a.parked(s, id, &nodeFlags{})
	}
	if err != nil {
		return err
	}
	return a.finish(ctx, s, id, seen, noHead, &runOptions{})
}

// made is what commands print that make a session.
type made struct {
	Session session.ID      `json:"session"`
	Version session.Version `json:"version"`
	From    []string        `json:"from"`
}

func (a *app) mergeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "merge A B",
		Short: "Join two sessions into a new one",
		Long: `Makes a new session of the chunks of one and then those of another, with the
files of the first, and prints its id. Both stay as they are, and need not be
related. It is a task of the workflow "merge". Where no node runs, this command
is one while it lasts: what waits in the store goes on meanwhile.`,
		Example: `  rath merge 7f3a 91bc
  rath merge 7f3a:4 @last`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage(cmd, fmt.Errorf("merge takes two sessions, got %s", view.Counted(int64(len(args)), "argument")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.merge(cmd.Context(), args) },
	}
	return cmd
}

func (a *app) merge(ctx context.Context, names []string) (err error) {
	s, err := a.openThere(ctx, &node.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var in node.MergeInput
	for _, name := range names {
		n, err := s.resolve(ctx, name)
		if err != nil {
			return err
		}
		v, err := s.Session(ctx, n.String()) // at the version that there is now
		if err != nil {
			return err
		}
		in.Sessions = append(in.Sessions, fmt.Sprintf("%s:%d", v.Session, v.Version))
	}
	if err := in.Check(); err != nil {
		return &exitError{exitUsage, err}
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := s.Do(ctx, node.WorkflowMerge, messages.Task{ID: client.NewID(), Input: body}, nil)
	if err != nil {
		return err
	}
	if err := r.Err(); err != nil {
		return &exitError{stateCode(r.State), fmt.Errorf("merge %s and %s: %w", in.Sessions[0], in.Sessions[1], err)}
	}
	if done, err := emitOne(a, made{r.Session, r.Version, in.Sessions}); done {
		return err
	}
	a.out.Println(r.Session)
	return nil
}

func (a *app) replayCommand() *cobra.Command {
	var verify bool
	cmd := &cobra.Command{
		Use:   "replay RUN",
		Short: "Run the code of a run against what it recorded, and compare",
		Long: `Runs the code of a run's workflow once more, on a node that offers it, against
what the run recorded: models and tools are switched off, recorded steps return
what they returned before, and nothing is written. It prints the steps as the
code comes to them, branches of fan-outs too, and says where code and record
differ; then the exit code is 1. With --verify it prints only what differs. Of a
run that waits or runs the record is compared as far as it goes.

  =  recorded, and the code asks for the same
  >  the code comes to this next, where the record ends: it is open
  !  the code asks for something else there
  +  the code asks for a step that is not recorded
  -  recorded, and the code does not come to it`,
		Example: `  rath replay @last
  rath replay 7f3a --verify       before new code goes to open runs`,
		Args: exactly(1, "one run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error {
				r, err := s.runOf(ctx, args[0])
				if err != nil {
					return err
				}
				out, err := s.Replay(ctx, r.Run)
				if err != nil {
					return err
				}
				return a.replayed(&out, verify)
			})
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "print only what differs")
	return cmd
}

func (a *app) replayed(r *messages.Replay, verify bool) error {
	var err error
	if !r.Matches {
		err = silent(exitFailed)
	}
	if done, failed := emitOne(a, r); done {
		return errors.Join(failed, err)
	}
	verdict := view.WriteReplay(a.out, r, verify)
	if r.Truncated {
		a.remark("not all steps that match are shown")
	}
	a.out.Println(verdict)
	return err
}
