package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/nats/retention"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

// pruneFlags are the flags of prune.
type pruneFlags struct {
	older, out string
	keep       []string
	dry        bool
	blobs      bool
	grace      string
	monitor    []string
}

// Prune is the command "prune".
func Prune(a *app.App) *cobra.Command {
	var f pruneFlags
	cmd := &cobra.Command{
		Use:   "prune --older-than AGE | --blobs",
		Short: "Archive old finished sessions and purge them, or remove blobs",
		Long: `Archives each tree of sessions that has finished and was not used for a
while, one file for each, and purges it from the streams. A tree is a session
with all its forks and branches, and the trees that these refer to. It is kept
if anything in it is open: a run, a branch, a quarantine.

A file holds everything: all commits, the blobs and the workspaces that they
name. "verify" checks it offline, "cluster import" brings its sessions back. It
is written, synced and read back before anything is purged. Whether the
directory can be written is tried first; a tree whose file cannot be written
goes on, and the other ones are archived. A prune that was cut off leaves trees
fenced: they take nothing until the next one finishes them, with the same
directory, or lets them go on, with --keep TENANT=forever.

Of a purged session the last commit stays, whose hash stands for all of them:
the session cannot begin again, and a command that asks for it names the file
to import. Its results go with it; ids stay used, and a task that is submitted
again under one is not run again. Lineage and blobs stay.

--blobs removes the blobs that no log, waiting task, result or dead letter
names, nor a blob that one of these names, such as the files of purged sessions.
Nodes and clients may write meanwhile. A blob goes only when it was stored, or
asked for by a writer, longer than a day and --grace ago. One that is named and
lost is told.

Age is counted from a tree's last commit: 90s, 36h, 30d. --keep gives a tenant
an age of its own, or "forever". Without --tenant all tenants are pruned.

It takes the operator's credentials on a server (nodes may not purge), and the
addresses of --monitor, as a node does, to store there at level fsync. Over a
store it takes none.`,
		Example: `  rath cluster prune --older-than 30d --dry-run
  rath cluster prune --older-than 30d --keep acme=365d --keep legal=forever
  rath cluster prune --older-than 30d --creds op.creds --monitor http://n:8222
  rath cluster prune --blobs --dry-run`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.blobs {
				o, err := sweepOptions(a, &f)
				if err != nil {
					return app.Usage(cmd, err)
				}
				return sweep(cmd.Context(), a, &f, o)
			}
			o, err := retentionOptions(a, &f)
			if err != nil {
				return app.Usage(cmd, err)
			}
			return prune(cmd.Context(), a, &f, o)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.older, "older-than", "", "age from which on a tree is archived: 36h, 30d")
	fs.StringArrayVar(&f.keep, "keep", nil, "TENANT=AGE or TENANT=forever; can be given again")
	fs.StringVar(&f.out, "out", "", "directory of the archives (default archives, in the store if there is one)")
	fs.BoolVar(&f.dry, "dry-run", false, "only tell what would be archived, or removed, and how much stays")
	fs.BoolVar(&f.blobs, "blobs", false, "remove the blobs that nothing names, and archive nothing")
	fs.StringVar(&f.grace, "grace", "24h", "with --blobs: how long a writer has to name what it stored")
	fs.StringArrayVar(&f.monitor, "monitor", nil, "monitoring address of a NATS server; can be given again")
	return cmd
}

// retentionOptions reads the retention periods from the flags.
func retentionOptions(a *app.App, f *pruneFlags) (*retention.Options, error) {
	if f.older == "" {
		return nil, errors.New("prune needs --older-than: 36h, 30d")
	}
	older, err := lineage.ParseAge(f.older)
	if err != nil {
		return nil, fmt.Errorf("--older-than: %w", err)
	}
	const forever = time.Duration(-1)
	own := map[session.Tenant]time.Duration{}
	for _, k := range f.keep {
		tenant, text, ok := strings.Cut(k, "=")
		if !ok {
			return nil, fmt.Errorf("--keep %q: want TENANT=AGE or TENANT=forever", k)
		}
		if err := session.ValidID("tenant", tenant); err != nil {
			return nil, fmt.Errorf("--keep %q: %w", k, err)
		}
		if text == "forever" {
			own[session.Tenant(tenant)] = forever
			continue
		}
		if own[session.Tenant(tenant)], err = lineage.ParseAge(text); err != nil {
			return nil, fmt.Errorf("--keep %q: %w", k, err)
		}
	}
	o := &retention.Options{Dir: f.out, DryRun: f.dry, Keep: func(t session.Tenant) (time.Duration, bool) {
		if d, ok := own[t]; ok {
			return d, d != forever
		}
		return older, true
	}}
	if a.Config.Tenant.Given() {
		o.Tenant = a.Tenant()
	}
	if o.Dir == "" {
		o.Dir = archivesDir
		if !a.Ambient() {
			o.Dir = filepath.Join(a.Config.Store.Value, archivesDir)
		}
	}
	return o, nil
}

func prune(ctx context.Context, a *app.App, f *pruneFlags, o *retention.Options) (err error) {
	r := app.ToPurge
	if o.DryRun {
		r = app.ToRead
	}
	s, err := a.OpenStreams(ctx, r, f.monitor)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.Alone {
		o.Grace = -1
	} else if !o.DryRun {
		a.Remark("what is due is purged after %s, in which it must not be used", retention.DefaultGrace)
	}
	o.Stated = []dossier.Fact{{Name: dossier.FactRelease, Value: node.Version()}}
	tell := a.Progress()
	o.Progress = func(to retention.State, done, all int) {
		doing := "fencing what is due"
		switch {
		case o.DryRun:
			doing = "looking for what is due"
		case to == retention.Archived:
			doing = "archiving and purging"
		case to == retention.Freed:
			tell(fmt.Sprintf("freeing results: %s of %s", excerpt.Thousands(int64(done)), excerpt.Thousands(int64(all))))
			return
		}
		tell(fmt.Sprintf("%s: %s of %s", doing, excerpt.Thousands(int64(done)), view.Counted(int64(all), "tree")))
	}
	freed := 0
	o.Freed = func(n int) { freed = n }
	out, pruneErr := retention.Prune(ctx, s.Conn, o)
	tell("")
	if pruneErr != nil && len(out) == 0 {
		return pruneErr
	}
	if err := pruned(a, out, freed, pruneErr == nil); err != nil {
		return errors.Join(err, pruneErr)
	}
	if pruneErr != nil {
		return pruneErr
	}
	failed, why := 0, ""
	for _, t := range out {
		if t.State == retention.Failed {
			failed, why = failed+1, cmp.Or(why, t.Reason)
		}
	}
	if failed > 0 {
		return app.Fail(app.ExitPartial, "%s could not be archived: %s", view.Counted(int64(failed), "tree"), why)
	}
	return nil
}
