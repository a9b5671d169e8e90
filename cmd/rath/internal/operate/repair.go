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
		Short: "Derive lost lineage again",
		Long: `Makes each partition's relay compare LINEAGE with the commits, and derive
missing records again: lists, "top", "why" and "cluster tail" read them. On one
replica a full disk or a power cut can lose the end of LINEAGE. Nodes detect
this when they reconnect, and "cluster audit" names missing records. Runs
continue meanwhile. Existing records and those of purged sessions stay
unchanged. A second repair changes nothing.

It needs the role operate, and a running node.`,
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
