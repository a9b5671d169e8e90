package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

const (
	// topEvery is the time between two readings, and topOnce that before the only page.
	topEvery = time.Second
	topOnce  = 5 * time.Second
	// topRuns bounds the open runs that are shown, topPages the pages of the lineage
	// that are read at a time.
	topRuns  = 1000
	topPages = 64
)

// Top is the command "top".
func Top(a *app.App) *cobra.Command {
	var once bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show fleet status: pools, rates, nodes, stuck runs",
		Long: `Shows pools with their free slots, the waiting runs and their waiting time, the
rates of runs, steps, tokens and errors, the nodes, streams without room, and
stuck runs, in the words of "rath why RUN". On a terminal it runs until an
interrupt; in a pipe, with --once or with another format than text it prints one
page. Rates cover the time between two readings: one second, five for a single
page, or --every.

Runs, tasks and rates are the tenant's; pools and nodes are the fleet's. OLDEST
is the time a run has waited for a slot: since its submission, its not_before or
its answer.`,
		Example: `  rath top
  rath top --once
  rath top --server nats://n1:4222 --tenant acme --format json`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return app.Usage(cmd, fmt.Errorf("--every %s: want 100ms or more", every))
			}
			ctx := cmd.Context()
			live := !once && a.Out.Terminal() && !a.AsJSON()
			if !live && !cmd.Flags().Changed("every") {
				every = topOnce
			}
			return a.With(ctx, func(s *app.System) error {
				return top(ctx, a, s, every, live)
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print one page")
	cmd.Flags().DurationVar(&every, "every", topEvery, "time between two readings")
	return cmd
}

func top(ctx context.Context, a *app.App, s *app.System, every time.Duration, live bool) error {
	at, err := follow.Newest(ctx, s)
	if err != nil {
		return err
	}
	var screen *term.Screen
	if live {
		screen = a.Out.Screen()
		defer screen.Close()
	}
	for began := time.Now(); ; {
		if err := rest(ctx, every); err != nil {
			return interrupted(ctx, err)
		}
		var t view.Top
		if at, t, err = readTop(ctx, s, at, began); err != nil {
			return interrupted(ctx, err)
		}
		began = time.UnixMilli(t.At)
		if screen == nil {
			if done, err := app.EmitOne(a, t); done {
				return err
			}
			view.WriteTop(a.Out, &t)
			return nil
		}
		if err := screen.Draw(func(w *term.Writer) { view.WriteTop(w, &t) }); err != nil {
			return err
		}
	}
}

// interrupted returns the error of a command that runs until it is interrupted.
func interrupted(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), app.ErrInterrupted) {
		return app.Silent(app.ExitInterrupted)
	}
	return err
}

// readTop reads the records after a cursor, since a time, and the current state of the
// fleet.
func readTop(ctx context.Context, s *app.System, after string, began time.Time) (next string, t view.Top, err error) {
	var c view.Counts
	for range topPages {
		page, err := s.Lineage.Page(ctx, "", after, 0)
		if err != nil {
			return after, t, err
		}
		for i := range page.Records {
			c.Add(&page.Records[i].Record)
		}
		after = page.Next
		if !page.More {
			break
		}
	}
	now := time.Now()
	t = view.Top{At: now.UnixMilli(), OverMS: now.Sub(began).Milliseconds(), Tenant: string(s.Tenant()), Rates: c.Per(now.Sub(began)), Runs: map[run.State]int{}}
	open, err := s.Runs.List(ctx, &client.RunsOptions{States: []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview}, Limit: topRuns})
	if err != nil {
		return after, t, err
	}
	q, err := s.Fleet.Quota(ctx)
	if err != nil {
		return after, t, err
	}
	if q.QuotaAmounts != (messages.QuotaAmounts{}) {
		t.Quota = &q
	}
	t.More = len(open) == topRuns
	for i := range open {
		t.Runs[open[i].State]++
	}
	if _, t.Untaken, err = s.Fleet.Tasks(ctx); err != nil {
		return after, t, err
	}
	if t.Nodes, err = s.Fleet.Nodes(ctx); err != nil {
		return after, t, err
	}
	workflows, err := s.Workflows(ctx)
	if err != nil {
		return after, t, err
	}
	t.Pools = view.PoolsOf(t.Nodes, workflows, open, now)
	if t.Streams, err = s.Fleet.Streams(ctx); err != nil {
		return after, t, err
	}
	t.Stuck, t.Unasked = view.StuckOf(ctx, s.Runs.Live, open)
	return after, t, nil
}
