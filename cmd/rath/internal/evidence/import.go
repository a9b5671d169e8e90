package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/openrath"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/takeover"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Import is the command "import".
func Import(a *app.App) *cobra.Command {
	var monitor []string
	cmd := &cobra.Command{
		Use:   "import FILE|DIR...",
		Short: "Restore archived sessions, or import sessions of OpenRath",
		Long: `Restores archives of "cluster prune", or imports session files of OpenRath (JSON
lines), or a directory of either, and prints the sessions. Importing a file
again changes nothing.

The sessions of an archive are restored under their own ids and continue as
before. If they were purged here, the archive has to end with the commits that
stayed; it can also be imported to another store, except for given session
names. A name without a directory may be an archive of the store, as archived
sessions report it. With --tenant, archives of other tenants are rejected.

A file of OpenRath becomes a new session for "show", "run --session" and
"session fork"; "export" writes it in OpenRath's form. Its parents are the
imported ones of the file; a directory is imported in this order. Of a file
truncated in a crash the complete part is imported; unknown records and kinds
are kept.

With --server a node does the import for a user with the role operate, with
files of up to 32 MiB; the log of each session records the user. With --monitor
and the credentials of a node this command stores archives itself, larger ones
too, at level fsync. Exit code 6 if some files were not imported.`,
		Example: `  rath cluster import .rath/archives/default-7f3a-1-0-20260701T020000Z.json
  rath cluster import ~/.openrath/sessions
  rath cluster import session.jsonl
  rath cluster import sessions/ --format jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return app.Usage(cmd, errors.New("name files or directories"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return importFiles(cmd.Context(), a, args, monitor) },
	}
	cmd.Flags().StringArrayVar(&monitor, "monitor", nil, "monitoring address of a NATS server; can be given again")
	return cmd
}

// Imported is the outcome for one file, or for one session of an archive.
type Imported struct {
	File string `json:"file"`
	messages.Imported
	Error string `json:"error,omitempty"`
}

// imported are the rows of a file.
func imported(name, kind string, rows []messages.Imported, err error) (all []Imported) {
	if err != nil {
		v := Imported{File: name, Error: messages.Text(err)}
		if len(rows) > 0 {
			v.Imported = rows[0]
		}
		v.Kind = cmp.Or(v.Kind, kind)
		return []Imported{v}
	}
	for _, r := range rows {
		all = append(all, Imported{File: name, Imported: r})
	}
	return all
}

// archivesDir is prune's directory in a store.
const archivesDir = "archives"

// archive returns the path of the file that name denotes. A session records the name of
// its archive without a directory: the file may be in the store.
func archive(a *app.App, name string) string {
	if _, err := os.Stat(name); err == nil || filepath.Base(name) != name {
		return name
	}
	kept := filepath.Join(a.Config.Store.Value, archivesDir, name)
	if _, err := os.Stat(kept); err != nil {
		return name
	}
	return kept
}

func importFiles(ctx context.Context, a *app.App, args, monitor []string) error {
	args = slices.Clone(args)
	for i := range args {
		args[i] = archive(a, args[i])
	}
	archives, others, err := namedFiles(args)
	if err != nil {
		return err
	}
	if len(archives)+len(others) == 0 {
		return app.Fail(app.ExitNotFound, "there are no session files in %s", strings.Join(args, ", "))
	}
	var rows []Imported
	if a.Ambient() && len(monitor) == 0 {
		rows, err = sendFiles(ctx, a, archives, others)
	} else if rows, err = importArchives(ctx, a, archives, monitor); err == nil {
		var more []Imported
		more, err = importSessions(ctx, a, others)
		rows = append(rows, more...)
	}
	if err != nil {
		return err
	}
	return importedRows(a, rows)
}

// sendFiles makes a node of the server import the files, with the rights of a client.
func sendFiles(ctx context.Context, a *app.App, archives, others []string) (rows []Imported, err error) {
	s, err := a.Open(ctx, &node.Options{Idle: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for i, name := range slices.Concat(archives, others) {
		kind := ""
		if i < len(archives) {
			kind = dossier.FormTree
		}
		var came []messages.Imported
		file, err := a.ReadInput(name, maxDossier)
		if err == nil {
			came, err = s.Sessions.Import(ctx, file)
		}
		if ctx.Err() != nil || errors.Is(err, conn.ErrDenied) {
			return nil, err
		}
		rows = append(rows, imported(name, kind, came, err)...)
	}
	return rows, nil
}

// importArchives restores archives.
func importArchives(ctx context.Context, a *app.App, names, monitor []string) (rows []Imported, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	s, err := a.OpenStreams(ctx, app.ToStore, monitor)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var only session.Tenant
	if a.Config.Tenant.Given() {
		only = a.Tenant()
	}
	for _, name := range names {
		var came []messages.Imported
		doc, err := a.ReadInput(name, maxDossier)
		if err == nil {
			came, err = takeover.Tree(ctx, s.Conn, only, doc, importer)
		}
		rows = append(rows, imported(name, dossier.FormTree, came, err)...)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// importer is the name of the importer at the store itself.
const importer = "import"

// importSessions imports files of OpenRath.
func importSessions(ctx context.Context, a *app.App, names []string) (rows []Imported, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	s, err := a.Open(ctx, &node.Options{Idle: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Direct("cluster import --monitor"); err != nil {
		return nil, err
	}
	home := func(_ session.Tenant, id run.ID) session.ID { return s.Mint(string(id)) }
	for _, name := range names {
		var came []messages.Imported
		file, err := openrath.ReadFile(os.DirFS(filepath.Dir(name)), filepath.Base(name))
		if err == nil {
			var one messages.Imported
			one, err = takeover.Session(ctx, s.Log, s.Tenant(), home, file, importer)
			came = []messages.Imported{one}
		}
		rows = append(rows, imported(name, "", came, err)...)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// importedRows prints the outcomes.
func importedRows(a *app.App, rows []Imported) error {
	bad := 0
	for _, r := range rows {
		if r.Error != "" {
			bad++
		}
	}
	done, err := app.Emit(a, rows)
	if err != nil {
		return err
	}
	if !done {
		cells := make([][]string, len(rows))
		for i, r := range rows {
			state := "closed"
			switch {
			case r.Error != "":
				state = "refused"
			case !r.Closed:
				state = "open"
			}
			cells[i] = []string{term.Line(filepath.Base(r.File), 60), string(r.Session), fmt.Sprint(r.Rows), state, term.Line(r.Kind, 40), term.Line(r.Note, 100)}
		}
		a.Out.Rows([]string{"FILE", "SESSION", "ROWS", "STATE", "KIND", "NOTE"}, cells)
		for _, r := range rows {
			if r.Error != "" { // a cell of the table would cut it
				a.Err.Println("refused: " + term.Line(r.Error, 1000))
			}
		}
	}
	if bad > 0 {
		return app.Fail(app.ExitPartial, "%d of %s could not be taken over", bad, view.Counted(int64(len(rows)), "file"))
	}
	return nil
}
