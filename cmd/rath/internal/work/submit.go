package work

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
)

// Submit is the command "submit".
func Submit(a *app.App) *cobra.Command {
	var f taskFlags
	var fan fanOutFlags
	var place placeFlags
	var wait, git bool
	var deadline time.Duration
	var workspace, dir, tasks string
	var skills skillsFlag
	cmd := &cobra.Command{
		Use:   "submit WORKFLOW",
		Short: "Submit a task and print the id of its run",
		Long: `Stores a task, then prints only the id of its run. A node takes the task: the
node of "rath dev", or one of a cluster. Without a node the task waits in the
store until "rath dev", "rath run" or "rath resume" starts one there.

Submitting the same task with the same --id again is harmless: it is one run.
Another task with this id is a conflict.

--tasks submits a file with a JSON task per line, such as
  {"id":"monday","input":"tides"}
A task without an id gets one. The ids are printed in the order of the lines.
Wrong lines are skipped, and the first 20 of them named. Submitting the same
file again submits only missing tasks, if the lines have ids.

With --wait the exit code is the outcome. If the run needs a decision
(needs_review), the command ends with 7. For a question it prints the command to
answer, and keeps waiting.`,
		Example: `  rath submit agent -m "say hello"
  rath submit agent -C . -m "fix the tests"
  rath submit review -m tides --id monday --wait
  rath submit review --tasks tasks.jsonl
  rath submit agent -m "and now in French" --session greetings
  rath submit fanout -m "a slogan" --branch 'try*3' --merge best --wait`,
		Args: app.Exactly(1, "the name of a workflow"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if tasks != "" {
				if err := ownFlags(cmd); err != nil {
					return app.Usage(cmd, err)
				}
				return submitMany(cmd.Context(), a, args[0], tasks)
			}
			t, err := task(a, cmd, &f)
			if err != nil {
				return err
			}
			images, err := f.agent(a, cmd, args[0], &t)
			if err != nil {
				return err
			}
			if err := skills.check(cmd); err != nil {
				return err
			}
			branches, err := fan.input(cmd, args[0], &t)
			if err != nil {
				return err
			}
			if t.Sandbox, _, err = place.place(); err != nil {
				return err
			}
			if t.Workspace = workspace; workspace != "" && dir != "" {
				return app.Usage(cmd, errors.New("give the files with -C or with --workspace, not both"))
			}
			from, err := historyOf(cmd, dir, git)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("deadline") && deadline <= 0 {
				return app.Usage(cmd, errors.New("--deadline is a positive duration, such as 10m"))
			}
			if deadline > 0 {
				t.Deadline = time.Now().Add(deadline)
			}
			return submit(cmd.Context(), a, args[0], t, submission{branches, images, dir, from, skills, cmd.Flags().Changed("id"), wait})
		},
	}
	f.add(cmd)
	fan.add(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end and print the result")
	cmd.Flags().DurationVar(&deadline, "deadline", 0, "time out after this long, such as 10m")
	cmd.Flags().StringVar(&tasks, "tasks", "", "submit the tasks of this `file`, one per line as JSON; - is standard input")
	cmd.Flags().StringVarP(&dir, "chdir", "C", "", "start with a copy of this directory")
	cmd.Flags().BoolVar(&git, "git", true, gitUsage)
	skills.add(cmd.Flags())
	place.add(cmd.Flags(), "let commands reach this host, or change this protected path")
	cmd.Flags().StringVar(&workspace, "workspace", "", "head of the files to start with, 64 hexadecimal digits")
	return cmd
}

// submission holds the flags of submit beside the task.
type submission struct {
	branches []string // workflows that the task would run as well
	images   [][]byte // images of the task
	dir      string   // its initial files, "" for none
	history  history
	skills   skillsFlag
	named    bool // the id was set by a flag
	wait     bool
}

// submit stores a task.
func submit(ctx context.Context, a *app.App, workflow string, t messages.Task, o submission) (err error) {
	s, err := a.Open(ctx, &node.Options{Idle: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	own := s.Own()
	if o.wait && own {
		return app.Fail(app.ExitUsage, "submit --wait: no node runs over %s that could take the task; start %q, or use %q",
			a.Config.Store.Value, a.Hint("dev"), a.Hint("run"))
	}
	if own {
		if err := s.Offered(ctx, workflow); err != nil {
			return err
		}
	}
	if err := s.OffersAll(ctx, o.branches); err != nil {
		return err
	}
	if t.Session, err = reference.Continued(ctx, a, s, t); err != nil {
		return err
	}
	if t.ForkOf, err = reference.Origin(ctx, a, s, t); err != nil {
		return err
	}
	if o.dir != "" {
		head, err := upload(ctx, a, s, o.dir, o.history)
		if err != nil {
			return err
		}
		t.Workspace = head.String()
	}
	if err := storeImages(ctx, s, o.images); err != nil {
		return err
	}
	if err := o.skills.layIn(ctx, a, s, &t); err != nil {
		return err
	}
	if o.wait {
		return submitAndWait(ctx, a, s, workflow, t)
	}
	there, err := foresee(ctx, s, workflow, t, o.named)
	if err != nil {
		return err
	}
	if there {
		a.Remark("run %s exists already: the same task has no effect", t.ID)
	} else {
		_, err = s.Submit(ctx, workflow, t)
	}
	if err != nil {
		return err
	}
	if done, err := app.EmitOne(a, app.Submitted{Run: t.ID}); done {
		return err
	}
	a.Out.Println(t.ID)
	switch {
	case own:
		a.Remark("no node runs here: the task waits for %q or %q", a.Hint("dev"), a.Hint("resume", string(t.ID)))
	case !there && s.Deserted(ctx, workflow):
		a.Remark("no node that lives offers workflow %s: the task waits for one", workflow)
	}
	return nil
}

// foresee returns the error of a task that a node would reject: otherwise only
// subscribers of the run's events would see it. It reports whether the same task was
// submitted under the named id. Credentials that may submit need not be able to ask, so
// only answers count.
func foresee(ctx context.Context, s *app.System, workflow string, t messages.Task, named bool) (there bool, err error) {
	asking, cancel := context.WithTimeout(ctx, app.AskTimeout)
	defer cancel()
	if err := s.Offered(asking, workflow); app.CodeOf(err) == app.ExitNotFound {
		return false, err
	}
	if !named {
		return false, nil
	}
	known, err := s.Known(asking, workflow, []messages.Task{t})
	switch {
	case err != nil:
		return false, ctx.Err()
	case errors.Is(known[0], client.ErrSameTask):
		return true, nil
	}
	return false, known[0]
}

// submitAndWait stores a task and prints the outcome of its run.
func submitAndWait(ctx context.Context, a *app.App, s *app.System, workflow string, t messages.Task) error {
	follower, err := s.Start(ctx, workflow, t)
	if err != nil {
		return err
	}
	seen, err := follow.Await(ctx, s, follower, t.ID, func(r messages.Record) { follow.Person(a, r) }, func(r messages.Record) { held(a, r) })
	if errors.Is(err, app.ErrInterrupted) {
		a.Err.Println("the run continues; follow it with\n  " + a.Hint("show", string(t.ID), "--steps", "-f"))
		return app.Silent(app.ExitInterrupted)
	}
	if err != nil {
		return err
	}
	return finish(ctx, a, s, t.ID, seen, blob.Digest{}, &runOptions{})
}
