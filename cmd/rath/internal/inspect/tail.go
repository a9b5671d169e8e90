package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Tail is the command "tail".
func Tail(a *app.App) *cobra.Command {
	var after string
	var live bool
	var kinds []string
	cmd := &cobra.Command{
		Use:   "tail [NAME]",
		Short: "Print lineage records, with -f also new ones",
		Long: `Prints the records of the tree of one session, or of all sessions, one line
each. --format json prints one object per line, like jsonl: "record", and its
"cursor". A later tail continues after a record with --after and its cursor: no
record is missing or repeated, also after a lost connection, a restart of nodes
and "cluster repair". --after end starts with later commits.`,
		Example: `  rath cluster tail                      everything, from the beginning
  rath cluster tail -f @last
  rath cluster tail -f --after end --format jsonl
  rath cluster tail -f --kind adopted,rejected`,
		Args: app.AtMost(1, "one session or run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, k := range kinds {
				if !slices.Contains(messages.Kinds(), messages.Kind(k)) {
					return app.Usage(cmd, fmt.Errorf("%q is no kind of record; the kinds are %s", k, view.Names(kindNames())))
				}
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			if _, err := lineage.ParseCursor(after); err != nil && after != client.TailEnd {
				return app.Usage(cmd, fmt.Errorf("--after %q: want the cursor of a record that --format jsonl printed, or %s", after, client.TailEnd))
			}
			return a.With(cmd.Context(), func(s *app.System) error { return tail(cmd.Context(), a, s, name, after, live, kinds) })
		},
	}
	cmd.Flags().BoolVarP(&live, "follow", "f", false, "continue with new records")
	cmd.Flags().StringVar(&after, "after", "", "begin after this `cursor`; \"end\" for later commits")
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "only records of these kinds, separated by commas")
	return cmd
}

func kindNames() []string {
	var names []string
	for _, k := range messages.Kinds() {
		names = append(names, string(k))
	}
	return names
}

func tail(ctx context.Context, a *app.App, s *app.System, name, after string, live bool, kinds []string) error {
	var root session.ID
	if name != "" {
		n, err := reference.Resolve(ctx, s, name)
		if err != nil {
			return err
		}
		root = n.Session
	}
	put := func(r *messages.LineageRecord) error {
		if len(kinds) > 0 && !slices.Contains(kinds, string(r.Record.Kind)) {
			return nil
		}
		return record(a, r)
	}
	if !live {
		return reference.Recorded(ctx, s, root, after, put)
	}
	again := func() string {
		words := []string{"cluster", "tail", "-f"}
		if name != "" {
			words = append(words, name)
		}
		if after != "" {
			words = append(words, "--after", after)
		}
		return a.Hint(words...)
	}
	if s.Alone { // while this holds the store, no other process can write into it
		err := reference.Recorded(ctx, s, root, after, func(r *messages.LineageRecord) error {
			after = r.Cursor
			return put(r)
		})
		if err == nil {
			err = app.Fail(app.ExitUnavailable, "no node runs here, so there are no new records: start %q, then continue with %q", a.Hint("dev"), again())
		}
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil)
	group.Go(func() {
		select {
		case to := <-s.Moved:
			cancel(movedTo(to))
		case <-ctx.Done():
		}
	})
	for r, err := range s.Lineage.Tail(ctx, string(root), after) {
		if errors.Is(err, context.Canceled) {
			if to, ok := errors.AsType[movedTo](context.Cause(ctx)); ok {
				return s.Elsewhere(string(to), again())
			}
			return app.Silent(app.ExitInterrupted)
		}
		if err == nil {
			after = r.Cursor
			err = put(&r)
		}
		if err == nil {
			err = a.Out.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// movedTo is the cause of the end of a tail whose node has restarted at another
// address.
type movedTo string

func (m movedTo) Error() string { return "the node is at " + string(m) }

// record prints one record.
func record(a *app.App, r *messages.LineageRecord) error {
	if a.AsJSON() { // a stream of records is one object per line in either form
		return a.WriteLine(r)
	}
	a.Out.Println(view.RecordLine(a.Out, r))
	return nil
}
