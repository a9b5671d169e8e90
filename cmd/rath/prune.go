package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/internal/dossier"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/retention"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/natsbus"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

// pruneFlags are those of prune.
type pruneFlags struct {
	older, out string
	keep       []string
	dry        bool
	monitor    []string
}

func (a *app) pruneCommand() *cobra.Command {
	var f pruneFlags
	cmd := &cobra.Command{
		Use:   "prune --older-than AGE",
		Short: "Archive old finished sessions into files, and purge them",
		Long: `Archives each tree of sessions that has finished and that nobody used for a
while, one file for each, and purges it from the streams. A tree is a session
with all its forks and branches, and the trees that these refer to. It is kept
if anything in it is open: a run, a branch, a quarantine.

A file holds everything: all commits, the blobs and the workspaces that they
name. "verify" checks it offline, "import" brings its sessions back. It is
written, synced and read back before anything is purged. Whether the directory
can be written is tried first; a tree whose file cannot be written goes on, and
the other ones are archived. A prune that was cut off leaves trees fenced: they
take nothing until the next one finishes them, with the same directory, or lets
them go on, with --keep TENANT=forever.

Of a purged session the last commit stays, whose hash stands for all of them:
the session cannot begin again, and whoever wants it is told which file to
import. Aliases, lineage, results and blobs stay too.

Age is counted from a tree's last commit: 90s, 36h, 30d. --keep gives a tenant
an age of its own, or "forever". Without --tenant all tenants are pruned.

It takes the operator's credentials on a server (nodes may not purge), and the
addresses of --monitor, as a node does, to store there at level fsync. Over a
store it takes none.`,
		Example: `  rath prune --older-than 30d --dry-run
  rath prune --older-than 30d --keep acme=365d --keep legal=forever
  rath prune --older-than 30d --creds operator.creds --monitor http://nats:8222`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.retention(&f)
			if err != nil {
				return usage(cmd, err)
			}
			return a.prune(cmd.Context(), &f, o)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.older, "older-than", "", "age from which on a tree is archived: 36h, 30d")
	fs.StringArrayVar(&f.keep, "keep", nil, "TENANT=AGE or TENANT=forever; can be given again")
	fs.StringVar(&f.out, "out", "", "directory of the archives (default archives, in the store if there is one)")
	fs.BoolVar(&f.dry, "dry-run", false, "only tell what would be archived, and what is kept, why")
	fs.StringArrayVar(&f.monitor, "monitor", nil, "monitoring address of a NATS server; can be given again")
	return cmd
}

// retention reads what is kept for how long.
func (a *app) retention(f *pruneFlags) (*retention.Options, error) {
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
	if a.config.Tenant.given() {
		o.Tenant = a.tenant()
	}
	if o.Dir == "" {
		o.Dir = archivesDir
		if !a.ambient() {
			o.Dir = filepath.Join(a.config.Store.Value, archivesDir)
		}
	}
	return o, nil
}

func (a *app) prune(ctx context.Context, f *pruneFlags, o *retention.Options) (err error) {
	r := toPurge
	if o.DryRun {
		r = toRead
	}
	s, err := a.openStreams(ctx, r, f.monitor)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if s.alone {
		o.Grace = -1
	} else if !o.DryRun {
		a.remark("what is due is purged after %s, in which nobody may have used it", retention.DefaultGrace)
	}
	o.Stated = []dossier.Fact{{Name: dossier.FactRelease, Value: node.Version()}}
	out, pruneErr := retention.Prune(ctx, s.Conn, o)
	if pruneErr != nil && len(out) == 0 {
		return pruneErr
	}
	if err := a.pruned(out, pruneErr == nil); err != nil {
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
		return fail(exitPartial, "%s could not be archived: %s", view.Counted(int64(failed), "tree"), why)
	}
	return nil
}

// prunedTree is what became of one tree.
type prunedTree struct {
	Tenant   session.Tenant  `json:"tenant"`
	Root     session.ID      `json:"root"`
	Sessions []session.ID    `json:"sessions"`
	State    retention.State `json:"state"`
	Reason   string          `json:"reason,omitempty"`
	File     string          `json:"file,omitempty"`
	Size     int64           `json:"size,omitempty"`
	Bytes    int64           `json:"bytes"`
	LastMS   int64           `json:"last_ms"`
}

// pruned tells what became of each tree, of all of them if whole is set.
func (a *app) pruned(out []retention.Outcome, whole bool) error {
	views := make([]prunedTree, len(out))
	for i, o := range out {
		v := prunedTree{
			Tenant: o.Tenant, Root: o.Root, State: o.State, Reason: o.Reason, File: o.File, Size: o.Size,
			Bytes: o.Bytes, LastMS: o.Last.UnixMilli(),
		}
		for _, s := range o.Sessions {
			v.Sessions = append(v.Sessions, s.ID)
		}
		views[i] = v
	}
	if done, err := emit(a, views); done {
		return err
	}
	var bytes int64
	n := map[retention.State]int{}
	for _, v := range views {
		n[v.State]++
		if v.State == retention.Due || v.State == retention.Archived {
			bytes += v.Bytes
		}
	}
	if len(views) > 0 {
		a.out.Rows([]string{"TREE", "TENANT", "SESSIONS", "BYTES", "USED", "STATE", ""}, prunedRows(views, time.Now(), a.out.Terminal()))
	}
	if fenced := int64(n[retention.Fenced]); fenced > 0 {
		a.remark("%s fenced and not purged: nothing is taken there until a further prune finishes that, or lets it go on with --keep TENANT=forever", view.Counted(fenced, "tree"))
	}
	switch {
	case n[retention.Due] > 0:
		a.remark("%s would be archived and purged, %s of commits", view.Counted(int64(n[retention.Due]), "tree"), view.Counted(bytes, "byte"))
	case n[retention.Archived] > 0:
		a.remark("archived and purged %s, %s of commits", view.Counted(int64(n[retention.Archived]), "tree"), view.Counted(bytes, "byte"))
	case whole && n[retention.Failed] == 0:
		a.remark("nothing is due")
	}
	return nil
}

// prunedRows is the table of trees. Where somebody looks, ids are short, and the
// archive that was written is named on a line of its own.
func prunedRows(views []prunedTree, now time.Time, looks bool) [][]string {
	var rows [][]string
	for _, v := range views {
		root, what := string(v.Root), v.Reason
		switch {
		case looks:
			root = lineage.Short(v.Root)
			if _, rest, ok := strings.Cut(what, " ago, "); ok { // a column tells when
				what = rest
			}
		case what == "":
			what = v.File
		}
		rows = append(rows, []string{
			root, string(v.Tenant), fmt.Sprint(len(v.Sessions)), view.Thousands(v.Bytes), view.Age(now, time.UnixMilli(v.LastMS)), string(v.State), term.Line(what, 200),
		})
		if looks && v.File != "" && v.State != retention.Due {
			rows = append(rows, []string{"  " + term.Line(v.File, 200)})
		}
	}
	return rows
}

// restoreFile brings the sessions of an archive back.
func (a *app) restoreFile(ctx context.Context, c *natsbus.Conn, name string) []imported {
	refused := func(err error) []imported {
		return []imported{{File: name, Kind: dossier.FormTree, Error: messages.Text(err)}}
	}
	doc, err := a.readInput(name, maxDossier)
	if err != nil {
		return refused(err)
	}
	tree, back, err := retention.Restore(ctx, c, doc, "import")
	if err != nil {
		return refused(err)
	}
	var all []imported
	for i, r := range back {
		v := imported{File: name, Session: r.Session, Kind: dossier.FormTree}
		for _, raw := range tree.Logs[i].Commits {
			commit, err := session.Decode([]byte(raw))
			if err != nil {
				return refused(err)
			}
			for _, ev := range commit.Events {
				switch ev.Kind {
				case session.KindChunk:
					v.Rows++
				case session.KindClosed:
					v.Closed = true
				}
			}
		}
		if r.There {
			v.Note = "was there already"
		}
		all = append(all, v)
	}
	return all
}
