package inspect

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/session"
)

// Diff is the command "diff".
func Diff(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "diff RUN | A B",
		Short: "Show the file changes of a run, or compare two sessions",
		Long: `Prints a unified diff for git apply and patch: the changes of a run to its
initial files or, for two names, the differences from the files of A to those of
B. Each is a session, a version of one, a run, or the head of a workspace (64
hexadecimal digits); "-" is no files.`,
		Example: `  rath diff @last                 what the last run changed
  rath diff 7f3a:4 7f3a
  rath diff 7f3a:4 @last > change.patch
  rath diff - @last               everything that is there`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return app.Exactly(2, "one run, or two sessions")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				if len(args) == 1 {
					from, to, err := headsOf(ctx, s, args[0])
					if err != nil {
						return err
					}
					return diff(ctx, a, s, from, to)
				}
				from, err := reference.Head(ctx, s, args[0])
				if err != nil {
					return err
				}
				to, err := reference.Head(ctx, s, args[1])
				if err != nil {
					return err
				}
				return diff(ctx, a, s, from, to)
			})
		},
	}
}

func diff(ctx context.Context, a *app.App, s *app.System, from, to blob.Digest) error {
	text, err := Unified(ctx, s.Blobs(s.Tenant()), from, to)
	if err != nil {
		return err
	}
	if done, err := app.EmitOne(a, struct {
		From blob.Digest `json:"from"`
		To   blob.Digest `json:"to"`
		Diff string      `json:"diff"`
	}{from, to, text}); done {
		return err
	}
	view.WriteDiff(a.Out, text)
	return nil
}

// headsOf returns the files with which a run began, and its files so far.
func headsOf(ctx context.Context, s *app.System, name string) (from, to blob.Digest, err error) {
	r, err := reference.Run(ctx, s, name)
	if err != nil {
		return from, to, err
	}
	if to, err = reference.Head(ctx, s, string(r.Run)); err != nil {
		return from, to, err
	}
	recorded, err := s.Values.Recording(ctx, session.Key{Tenant: s.Tenant(), ID: r.Session}, r.Run)
	if err != nil {
		return from, to, err
	}
	if from = recorded.Record.Task.Workspace; from.IsZero() {
		from = recorded.Base.Placement().Head
	}
	return from, to, nil
}

// Unified returns the difference between two heads as a unified diff.
func Unified(ctx context.Context, b blob.Store, from, to blob.Digest) (string, error) {
	patch, err := manifest.Patch(ctx, b, from, to)
	if errors.Is(err, blob.ErrNotFound) {
		return "", app.Fail(app.ExitNotFound, "there are no files with this head in the store: %w", err)
	}
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = manifest.WriteUnified(&text, patch)
	return text.String(), err
}
