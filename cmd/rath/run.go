package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/workspace"
)

func (a *app) runCommand() *cobra.Command {
	var f taskFlags
	var fan fanOutFlags
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [WORKFLOW]",
		Short: "Run a task in this process and follow it",
		Long: `Runs a task of a workflow, "agent" without a name, and prints what it answers.
The node runs in this process, unless one runs over this store already or a
server is named. The exit code is the outcome. A run that stops for a person
(needs_review) ends the command with 7. So does one that asks something, if its
node runs in this process; elsewhere it is followed on, and the command that
answers is printed once.

With -C the session works on a copy of a directory, without .git and the store;
the diff is printed at the end, and --apply carries it back. Ctrl-C parks the
run and prints the command that resumes it; a second one exits at once.

The workflow "fanout" runs workflows side by side, each on a branch of the
session, and merges what they come to. --branch names one, with the workflow
(default agent) and what it is to do; the message is said before they part.`,
		Example: `  rath run -m "say hello"
  rath run -C . -m "make the tests pass" --apply
  echo "sum this up" | rath run -f -
  rath run --script model.txtar -m "hello"      no model, no key
  rath run review -m '{"topic":"tides"}' -o json
  rath run fanout -m "a slogan" --branch 'try*3' --quorum 2 --merge best
  rath run fanout --branch 'bugs: look for bugs' --branch style=review`,
		Args: atMost(1, "one workflow"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.workflow = "agent"
			if len(args) > 0 {
				o.workflow = args[0]
			}
			t, err := a.task(cmd, &f)
			if err != nil {
				return err
			}
			if o.branches, err = fan.input(cmd, o.workflow, &t); err != nil {
				return err
			}
			if o.apply && o.dir == "" {
				return usage(cmd, errors.New("--apply needs -C DIR"))
			}
			if o.workflow == "agent" && len(t.Input) == 0 {
				return usage(cmd, errors.New("say what to do with -m TEXT, or with -f FILE"))
			}
			if o.dossier != "" {
				if _, err := formOf(o.dossier); err != nil {
					return err
				}
			}
			return a.run(cmd.Context(), t, &o)
		},
	}
	f.add(cmd)
	fan.add(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&o.dir, "chdir", "C", "", "work on a copy of this directory")
	fs.BoolVar(&o.apply, "apply", false, "carry what the run changed back into the directory of -C")
	o.nodeFlags.add(fs)
	fs.StringVar(&o.dossier, "out-dossier", "", "write the evidence of the run to a file: .html, .md or .json")
	return cmd
}

type runOptions struct {
	workflow string
	branches []string // workflows that it would run as well
	dir      string
	apply    bool
	dossier  string
	nodeFlags
}

// nodeFlags are the settings of a node that a command starts for a run. The run
// needs them again when it is resumed.
type nodeFlags struct {
	script string
	unsafe bool
}

func (f *nodeFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.script, "script", "", "answer model calls from this txtar file")
	fs.BoolVar(&f.unsafe, "unsafe", false, "let the model run commands where nothing confines them")
}

// run submits a task and follows it to its end.
func (a *app) run(ctx context.Context, t messages.Task, o *runOptions) (err error) {
	work := &node.Options{Unsafe: o.unsafe, Model: t.Model}
	if work.Models, err = a.scriptModels(o.script); err != nil {
		return err
	}
	s, err := a.open(ctx, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if !s.own() {
		if o.script != "" || o.unsafe {
			return fail(exitUsage, "--script and --unsafe are settings of a node; %s runs already and has its own", s.where)
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
	var from blob.Digest
	if o.dir != "" {
		if from, err = a.upload(ctx, s, "run -C", o.dir); err != nil {
			return err
		}
		t.Workspace = from.String()
	}
	after, err := s.newest(ctx)
	if err != nil {
		return err
	}
	before, _, _ := strings.Cut(t.ForkOf, ":")
	w := a.runWatching(ctx, s, cmp.Or(t.Session, before))
	if w.follower, err = s.Start(ctx, o.workflow, t); err != nil {
		return err
	}
	seen, err := s.watch(ctx, t.ID, "", after, w)
	a.err.Note("")
	if errors.Is(err, errInterrupted) {
		return a.parked(s, t.ID, &o.nodeFlags)
	}
	if err != nil {
		return err
	}
	return a.finish(ctx, s, t.ID, seen, from, o)
}

// runWatching tells what a run does: on a terminal with a line about what is
// being written. about is a session of its tree that was there before, "" if none
// was.
func (a *app) runWatching(ctx context.Context, s *system, about string) watching {
	t := view.NewTimeline(func(l view.Line) {
		if !a.flags.quiet {
			a.err.Println(view.LineText(a.err, l))
		}
	})
	t.Details = s.look()
	t.Users = true
	if about != "" && !a.flags.quiet {
		look, cancel := context.WithTimeout(ctx, beforehand)
		t.Labels = s.labels(look, about)
		cancel()
	}
	w := a.storyOf(ctx, t, a.err.Note)
	record := w.record
	w.record = func(r lineage.Record) {
		record(r)
		if r.Kind == lineage.Ended {
			t.Finish(ctx)
		}
	}
	w.person = func(r lineage.Record) { a.person(r) }
	w.held = func(r lineage.Record) { a.held(r) }
	return w
}

// held tells that a task is accepted and cannot begin yet.
func (a *app) held(e lineage.Record) {
	a.remark("run %s is accepted and waits: %s", e.Run, e.Reason)
}

// scriptModels answers all model calls from a script. Without the name of one
// it returns nil: the models are the usual ones.
func (a *app) scriptModels(name string) (llm.Models, error) {
	if name == "" {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	s, err := scripted.Parse(filepath.Base(name), data)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	m, err := scripted.New(s, nil)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return everyKind{m}, nil
}

// everyKind answers providers of every kind.
type everyKind struct{ llm.Models }

func (k everyKind) Client(ctx context.Context, p llm.Provider) (llm.Client, error) {
	p.Kind = ""
	return k.Models.Client(ctx, p)
}

// upload stores a copy of a directory, for the command what, and returns its head.
func (a *app) upload(ctx context.Context, s *system, what, dir string) (blob.Digest, error) {
	if err := s.direct(what); err != nil {
		return blob.Digest{}, err
	}
	switch fi, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return blob.Digest{}, fail(exitNotFound, "-C %s: there is no such directory", dir)
	case err != nil:
		return blob.Digest{}, err
	case !fi.IsDir():
		return blob.Digest{}, fail(exitUsage, "-C %s: not a directory", dir)
	}
	store, inside := relativeTo(dir, a.config.Store.Value)
	limits := workspace.Limits{Exclude: func(p string) bool {
		return inside && p == store || path.Base(p) == ".git"
	}}
	return workspace.Snapshot(ctx, s.blobs(s.Tenant()), dir, blob.Digest{}, limits)
}

// relativeTo returns a path relative to a directory that it lies in, slash
// separated; ok is false if it lies elsewhere.
func relativeTo(dir, name string) (rel string, ok bool) {
	d, errD := filepath.Abs(dir)
	n, errN := filepath.Abs(name)
	if errD != nil || errN != nil {
		return "", false
	}
	if real, err := filepath.EvalSymlinks(d); err == nil {
		d = real
	}
	if real, err := filepath.EvalSymlinks(n); err == nil {
		n = real
	}
	rel, err := filepath.Rel(d, n)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}

// parked ends what an interrupt cut short: a run of this process is given back,
// one of another process goes on.
func (a *app) parked(s *system, id run.ID, o *nodeFlags) error {
	own := s.own()
	if own {
		a.err.Println("parking the run; interrupt again to exit at once")
	}
	if err := s.end(); err != nil {
		return err
	}
	if own {
		a.err.Println("parked; resume it with\n  " + a.resumeWith(id, o))
	} else {
		a.err.Println("the run goes on; follow it with\n  " + a.hint("trace", "-f", string(id)))
	}
	return silent(exitInterrupted)
}

// resumeWith is the command that lets a run go on in a node of its own, with the
// settings of the one before; o is nil where nobody knows them.
func (a *app) resumeWith(id run.ID, o *nodeFlags) string {
	args := []string{"resume", string(id)}
	if o != nil && o.script != "" {
		args = append(args, "--script", shellWord(o.script))
	}
	if o != nil && o.unsafe {
		args = append(args, "--unsafe")
	}
	return a.hint(args...)
}

// asBegun is what a command that did not start a run cannot know of its node.
const asBegun = "the --script and --unsafe that it began with"

// goesOn says, once something was done about a run, that it goes on or how to
// let it.
func (a *app) goesOn(s *system, done string, r *messages.RunInfo) {
	switch {
	case r.Quarantine != "":
		a.remark("%s; run %s stays set apart (%s) until %q", done, r.Run, term.Line(r.Quarantine, 200), a.hint("release", string(r.Run), "--reason", "TEXT"))
	case s.own():
		a.remark("%s; no node runs here: go on with %q, and %s", done, a.resumeWith(r.Run, nil), asBegun)
	default:
		a.remark("%s; run %s goes on", done, r.Run)
	}
}
