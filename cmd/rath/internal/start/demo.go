package start

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/fleet"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/internal/workflows/demo"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
)

type demoOptions struct {
	live   bool
	crash  bool
	fresh  bool
	unsafe bool
	model  string
	nodes  int
}

// Demo is the command "demo".
func Demo(a *app.App) *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See a demo: five agents, a real sandbox, no key, no network",
		Long: `Five agents fix a small repository in a real sandbox. A verifier rejects a patch
with a reason, the session forks from an earlier version with its files, the
lesson is kept, the second patch passes, and a proof is written that anyone can
verify offline.

The model is a script, even with a key in the environment; --live uses a real
one. Run the demo twice: the second time the first patch passes, because the
note of the first run is in its prompt; --fresh forgets the note. With --crash
the process kills itself inside a tool call, and the next start resumes.

With --nodes three branches write the patch in parallel, on nodes in separate
processes, and one node is killed in the middle of its branch.`,
		Example: `  rath demo
  rath demo --crash && rath demo
  rath demo --nodes 3
  OPENAI_API_KEY=... rath demo --live --model gpt-5.5`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.OwnServer(cmd); err != nil {
				return err
			}
			if o.model != "" && !o.live {
				return app.Usage(cmd, errors.New("--model needs --live: without it the model is a script"))
			}
			d := &demonstration{App: a, o: o, start: time.Now()}
			switch {
			case o.nodes < 0 || o.nodes == 1 || o.nodes > fleet.MaxNodes:
				return app.Usage(cmd, fmt.Errorf("--nodes %d: want a number from 2 to %d", o.nodes, fleet.MaxNodes))
			case o.nodes > 0 && (o.live || o.crash || o.fresh):
				return app.Usage(cmd, errors.New("--nodes does not go with --live, --crash and --fresh"))
			case o.nodes > 0:
				return d.showFleet(cmd.Context(), o.nodes)
			}
			return d.show(cmd.Context())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&o.nodes, "nodes", 0, "number of nodes of a fleet; one is killed")
	fs.BoolVar(&o.crash, "crash", false, "kill -9 this process inside a tool call")
	fs.BoolVar(&o.live, "live", false, "use a real model: OPENAI_API_KEY, OPENAI_BASE_URL")
	fs.StringVar(&o.model, "model", "", "model of --live")
	fs.BoolVar(&o.fresh, "fresh", false, "forget the lessons of earlier demos first")
	fs.BoolVar(&o.unsafe, "unsafe", false, "let a real model run unconfined commands")
	return cmd
}

// demonstration is one start of the demo.
type demonstration struct {
	*app.App
	o     demoOptions
	start time.Time
	box   sandbox.Backend
}

func (d *demonstration) show(ctx context.Context) (err error) {
	store := d.Config.Store.Value
	work, err := d.node(store)
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, app.OpenTimeout)
	s, err := d.Host(opening, work)
	cancel()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if d.o.fresh {
		lessons, err := s.Instance.Memory(ctx, d.Tenant(), demo.Memory)
		if err == nil {
			err = lessons.Delete(ctx, "memory://")
		}
		if err != nil {
			return err
		}
	}

	open, err := d.unfinished(ctx, s)
	if err != nil {
		return err
	}
	var id run.ID
	var root session.ID
	var after string
	if open != nil {
		id, root = open.Run, open.Root
		d.header(ctx, s, "", false)
		d.Out.Printf("%s\n\n", d.Out.Paint(term.Yellow, fmt.Sprintf("resume      run %s, interrupted after %s, which do not run again",
			view.ShortIDs([]run.ID{id})(id), view.Counted(int64(open.Steps), "step"))))
	} else {
		dir := filepath.Join(store, "demo", "repo")
		if err := errors.Join(os.RemoveAll(dir), demo.Unpack(dir)); err != nil {
			return fmt.Errorf("demo: unpack the repository: %w", err)
		}
		d.header(ctx, s, dir, true)
		if after, err = follow.Newest(ctx, s); err != nil {
			return err
		}
		if id, err = d.submit(ctx, s, dir); err != nil {
			return err
		}
	}
	seen, err := d.timeline(ctx, s, id, root, after)
	if errors.Is(err, app.ErrInterrupted) {
		d.Err.Println("parking the run; interrupt again to exit at once")
		if err := s.Close(); err != nil {
			return err
		}
		d.Err.Println("parked; the next start resumes it:\n  " + d.Hint("demo"))
		return app.Silent(app.ExitInterrupted)
	}
	if err != nil {
		return err
	}
	if seen.Result == nil {
		return follow.Stopped(d.App, id, seen, &follow.NodeFlags{})
	}
	return d.footer(ctx, s, id, seen.Result)
}

// unhurried is the factor by which the demo's model is slower than a fast model on a
// terminal: the demo then takes about ten seconds.
const unhurried = 2

// node returns the options of the demo's node.
func (d *demonstration) node(store string) (*node.Options, error) {
	boxes, err := filepath.Abs(filepath.Join(store, "boxes"))
	if err != nil {
		return nil, err
	}
	d.box = local.New(&local.Options{State: boxes})
	// The script's commands are known; those that a model chooses are not.
	o := &node.Options{Sandbox: node.Sandbox{Unsafe: !d.o.live || d.o.unsafe}, Models: node.Models{Default: d.o.model}}
	if d.o.crash {
		o.Sandbox.Backends = map[string]sandbox.Backend{"local": crashing{d.box, d.beforeCrash}}
	}
	pace := 0 // full speed without a terminal
	if d.Out.Terminal() {
		pace = unhurried
	}
	model, err := demo.Model(pace)
	if err != nil {
		return nil, err
	}
	real := openai.New(&llm.ServerOptions{Env: d.Getenv, DefaultModel: cmp.Or(d.o.model, d.Config.Model.Value)})
	o.Models.Source = llm.ByKind(map[string]llm.Models{demo.Kind: model, node.KindOpenAI: real, "": real})
	return o, nil
}

// unfinished returns the demo's open run, nil if there is none.
func (d *demonstration) unfinished(ctx context.Context, s *app.System) (*messages.RunInfo, error) {
	runs, err := s.Runs.List(ctx, &client.RunsOptions{
		Workflow: demo.Name, Limit: 1, States: []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview},
	})
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	return &runs[0], nil
}

func (d *demonstration) submit(ctx context.Context, s *app.System, dir string) (run.ID, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	input := map[string]any{"dir": abs}
	if d.o.live {
		input["live"] = true
	}
	body, err := json.Marshal(input)
	if err != nil {
		return "", err
	}
	return s.Submit(ctx, demo.Name, messages.Task{ID: client.NewID(), Model: d.o.model, Input: body})
}

// timeline prints the run as it is recorded.
func (d *demonstration) timeline(ctx context.Context, s *app.System, id run.ID, root session.ID, after string) (follow.Outcome, error) {
	t := view.NewTimeline(func(l view.Line) { d.Out.Println(view.LineText(d.Out, l)) })
	t.Details = s.Details()
	w := follow.Timeline(ctx, d.Out, t)
	record := w.Record
	w.Record = func(r messages.Record) {
		if r.Kind == messages.KindChunk && r.Role == string(session.User) {
			return // the header names the issue
		}
		record(r)
	}
	seen, err := follow.Watch(ctx, s, id, root, after, w)
	t.Finish(ctx)
	d.Out.Note("")
	return seen, err
}

// settle is how long the demo lets its output catch up before it kills itself.
const settle = 400 * time.Millisecond

// beforeCrash announces the crash, once the output has reached this point.
func (d *demonstration) beforeCrash(command []string) {
	time.Sleep(settle)
	what := command[len(command)-1]
	d.Out.Note("")
	d.Out.Printf("%s\n", d.Out.Paint(term.Red, fmt.Sprintf("kill -9     process %d, inside the tool call %q", os.Getpid(), term.Line(what, 40))))
	d.Out.Printf("next        %s   (resumes the run)\n", d.Hint("demo"))
}
