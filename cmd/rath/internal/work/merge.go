package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
)

// Merge is the command "merge".
func Merge(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "merge A B",
		Short: "Merge two sessions into a new one",
		Long: `Creates a new session from the chunks of one session, followed by those of
another, with the files of the first, and prints its id. Both stay unchanged,
and need not be related. It is a task of the workflow "merge". Without a running
node this command is one meanwhile: other waiting runs of the store continue
too.`,
		Example: `  rath session merge 7f3a 91bc
  rath session merge 7f3a:4 @last`,
		Args: app.Exactly(2, "two sessions"),
		RunE: func(cmd *cobra.Command, args []string) error { return merge(cmd.Context(), a, args) },
	}
	return cmd
}

func merge(ctx context.Context, a *app.App, names []string) (err error) {
	s, err := a.OpenThere(ctx, &node.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var in wire.MergeInput
	var heads []blob.Digest
	for _, name := range names {
		n, err := reference.Resolve(ctx, s, name)
		if err != nil {
			return err
		}
		v, err := s.Sessions.Get(ctx, n.String()) // at its current version
		if err != nil {
			return err
		}
		heads = append(heads, v.Placement.Head)
		in.Sessions = append(in.Sessions, fmt.Sprintf("%s:%d", v.Session, v.Version))
	}
	if err := in.Check(); err != nil {
		return app.WithCode(app.ExitUsage, err)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := s.Do(ctx, node.WorkflowMerge, messages.Task{ID: client.NewID(), Input: body}, nil)
	if err != nil {
		return err
	}
	if err := r.Err(); err != nil {
		return app.WithCode(app.StateCode(r.State), fmt.Errorf("merge %s and %s: %w", in.Sessions[0], in.Sessions[1], err))
	}
	if done, err := app.EmitOne(a, made{r.Session, r.Version, in.Sessions}); done {
		return err
	}
	a.Out.Println(r.Session)
	if heads[1] != heads[0] && !heads[1].IsZero() {
		a.Remark("the files are those of %s; %q merges both", names[0], a.Hint("workspace", "merge", names[0], names[1]))
	}
	return nil
}
