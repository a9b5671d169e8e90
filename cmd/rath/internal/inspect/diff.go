package inspect

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/manifest"
	"github.com/rathcluster/rath/internal/view"
)

// Diff is the command "diff".
func Diff(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "diff A B",
		Short: "Compare the files of two sessions, versions or heads",
		Long: `Prints how the files of B differ from those of A, as a unified diff that git
apply and patch read. Each is a session, a version of one, a run, or the head of
a workspace (64 hexadecimal digits); "-" is no files.`,
		Example: `  rath diff 7f3a:4 7f3a
  rath diff 7f3a:4 @last > change.patch
  rath diff - @last               everything that is there`,
		Args: app.Exactly(2, "two sessions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				from, err := headOf(ctx, s, args[0])
				if err != nil {
					return err
				}
				to, err := headOf(ctx, s, args[1])
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

// headOf returns the files of what a name stands for.
func headOf(ctx context.Context, s *app.System, name string) (blob.Digest, error) {
	if name == "-" {
		return blob.Digest{}, nil
	}
	if _, err := hex.DecodeString(name); err == nil && len(name) == 64 {
		return blob.ParseDigest(name)
	}
	n, err := reference.Resolve(ctx, s, name)
	if err != nil {
		return blob.Digest{}, err
	}
	v, err := s.At(ctx, n.Ref(s.Tenant()))
	if err != nil {
		return blob.Digest{}, err
	}
	head := v.Placement().Head
	if head.IsZero() {
		return head, app.Fail(app.ExitNotFound, "session %s has no files: it was never sent to a sandbox", n)
	}
	return head, nil
}

// Unified is how files differ between two heads, as a unified diff.
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
