package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
)

// Show is the command "show".
func Show(a *app.App) *cobra.Command {
	var full, goOn, tree, spent, parted bool
	var steps, step string
	var q view.StepQuery
	var o lineage.TreeOptions
	cmd := &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show a run or session: transcript, steps, or tree of sessions",
		Long: `Shows the transcript of a session: each row with its version, its author, and
its tool calls, and the current activity of a run in flight. Long texts are cut;
--full shows them whole. --follow continues until the run ends: on a terminal
with the streamed text, otherwise with whole rows. "help names" explains names
of sessions, versions and runs; the default is the last run.

--steps shows the activity of the tree's sessions instead: one line per turn of
an agent, including its tool calls, with branches below their origin, and their
outcomes. For a fan-out with many branches it shows a few of them, and failures
and questions of the others; --format json and jsonl have all, one object per
line.

--steps with a range of numbers, --last, --agent, --tool or --errors lists
single steps of a run and of its branches, with the time and the tokens of each;
with --follow it continues with matching steps as they end. --step shows one
step whole, by its number or its path: for a model call also the prompt, the
tools and the question beside the rows, and the reason for the end of its
answer. --spent breaks down time, tokens and cost of a run by agent, model and
tool. A transcript of many rows shows the first and the last ones; --full shows
all.

--tree draws the origin of the sessions: forks, joins, and rejected branches
with reasons. The picture is derived from the commits. For a fan-out with many
branches it shows a few; --expand shows all.`,
		Example: `  rath show @last
  rath show @last --follow     and what comes, until the run ends
  rath show 7f3a:4 --full
  rath show 7f3a --format jsonl | jq .text
  rath show 7f3a --steps -f
  rath show @last --steps 20..40
  rath show @last --last 10 --agent coder
  rath show @last --errors
  rath show @last --step 3     what an agent got, and how its answer ended
  rath show @last --last 5 --tool run_shell_command -f
  rath show @last --spent
  rath show @last --tree --expand
  rath show @last --tree --format svg > run.svg`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := len(args) - 1; steps == turns && n >= 0 && (n == 1 || strings.Contains(args[n], "..")) {
				steps, args = args[n], args[:n]
				parted = true
			}
			return app.AtMost(1, "one session or run")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if parted { // "--steps 20..40" has the range among the arguments
				args = args[:len(args)-1]
			}
			name := messages.Last
			if len(args) > 0 {
				name = args[0]
			}
			if steps != "" && steps != turns {
				if err := q.ParseRange(steps); err != nil {
					return app.Usage(cmd, err)
				}
			}
			if q.Last < 0 {
				return app.Usage(cmd, fmt.Errorf("--last %d: want how many steps at the end", q.Last))
			}
			list := steps != "" && steps != turns || q != view.StepQuery{}
			if list && steps == "" {
				steps = turns
			}
			if err := checkList(list, goOn, spent, step != "", steps != "" || tree || full); err != nil {
				return app.Usage(cmd, err)
			}
			if err := checkView(a, cmd, steps != "", tree); err != nil {
				return app.Usage(cmd, err)
			}
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				switch {
				case spent:
					r, err := reference.Run(ctx, s, name)
					if err != nil {
						return err
					}
					return showSpent(ctx, a, s, &r)
				case step != "":
					return showStep(ctx, a, s, name, step)
				case list && goOn:
					return followSteps(ctx, a, s, name, &q)
				case list:
					return listSteps(ctx, a, s, name, &q)
				case steps != "":
					return showSteps(ctx, a, s, name, goOn)
				case tree:
					return showTree(ctx, a, s, name, &o)
				}
				return show(ctx, a, s, name, full, goOn)
			})
		},
	}
	app.WithFormats(cmd, "mermaid", "svg")
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&full, "full", false, "whole texts")
	fs.BoolVarP(&goOn, "follow", "f", false, "continue until the run ends")
	fs.StringVar(&steps, "steps", "", "activity of the tree's sessions, turn by turn; or single steps, such as 20..40")
	fs.Lookup("steps").NoOptDefVal = turns
	fs.StringVar(&step, "step", "", "one whole step, such as 20, or 2.0 by its path, with the request of a model call")
	fs.IntVar(&q.Last, "last", 0, "number of steps at the end")
	fs.StringVar(&q.Agent, "agent", "", "steps of this agent")
	fs.StringVar(&q.Tool, "tool", "", "steps with a call of this tool")
	fs.BoolVar(&q.Errors, "errors", false, "failed steps")
	fs.BoolVar(&spent, "spent", false, "time, tokens and cost by agent, model and tool")
	fs.BoolVar(&tree, "tree", false, "tree of the sessions; also --format mermaid and svg")
	fs.BoolVar(&o.All, "all", false, "of a tree: every record")
	fs.BoolVar(&o.Expand, "expand", false, "of a tree: every branch of large fan-outs")
	return cmd
}

// turns is the value of --steps without a range.
const turns = "turns"

// checkList rejects flags that do not go with a list of steps, with one step or with a
// sum.
func checkList(list, goOn, spent, one, other bool) error {
	switch {
	case spent && (list || goOn || other || one):
		return errors.New("--spent stands alone")
	case one && (list || goOn || other):
		return errors.New("--step stands alone")
	}
	return nil
}

// checkView rejects flags that do not apply to the selected view.
func checkView(a *app.App, cmd *cobra.Command, steps, tree bool) error {
	set := cmd.Flags().Changed
	format := a.Config.Format.Value
	switch {
	case steps && tree:
		return errors.New("give --steps or --tree, not both")
	case !tree && (format == "mermaid" || format == "svg"):
		return fmt.Errorf("--format %s draws a tree: add --tree", format)
	case !tree && (set("all") || set("expand")):
		return errors.New("--all and --expand belong to --tree")
	case tree && set("follow"):
		return errors.New("--follow goes with a transcript or --steps, not with --tree")
	case (steps || tree) && set("full"):
		return errors.New("--full belongs to a transcript, not to --steps or --tree")
	}
	return nil
}

func show(ctx context.Context, a *app.App, s *app.System, name string, full, goOn bool) error {
	n, err := reference.Lookup(ctx, s, name)
	if err != nil {
		return err
	}
	if n.Run != nil && n.Session == "" { // ended before a log held it
		if done, err := app.EmitOne(a, n.Run); done {
			return err
		}
		view.RunLine(a.Out, n.Run)
		return nil
	}
	if goOn {
		return showOn(ctx, a, s, name, full)
	}
	v, err := s.Sessions.Get(ctx, n.String())
	if err != nil {
		return err
	}
	switch a.Config.Format.Value {
	case "json":
		return a.WriteJSON(v)
	case "jsonl":
		_, err := app.Emit(a, v.Chunks)
		return err
	}
	if n.Run != nil {
		view.RunLine(a.Out, n.Run)
	}
	view.WriteTranscript(a.Out, &v, full)
	if n.Run != nil && (n.Run.Steps > spentFrom || n.Run.Usage.Calls > spentFrom) && !strings.Contains(name, ":") {
		a.Out.Println()
		if err := showSpent(ctx, a, s, n.Run); err != nil {
			return err
		}
	}
	if n.Run == nil || n.Version != 0 {
		return nil
	}
	live, err := liveOf(ctx, a, s, n.Run)
	if err != nil || live == nil {
		return err
	}
	a.Out.Println()
	return tellLive(ctx, a, s, live)
}

// spentFrom is the number of steps and model calls from which a run gets a table of
// their spending.
const spentFrom = 12

// showSpent prints the time, the tokens and the money that a run spent.
func showSpent(ctx context.Context, a *app.App, s *app.System, r *messages.RunInfo) error {
	if r.Session == "" { // ended before a log held it
		return writeSpending(a, &view.Spending{Run: r.Run})
	}
	g, _, err := reference.RunGraph(ctx, s, r)
	if err != nil {
		return err
	}
	sum, err := view.SpendingOf(g, s.Tenant(), r.Run, time.Now())
	if err != nil {
		return err
	}
	return writeSpending(a, &sum)
}

func writeSpending(a *app.App, sum *view.Spending) error {
	if done, err := app.EmitOne(a, sum); done {
		return err
	}
	view.WriteSpending(a.Out, sum)
	return nil
}

// listSteps lists single steps of a run and of its branches.
func listSteps(ctx context.Context, a *app.App, s *app.System, name string, q *view.StepQuery) error {
	r, err := reference.Run(ctx, s, name)
	if err != nil {
		return err
	}
	var all []messages.Record
	labels := &lineage.Labels{}
	if r.Session != "" {
		g, root, err := reference.RunGraph(ctx, s, &r)
		if err != nil {
			return err
		}
		all = g.StepsOf(s.Tenant(), r.Run)
		if labels, err = g.Labels(root); err != nil {
			return err
		}
	}
	steps := q.Choose(all)
	if done, err := app.Emit(a, steps); done {
		return err
	}
	if len(steps) > 0 {
		view.WriteSteps(a.Out, steps, labels.Of)
	}
	a.Remark("%d of %s   run %s", len(steps), view.Counted(int64(len(all)), "step"), r.Run)
	return nil
}

// showOn shows the session of a run, and each row that is added to it until the run
// ends.
func showOn(ctx context.Context, a *app.App, s *app.System, name string, full bool) error {
	r, err := reference.Run(ctx, s, name)
	if err != nil {
		return err
	}
	after, err := follow.Newest(ctx, s) // before reading the rows, so that none is missed
	if err != nil {
		return err
	}
	v, err := s.Sessions.Get(ctx, string(r.Session))
	if err != nil {
		return err
	}
	rows := uint64(len(v.Chunks))
	write := func(page *messages.Session, first bool) error {
		switch {
		case a.AsJSON():
			for i := range page.Chunks {
				if err := a.WriteLine(page.Chunks[i]); err != nil {
					return err
				}
			}
		case first:
			view.RunLine(a.Out, &r)
			view.WriteTranscript(a.Out, page, full)
		default:
			view.WriteRows(a.Out, page, full)
		}
		return nil
	}
	if err := write(&v, true); err != nil {
		return err
	}
	if r.State.Terminal() { // the rows are read since
		return ended(ctx, a, s, r.Run)
	}
	more := func() error {
		v, err := s.Sessions.After(ctx, string(r.Session), rows)
		if err == nil && len(v.Chunks) > 0 {
			rows += uint64(len(v.Chunks))
			err = write(&v, false)
		}
		return err
	}
	var failed error
	w := follow.Writing(a.Out)
	record := w.Record
	w.Record = func(rec messages.Record) {
		if record(rec); rec.Session == r.Session && rec.Rows > 0 || rec.Kind == messages.KindEnded {
			failed = errors.Join(failed, more())
		}
	}
	w.Person = func(rec messages.Record) { follow.Person(a, rec) }
	seen, err := follow.Watch(ctx, s, r.Run, r.Root, after, w)
	a.Out.Note("")
	switch {
	case errors.Is(err, app.ErrInterrupted):
		return app.Silent(app.ExitInterrupted)
	case err != nil:
		return err
	case seen.Result == nil:
		return errors.Join(failed, follow.Stopped(a, r.Run, seen, nil))
	}
	if err := errors.Join(failed, more()); err != nil {
		return err
	}
	return outcome(a, r.Run, seen.Result)
}
