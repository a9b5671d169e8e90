package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/view"
)

// repairedPartition is the outcome of one partition.
type repairedPartition struct {
	Partition int    `json:"partition"`
	From      uint64 `json:"from,omitempty"`
	Published int    `json:"published"`
	Removed   int    `json:"removed"`
}

// Repair is the command "repair".
func Repair(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "repair",
		Short: "Derive lineage again that was lost",
		Long: `Has each partition's relay compare what LINEAGE holds with the commits, and
derive again what is missing: lists, "top", "why" and "cluster tail" read it. A
disk that was full, or a power cut, can lose the end of LINEAGE on one replica;
nodes notice that by themselves when they connect again, and "cluster audit"
finds what is missing. Runs go on meanwhile. Nothing that was kept is changed,
and what is left of purged sessions stays. Repairing again does nothing.

It takes the role operate, and a node at work.`,
		Example: `  rath cluster repair
  rath cluster repair --server nats://nats:4222 --creds operate.creds`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error { return repair(ctx, a, s) })
		},
	}
}

func repair(ctx context.Context, a *app.App, s *app.System) error {
	all, failed := s.Lineage.Repair(ctx)
	rows := make([]repairedPartition, len(all))
	for i, r := range all {
		rows[i] = repairedPartition{i, r.From, r.Published, r.Removed}
	}
	done, err := app.Emit(a, rows)
	if done {
		return errors.Join(err, failed)
	}
	missing := 0
	cells := make([][]string, len(rows))
	for i, r := range rows {
		missing += r.Published - r.Removed
		from := "-"
		if r.From > 0 {
			from = excerpt.Thousands(int64(r.From))
		}
		cells[i] = []string{fmt.Sprint(r.Partition), from, excerpt.Thousands(int64(r.Published)), excerpt.Thousands(int64(r.Removed))}
	}
	a.Out.Rows([]string{"PARTITION", "FROM COMMIT", "DERIVED", "REPLACED"}, cells)
	switch {
	case failed != nil:
	case missing == 0:
		a.Remark("nothing was missing")
	default:
		a.Remark("%s missing, and are there again", view.Counted(int64(missing), "message")+" of LINEAGE were")
	}
	return failed
}
