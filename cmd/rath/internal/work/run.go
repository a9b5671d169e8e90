package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/evidence"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
)

// Run is the command "run".
func Run(a *app.App) *cobra.Command {
	var f taskFlags
	var fan fanOutFlags
	var place placeFlags
	var o runOptions
	var git bool
	cmd := &cobra.Command{
		Use:   "run [WORKFLOW]",
		Short: "Run a task in this process and follow it",
		Long: `Runs a task of a workflow, by default "agent", and prints the answer. The node
runs in this process, unless one already runs on this store or a server is
named. The exit code is the outcome. If the run needs a decision (needs_review),
the command ends with 7. The same holds for a question, if the node runs in this
process; otherwise the command prints how to answer and keeps following.

With -C the session works on a copy of a directory, without the store and the
files ignored by .gitignore and .rathignore, and with a separate git repository.
The diff is printed at the end. --apply writes it to the directory: on a
terminal after the diff and a confirmation, otherwise and with --yes at once.
--apply=branch commits it to the branch rath/RUN of the git repository instead,
with one commit per branch of a fan-out; files, index and HEAD stay unchanged.
Files excluded on import are never exported. Changes to git hooks, CI, editor,
shell and agent configuration are reverted unless --allow names the path.

Ctrl-C parks the run and prints the command to resume it; a second one exits at
once.

Commands run in the node's sandbox: --sandbox, --image and the limits select
another one. Commands have no network; --allow permits a host.

The workflow "fanout" runs workflows in parallel, each on a branch of the
session, and merges their results. --branch names one, with its workflow
(default agent) and its input; the message precedes the branches.`,
		Example: `  rath run -m "say hello"
  rath run -C . -m "make the tests pass" --apply
  rath run -C . -m "make the tests pass" --apply=branch
  echo "sum this up" | rath run -f -
  rath run --script model.txtar -m "hello"      no model, no key
  rath run -C . -m "update the modules" --memory 512m --allow proxy.golang.org
  rath run review -m '{"topic":"tides"}' --format json
  rath run fanout -m "a slogan" --branch 'try*3' --quorum 2 --merge best
  rath run fanout --branch 'bugs: look for bugs' --branch style=review`,
		Args: app.AtMost(1, "one workflow"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.workflow = "agent"
			if len(args) > 0 {
				o.workflow = args[0]
			}
			t, err := task(a, cmd, &f)
			if err != nil {
				return err
			}
			o.named = f.id != ""
			if o.images, err = f.agent(a, cmd, o.workflow, &t); err != nil {
				return err
			}
			if err := o.skills.check(cmd); err != nil {
				return err
			}
			if o.branches, err = fan.input(cmd, o.workflow, &t); err != nil {
				return err
			}
			switch {
			case o.apply != "" && o.apply != applyFiles && o.apply != applyBranch:
				return app.Usage(cmd, fmt.Errorf("--apply %q: want %s or %s", o.apply, applyFiles, applyBranch))
			case o.apply != "" && o.dir == "":
				return app.Usage(cmd, errors.New("--apply needs -C DIR"))
			}
			if o.history, err = historyOf(cmd, o.dir, git); err != nil {
				return err
			}
			if t.Sandbox, o.allow, err = place.place(); err != nil {
				return err
			}
			if o.yes && o.apply == "" {
				return app.Usage(cmd, errors.New("--yes needs --apply"))
			}
			if t.Sandbox.Network != "" {
				a.Remark("commands reach only %s", strings.Join(sandbox.Network(t.Sandbox.Network).Hosts(), ", "))
			}
			if o.workflow == "agent" && len(t.Input) == 0 {
				return app.Usage(cmd, errors.New("give a prompt with -m TEXT, or with -f FILE"))
			}
			if o.dossier != "" {
				if _, err := evidence.FormOf(o.dossier); err != nil {
					return err
				}
			}
			return runTask(cmd.Context(), a, t, &o)
		},
	}
	f.add(cmd)
	fan.add(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&o.dir, "chdir", "C", "", "work on a copy of this directory")
	fs.BoolVar(&git, "git", true, gitUsage)
	o.skills.add(fs)
	fs.StringVar(&o.apply, "apply", "", "apply the changes of the run to the directory of -C, or commit them to a branch there: files or branch")
	fs.Lookup("apply").NoOptDefVal = applyFiles
	fs.BoolVar(&o.yes, "yes", false, "apply without a confirmation")
	place.add(fs, "let commands reach this host, or change this protected path")
	o.NodeFlags.Add(fs)
	fs.StringVar(&o.dossier, "out-dossier", "", "write the evidence of the run to a file: .html, .md or .json")
	return cmd
}

// The values of --apply: the destination of a run's changes.
const (
	applyFiles  = "files"
	applyBranch = "branch"
)

type runOptions struct {
	workflow string
	named    bool     // the id was set by a flag
	branches []string // workflows that it would run as well
	images   [][]byte // images of the task
	dir      string
	skills   skillsFlag
	apply    string   // applyFiles, applyBranch, or "" for neither
	yes      bool     // without a question
	allow    []string // protected paths that apply may write
	dossier  string
	history  history
	branch   *asBranch // of applyBranch; nil without git
	follow.NodeFlags
}

// runTask submits a task and follows it to its end.
func runTask(ctx context.Context, a *app.App, t messages.Task, o *runOptions) (err error) {
	work := &node.Options{Sandbox: node.Sandbox{Unsafe: o.Unsafe}, Models: node.Models{Default: t.Model}}
	if work.Models.Source, err = a.ScriptModels(o.Script); err != nil {
		return err
	}
	s, err := a.Open(ctx, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if !s.Own() {
		if o.Script != "" || o.Unsafe {
			return app.Fail(app.ExitUsage, "--script and --unsafe are settings of a node; %s runs already and has its own", s.Where)
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
	var from blob.Digest
	if o.apply == applyBranch {
		if o.branch, err = openBranch(ctx, o.dir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.branch.Close()) }()
	}
	if o.dir != "" {
		if from, err = upload(ctx, a, s, o.dir, o.history); err != nil {
			return err
		}
		t.Workspace = from.String()
	}
	if err := storeImages(ctx, s, o.images); err != nil {
		return err
	}
	if err := o.skills.layIn(ctx, a, s, &t); err != nil {
		return err
	}
	if o.dir != "" && len(o.skills) > 0 { // skills are no changes of the run
		if from, err = blob.ParseDigest(t.Workspace); err != nil {
			return err
		}
	}
	after, err := follow.Newest(ctx, s)
	if err != nil {
		return err
	}
	ended := false // before this command
	if o.named {
		was, err := s.Runs.Get(ctx, t.ID)
		ended = err == nil && was.State.Terminal()
	}
	before, _, _ := strings.Cut(t.ForkOf, ":")
	w := handlers(ctx, a, s, cmp.Or(t.Session, before))
	if w.Follower, err = s.Start(ctx, o.workflow, t); err != nil {
		return err
	}
	var seen follow.Outcome
	if ended { // there are no more records
		seen, err = follow.Await(ctx, s, w.Follower, t.ID, w.Person, w.Held)
	} else {
		seen, err = follow.Watch(ctx, s, t.ID, "", after, w)
	}
	a.Err.Note("")
	if errors.Is(err, app.ErrInterrupted) {
		return parked(a, s, t.ID, &o.NodeFlags)
	}
	if err != nil {
		return err
	}
	return finish(ctx, a, s, t.ID, seen, from, o)
}

// handlers returns handlers that print the steps of a run: on a terminal with a note of
// the model's output as it is written. about is a session of its tree that existed
// before, "" for none.
func handlers(ctx context.Context, a *app.App, s *app.System, about string) follow.Handlers {
	t := view.NewTimeline(func(l view.Line) {
		if !a.Quiet() {
			a.Err.Println(view.LineText(a.Err, l))
		}
	})
	t.Details = s.Details()
	t.Users = true
	if about != "" && !a.Quiet() {
		look, cancel := context.WithTimeout(ctx, app.AskTimeout)
		t.Labels = reference.Labels(look, s, about)
		cancel()
	}
	w := follow.Timeline(ctx, a.Err, t)
	record := w.Record
	w.Record = func(r messages.Record) {
		record(r)
		if r.Kind == messages.KindEnded {
			t.Finish(ctx)
		}
	}
	w.Person = func(r messages.Record) { follow.Person(a, r) }
	w.Held = func(r messages.Record) { held(a, r) }
	return w
}

// held prints that a task is accepted and cannot begin yet.
func held(a *app.App, e messages.Record) {
	a.Remark("run %s is accepted and waits: %s", e.Run, e.Reason)
}

// parked ends a command after an interrupt: a run of this process is given back, a run
// of another process continues.
func parked(a *app.App, s *app.System, id run.ID, o *follow.NodeFlags) error {
	own := s.Own()
	if own {
		a.Err.Println("parking the run; interrupt again to exit at once")
	}
	if err := s.Close(); err != nil {
		return err
	}
	if own {
		a.Err.Println("parked; resume it with\n  " + follow.ResumeWith(a, id, o))
	} else {
		a.Err.Println("the run continues; follow it with\n  " + a.Hint("show", string(id), "--steps", "-f"))
	}
	return app.Silent(app.ExitInterrupted)
}
