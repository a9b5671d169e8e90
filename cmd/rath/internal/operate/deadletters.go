package operate

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// DeadLetters is the command "dlq".
func DeadLetters(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dlq",
		Short:   "List, show, retry or drop rejected tasks",
		Example: "  rath cluster dlq ls\n  rath cluster dlq retry 12",
		Args:    app.NoSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(deadLettersLs(a), deadLettersShow(a), deadLettersRetry(a), deadLettersDrop(a))
	return cmd
}

func deadLettersLs(a *app.App) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the open dead letters",
		Long: `Lists the dead letters, oldest first: tasks rejected because they are malformed,
their workflow is unknown, or their id belongs to another task. The first column
is the number of the dead letter.`,
		Example: "  rath cluster dlq ls\n  rath cluster dlq show 12",
		Args:    app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return app.Usage(cmd, fmt.Errorf("--limit %d: want the most rows to list, or 0 for all", limit))
			}
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				all, err := s.Fleet.DeadLetters(ctx, limit)
				if err != nil {
					return err
				}
				if done, err := app.Emit(a, all); done {
					return err
				}
				if len(all) == 0 {
					a.Remark("no dead letters in tenant %s", s.Tenant())
					return nil
				}
				now := time.Now()
				shortID := view.ShortIDs(view.IDsOf(all, func(r *messages.StoredLetter) run.ID { return r.Letter.Run }))
				rows := make([][]string, len(all))
				for i, l := range all {
					_, from, workflow, _ := messages.ParseTaskSubject(l.Letter.Subject)
					rows[i] = []string{
						strconv.FormatUint(l.At, 10), cmp.Or(workflow, "-"), submitter(from), cmp.Or(shortID(l.Letter.Run), "-"), string(l.Letter.Code),
						view.Age(now, time.UnixMilli(l.Letter.TimeMS)), term.Line(l.Letter.Reason, 60),
					}
				}
				a.Out.Rows([]string{"NUMBER", "WORKFLOW", "USER", "RUN", "CODE", "AGE", "REASON"}, rows)
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of rows; 0 for all")
	return cmd
}

// submitter names the users who submitted and resubmitted a rejected task; "-" if its
// subject names none.
func submitter(from messages.Submitter) string {
	if from.Via != "" {
		return from.By + ", again by " + from.Via
	}
	return cmp.Or(from.By, "-")
}

// aboutLetter returns the function of a command on the letter whose number is the
// argument.
func aboutLetter(a *app.App, do func(ctx context.Context, s *app.System, at uint64) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		at, err := strconv.ParseUint(args[0], 10, 63)
		if err != nil || at == 0 {
			return app.Usage(cmd, fmt.Errorf("%q: want the number of a dead letter, as \"cluster dlq ls\" lists them", args[0]))
		}
		ctx := cmd.Context()
		return a.With(ctx, func(s *app.System) error { return do(ctx, s, at) })
	}
}

func deadLettersShow(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:     "show NUMBER",
		Short:   "Show a rejected task with the reason",
		Long:    "Shows a rejected task: the reason, and below an empty line the task.",
		Example: "  rath cluster dlq show 12\n  rath cluster dlq show 12 --format json | jq -r .text",
		Args:    app.Exactly(1, "one number"),
		RunE: aboutLetter(a, func(ctx context.Context, s *app.System, at uint64) error {
			l, err := s.Fleet.DeadLetter(ctx, at)
			if err != nil {
				return err
			}
			if done, err := app.EmitOne(a, l); done {
				return err
			}
			rows := [][]string{{"code", string(l.Code)}}
			what := "reason"
			for _, line := range term.Wrap(term.Clean(l.Reason), a.Out.Width()-len("subject  ")) {
				rows = append(rows, []string{what, line})
				what = ""
			}
			_, from, _, _ := messages.ParseTaskSubject(l.Subject)
			a.Out.Rows(nil, append(rows,
				[]string{"subject", l.Subject},
				[]string{"user", submitter(from)},
				[]string{"run", cmp.Or(string(l.Run), "-")},
				[]string{"sent", view.Moment(time.UnixMilli(l.TimeMS)) + ", " + view.Counted(int64(l.Bytes), "byte")},
			))
			a.Out.Println()
			a.Out.Println(term.Clean(string(l.Payload())))
			if l.Truncated {
				a.Remark("the rest was not kept")
			}
			return nil
		}),
	}
}

func deadLettersRetry(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "retry NUMBER",
		Short: "Submit a rejected task again, and print the id of its run",
		Long: `Submits a rejected task again and prints the id of its run, for example after a
node offers its workflow. While no node does, the dead letter stays. A malformed
task would be rejected again: correct it and submit it as a new one.`,
		Example: "  rath cluster dlq retry 12",
		Args:    app.Exactly(1, "one number"),
		RunE: aboutLetter(a, func(ctx context.Context, s *app.System, at uint64) error {
			if err := takesLetter(ctx, s, at); err != nil {
				return err
			}
			id, err := s.Fleet.RetryDeadLetter(ctx, at, messages.Control{By: a.Getenv("USER")})
			if err != nil {
				return err
			}
			if done, err := app.EmitOne(a, app.Submitted{Run: id}); done {
				return err
			}
			a.Out.Println(id)
			return nil
		}),
	}
}

// takesLetter returns an error for a letter whose workflow no node offers, if the nodes
// can be asked: its task would be rejected again.
func takesLetter(ctx context.Context, s *app.System, at uint64) error {
	ctx, cancel := context.WithTimeout(ctx, app.AskTimeout)
	defer cancel()
	l, err := s.Fleet.DeadLetter(ctx, at)
	_, _, workflow, ok := messages.ParseTaskSubject(l.Subject)
	if err != nil || !ok {
		return nil // the retry itself fails, with the reason
	}
	if err := s.Offered(ctx, workflow); app.CodeOf(err) == app.ExitNotFound {
		return app.Fail(app.ExitNotFound, "dead letter %d is left as it is: %w", at, err)
	}
	return nil
}

func deadLettersDrop(a *app.App) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "drop NUMBER",
		Short:   "Remove a rejected task from the list",
		Long:    "Removes a rejected task from the list. The dead letter is kept as evidence, with\nthe user and the reason of the drop.",
		Example: `  rath cluster dlq drop 12 --reason "sent by mistake"`,
		Args:    app.Exactly(1, "one number"),
		RunE: aboutLetter(a, func(ctx context.Context, s *app.System, at uint64) error {
			if err := s.Fleet.DropDeadLetter(ctx, at, messages.Control{By: a.Getenv("USER"), Reason: reason}); err != nil {
				return err
			}
			a.Remark("dropped")
			return nil
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept as evidence")
	return cmd
}
