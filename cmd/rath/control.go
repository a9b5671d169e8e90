package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func (a *app) cancelCommand() *cobra.Command {
	var reason, by string
	var o selection
	cmd := &cobra.Command{
		Use:   "cancel [RUN]",
		Short: "Ask runs to stop",
		Long: `Asks a run to stop, or all that --where chooses, and returns once that is
recorded. Calls that are under way end first; a run that no node works on ends
at once. The branches of a run end with it. A task that waits to be taken by a
node is cancelled by its whole id.`,
		Example: `  rath cancel @last --reason "wrong branch"
  rath cancel --where 'workflow=fix and older=2h' --dry-run`,
		Args: o.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error {
				v := verb{
					name: "cancel", past: "asked to stop", skip: ended,
					do: func(ctx context.Context, r *messages.RunInfo) (string, error) {
						return "", s.Cancel(ctx, r.Run, by, reason)
					},
				}
				err := a.each(ctx, s, &o, args, v)
				if _, waits := errors.AsType[waiting](err); o.where == "" && (waits || codeOf(err) == exitNotFound) {
					return a.cancelTask(ctx, s, &o, args[0], by, reason, v, err)
				}
				return err
			})
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept as evidence")
	a.byFlag(cmd.Flags(), &by, "who asks")
	return cmd
}

// cancelTask cancels a run that no log holds, if it is one of the tasks that wait
// to be taken; unknown is the error if it is not. A node of a former release does
// not tell that beforehand.
func (a *app) cancelTask(ctx context.Context, s *system, o *selection, id, by, reason string, v verb, unknown error) error {
	if _, err := runID(id); err != nil {
		return unknown
	}
	row := done{Run: run.ID(id), State: run.Queued, Action: v.name}
	if _, waits := errors.AsType[waiting](unknown); !waits {
		if n, err := s.Waiting(ctx); err != nil || n == 0 {
			return errors.Join(unknown, err)
		}
		row.Note = "if a task of this id waits"
	}
	if !o.dry {
		switch err := s.Cancel(ctx, row.Run, by, reason); {
		case errors.Is(err, run.ErrUnknownRun):
			return unknown
		case err != nil:
			return err
		}
		row.Done, row.Note = true, "waits to be taken: it ends when a node takes it"
	}
	return a.tellDone(o, []done{row}, v, 1, o.dry)
}

// ended says of a run that has ended that nothing can be done about it.
func ended(r *messages.RunInfo) string {
	if r.State.Terminal() {
		return "has ended: " + string(r.State)
	}
	return ""
}

func (a *app) resolveCommand() *cobra.Command {
	var happened, again, pin, failed bool
	var reason, value, by string
	cmd := &cobra.Command{
		Use:   "resolve RUN (--happened | --again | --pin | --fail) --reason TEXT",
		Short: "Decide about a run that needs review",
		Long: `Decides about a call that was cut off and must not happen twice: it did happen
(and --value is what it returned), it did not and is to run again, or the run is
to fail. "show" and "ps" tell which call it is; look at its target first.

A run that stopped because the code does not match what it recorded is tried
with the code that is on offer now (--again), or waits for a node that offers
the revision that it was recorded under (--pin).`,
		Example: `  rath resolve 7f3a --happened --value '"rel-1"' --reason "seen in the forge"
  rath resolve 7f3a --again --reason "the mail is not in the outbox"
  rath resolve 7f3a --pin --reason "finish it as it began"
  rath resolve 7f3a --fail --reason "too late"`,
		Args: exactly(1, "one run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := messages.Control{Reason: reason, By: by}
			n := 0
			for decision, on := range map[string]bool{run.Happened: happened, run.Again: again, run.Pin: pin, run.Fail: failed} {
				if on {
					c.Decision = decision
					n++
				}
			}
			switch {
			case n != 1:
				return usage(cmd, errors.New("give one of --happened, --again, --pin and --fail"))
			case reason == "":
				return usage(cmd, errors.New("--reason is needed: it is kept as evidence"))
			case value != "" && !happened:
				return usage(cmd, errors.New("--value belongs to --happened"))
			case value != "" && !json.Valid([]byte(value)):
				return usage(cmd, errors.New("--value is not JSON; a text is written with quotes: '\"done\"'"))
			}
			if value != "" {
				c.Value = json.RawMessage(value)
			}
			return a.resolveRun(cmd.Context(), args[0], c)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&happened, "happened", false, "the call did take place")
	fs.BoolVar(&again, "again", false, "it did not: run it again")
	fs.BoolVar(&pin, "pin", false, "wait for a node that offers the recorded revision")
	fs.BoolVar(&failed, "fail", false, "end the run as failed")
	fs.StringVar(&value, "value", "", "what the call returned, as JSON")
	fs.StringVar(&reason, "reason", "", "why, kept as evidence")
	a.byFlag(fs, &by, "who decides")
	return cmd
}

func (a *app) resolveRun(ctx context.Context, name string, c messages.Control) error {
	return a.with(ctx, func(s *system) error {
		r, err := s.runOf(ctx, name)
		if err != nil {
			return err
		}
		if r.State != run.NeedsReview {
			return fail(exitConflict, "run %s needs no review: it is %s", r.Run, r.State)
		}
		if err := s.Resolve(ctx, r.Run, c); err != nil {
			return err
		}
		revision := ""
		if r.Review != nil {
			revision = r.Review.Revision
		}
		switch {
		case c.Decision == run.Fail:
			a.remark("decided; the run ends as failed")
		case c.Decision == run.Pin:
			a.remark("pinned; the run goes on when a node offers revision %s of %s", revision, r.Workflow)
		default:
			a.goesOn(s, "decided", &r)
		}
		return a.acted(&r, "resolve")
	})
}

func (a *app) resumeCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "resume [RUN]",
		Short: "Let a parked run go on, in this process, and follow it",
		Long: `Starts a node in this process and follows a run that was parked or cut off to
its end. Recorded steps do not run again. Other open runs of the store go on as
well while it lasts. If a node runs over this store already, the run goes on
there, and this command follows it. Of a run that has ended it prints the
result.`,
		Example: `  rath resume            the last run
  rath resume 7f3a`,
		Args: atMost(1, "one run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := messages.Last
			if len(args) > 0 {
				name = args[0]
			}
			return a.resume(cmd.Context(), name, &o)
		},
	}
	o.nodeFlags.add(cmd.Flags())
	return cmd
}

func (a *app) resume(ctx context.Context, name string, o *runOptions) (err error) {
	work := &node.Options{Unsafe: o.unsafe}
	if work.Models, err = a.scriptModels(o.script); err != nil {
		return err
	}
	s, err := a.openThere(ctx, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	after, err := s.newest(ctx)
	if err != nil {
		return err
	}
	r, err := s.runOf(ctx, name)
	if w, waits := errors.AsType[waiting](err); waits { // until the node of this process takes it
		r, err = messages.RunInfo{Run: w.id, State: run.Queued}, nil
	} else {
		after = 0 // the run is somewhere before
	}
	if err != nil {
		return err
	}
	from, err := s.filesOf(ctx, &r)
	if err != nil {
		return err
	}
	if r.State.Terminal() {
		result, err := s.Result(ctx, r.Run)
		if err != nil {
			return err
		}
		return a.finish(ctx, s, r.Run, watched{result: &result}, from, o)
	}
	if r.State == run.NeedsReview && r.Review != nil {
		a.err.Println("run " + string(r.Run) + " needs review: " + r.Review.Reason)
		a.decisions(r.Run, r.Review.Revision)
		return silent(exitRefused)
	}
	seen, err := s.watch(ctx, r.Run, cmp.Or(r.Root, r.Session), after, a.runWatching(ctx, s, string(cmp.Or(r.Root, r.Session))))
	a.err.Note("")
	if errors.Is(err, errInterrupted) {
		return a.parked(s, r.Run, &o.nodeFlags)
	}
	if err != nil {
		return err
	}
	return a.finish(ctx, s, r.Run, seen, from, o)
}

func (a *app) forkCommand() *cobra.Command {
	var at uint64
	cmd := &cobra.Command{
		Use:   "fork NAME",
		Short: "Make a branch of a session as it was at a version",
		Long: `Makes a new session that starts as another one was at a version, with its files,
and prints its id. It is a task of the workflow "fork", which does nothing, with
fork_of: the new session is recorded like everything else. Continue it with
"run --session ID". Where no node runs, this command is one while it lasts: what
waits in the store goes on meanwhile.`,
		Example: `  rath fork @last
  rath fork 7f3a --at 4
  rath run --session "$(rath fork 7f3a:4)" -m "try the other way"`,
		Args: exactly(1, "one session or run"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.fork(cmd.Context(), args[0], at) },
	}
	cmd.Flags().Uint64Var(&at, "at", 0, "version to fork at (default the newest)")
	return cmd
}

func (a *app) fork(ctx context.Context, name string, at uint64) (err error) {
	s, err := a.openThere(ctx, &node.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n, err := s.resolve(ctx, name)
	if err != nil {
		return err
	}
	if at > 0 && strings.Contains(name, ":") {
		return fail(exitUsage, "fork %s --at %d: give the version once, with the name or with --at", name, at)
	}
	if at > 0 {
		n.version = session.Version(at)
	}
	v, err := s.Session(ctx, n.String())
	if err != nil {
		return err
	}
	n.session, n.version = v.Session, v.Version
	r, err := s.Do(ctx, "fork", messages.Task{ID: client.NewID(), ForkOf: n.String()}, nil)
	if err != nil {
		return err
	}
	if err := r.Err(); err != nil {
		return &exitError{stateCode(r.State), fmt.Errorf("fork %s: %w", n, err)}
	}
	if done, err := emitOne(a, made{r.Session, r.Version, []string{n.String()}}); done {
		return err
	}
	a.out.Println(r.Session)
	return nil
}

// filesOf returns the files that a run's task brought; none for a server.
func (s *system) filesOf(ctx context.Context, r *messages.RunInfo) (blob.Digest, error) {
	if s.log == nil || r.Session == "" {
		return noHead, nil
	}
	w, err := run.Load(ctx, s.log, s.values, session.Key{Tenant: s.Tenant(), ID: r.Session}, "")
	if err != nil {
		return noHead, err
	}
	if rec := w.RunState().Run(r.Run); rec != nil {
		return rec.Task.Workspace, nil
	}
	return noHead, nil
}
