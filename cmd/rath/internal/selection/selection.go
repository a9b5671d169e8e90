package selection

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
)

// Selection is the choice of a command's runs: one by its name, or all that match a
// selector.
type Selection struct {
	Where  string
	DryRun bool
}

// Flags adds --where and --dry-run.
func (o *Selection) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Where, "where", "", `matching runs, such as 'tool=grep and state=failed'; see "help where"`)
	fs.BoolVar(&o.DryRun, "dry-run", false, "print the changes without making them")
}

// Args takes one name, or none with --where.
func (o *Selection) Args(cmd *cobra.Command, args []string) error {
	switch {
	case o.Where != "" && len(args) > 0:
		return app.Usage(cmd, errors.New("give a run or --where, not both"))
	case o.Where == "" && len(args) != 1:
		return app.Usage(cmd, errors.New("give one run, or --where"))
	}
	return nil
}

// Selector parses --where, and completes abbreviated ids.
func Selector(ctx context.Context, a *app.App, s *app.System, where string) (*lineage.Selector, error) {
	sel, err := lineage.ParseSelector(where)
	if e, ok := errors.AsType[*lineage.SelectorError](err); ok {
		found := "the end"
		if e.Found != "" {
			found = fmt.Sprintf("%q", term.Line(e.Found, 40))
		}
		return nil, app.Fail(app.ExitUsage, "--where: want %s, found %s:\n  %s", e.Want, found, strings.ReplaceAll(e.Caret(a.Err.Width()-2), "\n", "\n  "))
	}
	if err != nil {
		return nil, err
	}
	return sel.Bind(func(field, value string) (string, error) {
		n, err := reference.Resolve(ctx, s, value)
		switch {
		case err != nil:
			return "", fmt.Errorf("--where: %s=%s: %w", field, value, err)
		case n.Version != 0 && n.Run == nil:
			return "", app.Fail(app.ExitUsage, "--where: %s=%s: a selector chooses by sessions, not by versions", field, value)
		case (field == "run" || field == "parent") && n.Run == nil:
			return "", app.Fail(app.ExitNotFound, "--where: %s=%s: that is a session, not a run", field, value)
		case field == "run" || field == "parent":
			return string(n.Run.Run), nil
		case n.Run != nil:
			return string(n.Run.Session), nil
		}
		return string(n.Session), nil
	})
}

// chosen returns the runs of a selection, the newest first.
func chosen(ctx context.Context, a *app.App, s *app.System, o *Selection, args []string) ([]messages.RunInfo, error) {
	if o.Where == "" {
		r, err := reference.Run(ctx, s, args[0])
		return []messages.RunInfo{r}, err
	}
	sel, err := Selector(ctx, a, s, o.Where)
	if err != nil {
		return nil, err
	}
	return s.ListRuns(ctx, client.RunsOptions{Where: sel.String()})
}
