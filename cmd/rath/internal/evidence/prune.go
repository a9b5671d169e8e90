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
		Short: "Archive and delete old sessions, or remove unreferenced blobs",
		Long: `Archives each finished and unused tree of sessions to a file, and purges it from
the streams. A tree is a session with all its forks and branches, and the trees
they refer to. A tree with an open run or branch, or in quarantine, stays.

The file has all commits and their blobs and workspaces. "verify" checks it
offline, "cluster import" restores its sessions. It is written, synced and read
back before the purge. Access to the directory is tested first; a tree that
cannot be written continues, and the others are archived. An interrupted prune
leaves trees fenced: they accept no commit until the next prune finishes them,
with the same directory, or releases them, with --keep TENANT=forever.

The last commit of a purged session stays, and its hash stands for all of them.
The session cannot start again; commands name the file to import. Its results
are deleted. Ids stay used: a task submitted again under such an id does not run
again. Lineage and blobs stay.

--blobs removes unreferenced blobs: neither a log, waiting task, result or dead
letter names them, nor a blob named by one of these, such as the files of purged
sessions. Nodes and clients may write meanwhile. A blob is removed only if it
was stored, or requested by a writer, more than a day and --grace ago. Missing
blobs with a reference are reported.

Age counts from a tree's last commit: 90s, 36h, 30d. --keep sets the age for a
tenant, or "forever". Without --tenant all tenants are pruned.

On a server this needs the operator's credentials (nodes may not purge), and the
addresses of --monitor, as for a node, to store at level fsync. On a store it
needs none.`,
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
	fs.StringVar(&f.older, "older-than", "", "minimum age of an archived tree: 36h, 30d")
	fs.StringArrayVar(&f.keep, "keep", nil, "TENANT=AGE or TENANT=forever; can be given again")
	fs.StringVar(&f.out, "out", "", "directory of the archives (default archives, inside a store)")
	fs.BoolVar(&f.dry, "dry-run", false, "print the trees or blobs without archiving or removing them")
	fs.BoolVar(&f.blobs, "blobs", false, "remove unreferenced blobs instead of archiving")
	fs.StringVar(&f.grace, "grace", "24h", "with --blobs: time for a writer to name a stored blob")
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
		a.Remark("due trees are purged after %s; do not use them until then", retention.DefaultGrace)
	}
	o.Stated = []dossier.Fact{{Name: dossier.FactRelease, Value: node.Version()}}
	tell := a.Progress()
	o.Progress = func(to retention.State, done, all int) {
		doing := "fencing due trees"
		switch {
		case o.DryRun:
			doing = "searching due trees"
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
