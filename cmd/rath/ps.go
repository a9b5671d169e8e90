package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// noHead is no files.
var noHead blob.Digest

func (a *app) psCommand() *cobra.Command {
	var states []string
	var workflow, where string
	var limit int
	var watch, branches bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List runs, the newest first",
		Long: `Lists runs. NODE is the node that a run is on or ended on, "-" while it is on
none; "nodes ls" tells of it. --where chooses some runs by what they did and how
they stand, see "help where". With --watch it goes on: on a terminal the list is
drawn anew when something changes; otherwise each run that is new or has changed
is a line. Branches of fan-outs are runs too: --branches, or any --where, lists
them.`,
		Example: `  rath ps
  rath ps --state running,needs_review
  rath ps --where 'tool=run_shell_command and state=failed and not older=1d'
  rath ps --where under=@last --watch
  rath ps --workflow review --limit 100 -o jsonl`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usage(cmd, fmt.Errorf("--limit %d: want the most rows to list, or 0 for all", limit))
			}
			o := &client.RunsOptions{Workflow: workflow, Where: where, Limit: limit}
			for _, name := range states {
				st := run.State(strings.TrimSpace(name))
				if !known(st) {
					return usage(cmd, fmt.Errorf("%q is no state; the states are %s", name, list(stateNames())))
				}
				o.States = append(o.States, st)
			}
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error {
				if o.Where != "" {
					sel, err := a.selector(ctx, s, o.Where)
					if err != nil {
						return err
					}
					o.Where = sel.String()
				}
				if where == "" && !branches {
					o.Where = "branch=no"
				}
				if watch {
					return a.watchRuns(ctx, s, o)
				}
				return a.ps(ctx, s, o)
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only runs in these states, separated by commas")
	cmd.Flags().StringVar(&workflow, "workflow", "", "only runs of this workflow")
	cmd.Flags().StringVar(&where, "where", "", `only runs that this chooses, such as 'tool=grep and state=failed'; see "help where"`)
	cmd.Flags().BoolVar(&branches, "branches", false, "also branches of fan-outs")
	cmd.Flags().IntVar(&limit, "limit", 20, "at most so many; 0 for all")
	cmd.Flags().BoolVar(&watch, "watch", false, "go on, and show what changes")
	return cmd
}

var allStates = []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview, run.Succeeded, run.Failed, run.Cancelled, run.TimedOut}

func known(s run.State) bool {
	return slices.Contains(allStates, s)
}

func stateNames() []string {
	names := make([]string, len(allStates))
	for i, s := range allStates {
		names[i] = string(s)
	}
	return names
}

func (a *app) ps(ctx context.Context, s *system, o *client.RunsOptions) error {
	runs, err := s.Runs(ctx, o)
	if err != nil {
		return err
	}
	if done, err := emit(a, runs); done {
		return err
	}
	if len(runs) == 0 {
		if o.Where != "" && o.Where != "branch=no" || o.Workflow != "" || len(o.States) > 0 {
			a.remark("no such runs in tenant %s", s.Tenant())
		} else {
			a.remark("no runs in tenant %s", s.Tenant())
		}
	} else {
		names, err := s.namesOfNodes(ctx)
		if err != nil {
			return err
		}
		a.tableOf(runs, names, a.out.Terminal())
	}
	if o.Where != "" && o.Where != "branch=no" || o.Workflow != "" || len(o.States) > 0 && !slices.Contains(o.States, run.Queued) {
		return nil
	}
	switch n, err := s.Waiting(ctx); {
	case err != nil:
		return err
	case n > 0:
		a.remark("%s", waitToBeTaken(n))
	}
	return nil
}

// waitToBeTaken says how many tasks no node has taken.
func waitToBeTaken(n uint64) string {
	if n == 1 {
		return "1 task waits to be taken by a node"
	}
	return counted(int64(n), "task") + " wait to be taken by a node"
}

// namesOfNodes returns the names of the nodes that live, by incarnation.
func (s *system) namesOfNodes(ctx context.Context) (map[string]string, error) {
	all, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(all))
	for _, n := range all {
		if n.Name != n.Incarnation {
			names[n.Incarnation] = n.Name
		}
	}
	return names, nil
}

// nodeColumns bounds the name of a node in a table of runs, so that a row fits in
// 80 columns.
const nodeColumns = 8

// nodeOf names the node that a run is on, or that it ended on: a run that waits
// or is queued is on none. Of a node without another name, or one that is gone, it
// is the beginning of the incarnation. Long names lose their beginnings, which the
// pods of a fleet share.
func nodeOf(r *messages.RunInfo, names map[string]string) string {
	name, named := names[r.Node]
	switch {
	case r.Node == "", r.State != run.Running && !r.State.Terminal():
		return "-"
	case !named:
		return r.Node[:min(len(r.Node), nodeColumns)]
	case len(name) > nodeColumns: // an id, which is ASCII
		return "…" + name[len(name)-nodeColumns+1:]
	}
	return name
}

// noteColumns bounds the note of a run that stands in its row.
const noteColumns = 60

// tableOf writes runs; names are those of the nodes. With below, a note that the
// window would cut off stands in a line of its own.
func (a *app) tableOf(runs []messages.RunInfo, names map[string]string, below bool) {
	now := time.Now()
	shortID := shortRuns(idsOf(runs))
	rows := make([][]string, len(runs))
	notes := make([]string, len(runs))
	for i := range runs {
		r := &runs[i]
		rows[i] = []string{
			shortID(r.Run), string(r.State), r.Workflow, lineage.Short(r.Session), nodeOf(r, names), fmt.Sprint(r.Steps), thousands(r.Usage.Tokens()),
			age(now, time.UnixMilli(r.Submitted)),
		}
		notes[i] = note(r, shortID)
	}
	width := math.MaxInt
	if below {
		width = a.out.Width()
	}
	headers := []string{"RUN", "STATE", "WORKFLOW", "SESSION", "NODE", "STEPS", "TOKENS", "AGE", ""}
	a.out.Rows(headers, withNotes(headers, rows, notes, width))
}

// withNotes puts a note behind each row, or all of them below their rows where
// the window is too narrow for one of them.
func withNotes(headers []string, rows [][]string, notes []string, width int) [][]string {
	taken := 0
	for column := range headers[:len(headers)-1] {
		widest := term.Width(headers[column])
		for _, r := range rows {
			widest = max(widest, term.Width(r[column]))
		}
		taken += widest + 2
	}
	below := slices.ContainsFunc(notes, func(n string) bool { return taken+term.Width(term.Line(n, noteColumns)) > width })
	var out [][]string
	for i, r := range rows {
		switch {
		case !below:
			out = append(out, append(slices.Clone(r), term.Line(notes[i], noteColumns)))
		case notes[i] == "":
			out = append(out, append(slices.Clone(r), ""))
		default:
			out = append(out, append(slices.Clone(r), ""), []string{"  " + term.Line(notes[i], width-2)})
		}
	}
	return out
}

// shortRuns returns how to write the ids of the runs in a table: their beginnings,
// as long as it takes to tell them apart, and 12 characters at least.
func shortRuns(ids []run.ID) func(run.ID) string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	n := 12
	for i := 1; i < len(ids); i++ {
		same := 0
		for same < len(ids[i-1]) && ids[i][same] == ids[i-1][same] { // sorted: it is the longer one
			same++
		}
		n = max(n, same+1)
	}
	return func(id run.ID) string { return string(id[:min(len(id), n)]) }
}

// runIDs returns the run of each row.
func runIDs[T any](rows []T, of func(*T) run.ID) []run.ID {
	ids := make([]run.ID, len(rows))
	for i := range rows {
		ids[i] = of(&rows[i])
	}
	return ids
}

// idsOf returns the ids that a table of runs shows.
func idsOf(runs []messages.RunInfo) []run.ID {
	var ids []run.ID
	for i := range runs {
		ids = append(ids, runs[i].Run)
		if runs[i].Behind != "" {
			ids = append(ids, runs[i].Behind)
		}
		if runs[i].BranchOf != nil {
			ids = append(ids, runs[i].BranchOf.Run)
		}
	}
	return ids
}

// note says what is special about a run.
func note(r *messages.RunInfo, shortID func(run.ID) string) string {
	switch {
	case r.Quarantine != "":
		return "set apart: " + r.Quarantine
	case r.Behind != "":
		return "waits for " + shortID(r.Behind)
	case r.Review != nil:
		return r.Review.Reason
	case r.State == run.Waiting && len(r.Waits) > 0:
		return r.Waits[0].String()
	case r.State.Terminal():
		return reasonOf(r)
	case r.Cancelled:
		return "is asked to stop"
	case r.Attempt > 1 && r.BranchOf == nil:
		return fmt.Sprintf("attempt %d", r.Attempt)
	case r.Branch != "":
		return "branch " + r.Branch + " of " + shortID(r.BranchOf.Run)
	}
	return r.Reason
}

// reasonOf is why a run ended, in the words of all errors.
func reasonOf(r *messages.RunInfo) string {
	if r.Reason == "" {
		return ""
	}
	return messages.Text(errors.New(r.Reason))
}

// list writes names with commas.
func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
