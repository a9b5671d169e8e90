package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
)

func (a *app) submitCommand() *cobra.Command {
	var f taskFlags
	var fan fanOutFlags
	var wait bool
	var deadline time.Duration
	var workspace, dir string
	cmd := &cobra.Command{
		Use:   "submit WORKFLOW",
		Short: "Submit a task and print the id of its run",
		Long: `Stores a task and prints the run's id, nothing else, as soon as it is stored. A
node takes it: the one of "rath dev", or those of a cluster. Without one the
task waits in the store until "rath dev", "rath run" or "rath resume" starts
one there.

Submitting the same task under the same --id again is harmless: it is one run.

With --wait the exit code is the outcome. A run that stops for a person
(needs_review) ends the command with 7; one that asks something is waited for,
and the command that answers is printed once.`,
		Example: `  rath submit agent -m "say hello"
  rath submit agent -C . -m "fix the tests"
  rath submit review -m tides --id monday --wait
  rath submit agent -m "and now in French" --session greetings
  rath submit fanout -m "a slogan" --branch 'try*3' --merge best --wait`,
		Args: exactly(1, "the name of a workflow"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.task(cmd, &f)
			if err != nil {
				return err
			}
			branches, err := fan.input(cmd, args[0], &t)
			if err != nil {
				return err
			}
			if t.Workspace = workspace; workspace != "" && dir != "" {
				return usage(cmd, errors.New("give the files with -C or with --workspace, not both"))
			}
			if cmd.Flags().Changed("deadline") && deadline <= 0 {
				return usage(cmd, errors.New("--deadline is a positive duration, such as 10m"))
			}
			if deadline > 0 {
				t.Deadline = time.Now().Add(deadline)
			}
			return a.submit(cmd.Context(), args[0], t, submission{branches, dir, cmd.Flags().Changed("id"), wait})
		},
	}
	f.add(cmd)
	fan.add(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end and print the result")
	cmd.Flags().DurationVar(&deadline, "deadline", 0, "time out after this long, such as 10m")
	cmd.Flags().StringVarP(&dir, "chdir", "C", "", "start with a copy of this directory")
	cmd.Flags().StringVar(&workspace, "workspace", "", "head of the files to start with, 64 hexadecimal digits")
	return cmd
}

// submission is what submit is told beside the task.
type submission struct {
	branches []string // workflows that the task would run as well
	dir      string   // whose files it starts with, "" for none
	named    bool     // its id was given
	wait     bool
}

// beforehand bounds what is asked before a task is stored.
const beforehand = 3 * time.Second

// submit stores a task.
func (a *app) submit(ctx context.Context, workflow string, t messages.Task, o submission) (err error) {
	s, err := a.open(ctx, &node.Options{Idle: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	own := s.own()
	if o.wait && own {
		return fail(exitUsage, "submit --wait: no node runs over %s that could take the task; start %q, or use %q",
			a.config.Store.Value, a.invocation()+" dev", a.invocation()+" run")
	}
	if own {
		if err := s.offered(ctx, workflow); err != nil {
			return err
		}
	}
	if err := s.offersAll(ctx, o.branches); err != nil {
		return err
	}
	if t.Session, err = a.continued(ctx, s, t); err != nil {
		return err
	}
	if t.ForkOf, err = a.origin(ctx, s, t); err != nil {
		return err
	}
	if o.dir != "" {
		head, err := a.upload(ctx, s, "submit -C", o.dir)
		if err != nil {
			return err
		}
		t.Workspace = head.String()
	}
	if o.wait {
		return a.submitAndWait(ctx, s, workflow, t)
	}
	if !own {
		if err := a.foresee(ctx, s, workflow, t.ID, o.named); err != nil {
			return err
		}
	}
	if _, err := s.Submit(ctx, workflow, t); err != nil {
		return err
	}
	if done, err := emitOne(a, submitted{t.ID}); done {
		return err
	}
	a.out.Println(t.ID)
	if own {
		a.remark("no node runs here: the task waits for %q or %q", a.invocation()+" dev", a.hint("resume", string(t.ID)))
	}
	return nil
}

// foresee tells what a node would only tell those who listen: that it refuses the
// task. Who may submit need not be able to ask, so only answers count.
func (a *app) foresee(ctx context.Context, s *system, workflow string, id run.ID, named bool) error {
	ctx, cancel := context.WithTimeout(ctx, beforehand)
	defer cancel()
	if err := s.offered(ctx, workflow); codeOf(err) == exitNotFound {
		return err
	}
	if !named {
		return nil
	}
	if r, err := s.Run(ctx, id); err == nil && r.Workflow != "" {
		a.remark("run %s is there already: the same task changes nothing, another one is refused, see %q", id, a.hint("dlq", "ls"))
	}
	return nil
}

// submitAndWait stores a task and prints how its run ends.
func (a *app) submitAndWait(ctx context.Context, s *system, workflow string, t messages.Task) error {
	follower, err := s.Start(ctx, workflow, t)
	if err != nil {
		return err
	}
	seen, err := s.await(ctx, follower, t.ID, func(r lineage.Record) { a.person(r) }, func(r lineage.Record) { a.held(r) })
	if errors.Is(err, errInterrupted) {
		a.err.Println("the run goes on; follow it with\n  " + a.hint("trace", "-f", string(t.ID)))
		return silent(exitInterrupted)
	}
	if err != nil {
		return err
	}
	return a.finish(ctx, s, t.ID, seen, noHead, &runOptions{})
}

// offered reports a workflow that nobody has ever offered here. Its task would
// be refused by the next node.
func (s *system) offered(ctx context.Context, workflow string) error {
	all, err := s.Workflows(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, w := range all {
		if w.Name == workflow {
			return nil
		}
		names = append(names, w.Name)
	}
	return unknownWorkflow(workflow, s.where, names)
}

func unknownWorkflow(workflow, where string, names []string) error {
	return fail(exitNotFound, "unknown workflow %q: %s offers %s; workflows of your own are offered by your node, see \"init\"", workflow, where, view.Names(names))
}
