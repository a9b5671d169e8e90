package main

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/workspace"
)

func (a *app) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff A B",
		Short: "Compare the files of two sessions, versions or heads",
		Long: `Prints how the files of B differ from those of A, as a unified diff that git
apply and patch read. Each is a session, a version of one, a run, or the head of
a workspace (64 hexadecimal digits); "-" is no files.`,
		Example: `  rath diff 7f3a:4 7f3a
  rath diff 7f3a:4 @last > change.patch
  rath diff - @last               everything that is there`,
		Args: exactly(2, "two sessions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error {
				if err := s.direct("diff"); err != nil {
					return err
				}
				from, err := s.headOf(ctx, args[0])
				if err != nil {
					return err
				}
				to, err := s.headOf(ctx, args[1])
				if err != nil {
					return err
				}
				return a.diff(ctx, s, from, to)
			})
		},
	}
}

func (a *app) diff(ctx context.Context, s *system, from, to blob.Digest) error {
	text, err := unified(ctx, s.blobs(s.Tenant()), from, to)
	if err != nil {
		return err
	}
	if done, err := emitOne(a, struct {
		From blob.Digest `json:"from"`
		To   blob.Digest `json:"to"`
		Diff string      `json:"diff"`
	}{from, to, text}); done {
		return err
	}
	view.WriteDiff(a.out, text)
	return nil
}

// headOf returns the files of what a name stands for.
func (s *system) headOf(ctx context.Context, name string) (blob.Digest, error) {
	if name == "-" {
		return blob.Digest{}, nil
	}
	if _, err := hex.DecodeString(name); err == nil && len(name) == 64 {
		return blob.ParseDigest(name)
	}
	n, err := s.resolve(ctx, name)
	if err != nil {
		return blob.Digest{}, err
	}
	v, err := s.at(ctx, n.ref(s.Tenant()))
	if err != nil {
		return blob.Digest{}, err
	}
	head := v.Placement().Head
	if head.IsZero() {
		return head, fail(exitNotFound, "session %s has no files: it was never sent to a sandbox", n)
	}
	return head, nil
}

func unified(ctx context.Context, b blob.Store, from, to blob.Digest) (string, error) {
	patch, err := workspace.Patch(ctx, b, from, to)
	if errors.Is(err, blob.ErrNotFound) {
		return "", fail(exitNotFound, "there are no files with this head in the store: %w", err)
	}
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = workspace.WriteUnified(&text, patch)
	return text.String(), err
}
