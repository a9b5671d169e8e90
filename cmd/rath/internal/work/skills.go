package work

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/agents/guide"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/workspace"
)

// skillsFlag names skills to add to the files of a task.
type skillsFlag []string

func (f *skillsFlag) add(fs *pflag.FlagSet) {
	fs.StringSliceVar((*[]string)(f), "skills", nil, "also start with the skills of a directory, a head, or the files of a session or run")
}

// check rejects an empty name.
func (f skillsFlag) check(cmd *cobra.Command) error {
	if slices.Contains(f, "") || len(f) == 0 && cmd.Flags().Changed("skills") {
		return app.Usage(cmd, errors.New("--skills has an empty name: want a directory, a head, a session or a run"))
	}
	return nil
}

// layIn adds the skills to the initial files of a task.
func (f skillsFlag) layIn(ctx context.Context, a *app.App, s *app.System, t *messages.Task) error {
	if len(f) == 0 {
		return nil
	}
	if t.Workspace == "" && (t.Session != "" || t.ForkOf != "") {
		return app.Fail(app.ExitUsage, "--skills goes with new files: give them with -C, or leave --session and --fork-of out")
	}
	var head blob.Digest
	var err error
	if t.Workspace != "" {
		if head, err = blob.ParseDigest(t.Workspace); err != nil {
			return err
		}
	}
	b := s.Blobs(s.Tenant())
	from := map[blob.Digest]string{}
	for _, name := range f {
		bundle, err := skillsOf(ctx, a, s, name)
		if err != nil {
			return err
		}
		if same, ok := from[bundle]; ok {
			return app.Fail(app.ExitUsage, "--skills %s was given already, as %s: give it once", name, same)
		}
		from[bundle] = name
		var names []string
		head, names, err = guide.LayIn(ctx, b, head, bundle)
		switch {
		case errors.Is(err, guide.ErrBundle):
			return app.Fail(app.ExitUsage, "--skills %s: %s", name, err)
		case errors.Is(err, blob.ErrNotFound):
			return app.Fail(app.ExitNotFound, "--skills %s: these files are not stored here", name)
		case err != nil:
			return err
		}
		a.Remark("skills of %s: %s", name, strings.Join(names, ", "))
	}
	t.Workspace = head.String()
	return nil
}

// skillsOf returns the head of a directory of this host, or of a session, run or head.
func skillsOf(ctx context.Context, a *app.App, s *app.System, name string) (blob.Digest, error) {
	if fi, err := os.Stat(name); err == nil && fi.IsDir() {
		o := importOptions(a, s, name)
		in, err := workspace.Import(ctx, s.Blobs(s.Tenant()), name, &o)
		if err != nil {
			return in.Head, fmt.Errorf("--skills %s: %w", name, err)
		}
		leftOut(a, name, &in)
		return in.Head, nil
	}
	head, err := reference.Head(ctx, s, name)
	switch {
	case err != nil:
		return head, fmt.Errorf("--skills %s: no such directory, and %w", name, err)
	case head.IsZero():
		return head, app.Fail(app.ExitUsage, "--skills %s: name a directory, a head, a session or a run", name)
	}
	return head, nil
}
