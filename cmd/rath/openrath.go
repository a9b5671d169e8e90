package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/internal/dossier"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/session/openrath"
)

func (a *app) importCommand() *cobra.Command {
	var monitor []string
	cmd := &cobra.Command{
		Use:   "import FILE|DIR...",
		Short: "Bring archived sessions back, or take over those of OpenRath",
		Long: `Brings back what "prune" archived, takes over session files of OpenRath (JSON
lines), or all of a directory, and prints what came in. Importing a file again
changes nothing.

The sessions of an archive come back under their own ids and go on as if they
had never been away. Where they were purged the archive has to end with the very
commits that stayed there; it can be brought into another store too, but for the
names that were given to sessions. A name without a directory may be that of an
archive in the store, as sessions that are archived tell it.

A file of OpenRath becomes a new session that "show", "run --session" and "fork"
continue from. Files that were cut off in a crash come in as far as they go;
records and kinds that are not known are kept.

Archives can be brought to a server with the credentials of a node, and the
addresses of --monitor to store there at level fsync. Exit code 6 if some files
could not be read.`,
		Example: `  rath import .rath/archives/default-7f3a-1-0-20260701T020000Z.json
  rath import ~/.openrath/sessions
  rath import session.jsonl
  rath import sessions/ -o jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(cmd, errors.New("name files or directories"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.importFiles(cmd.Context(), args, monitor) },
	}
	cmd.Flags().StringArrayVar(&monitor, "monitor", nil, "monitoring address of a NATS server; can be given again")
	return cmd
}

// importNames lists the files that are meant, archives apart from those of
// OpenRath.
func importNames(args []string) (archives, others []string, err error) {
	for _, arg := range args {
		fi, err := os.Stat(arg)
		if err != nil {
			return nil, nil, err
		}
		if !fi.IsDir() {
			if isArchive(arg) {
				archives = append(archives, arg)
			} else {
				others = append(others, arg)
			}
			continue
		}
		found, err := filepath.Glob(filepath.Join(arg, "*.json"))
		if err != nil {
			return nil, nil, err
		}
		for _, name := range found {
			if isArchive(name) {
				archives = append(archives, name)
			}
		}
		sessions, err := openrath.Scan(os.DirFS(arg), ".")
		if err != nil {
			return nil, nil, err
		}
		for _, l := range sessions {
			others = append(others, filepath.Join(arg, filepath.FromSlash(l.Name)))
		}
	}
	return archives, others, nil
}

// isArchive looks at the beginning of a file.
func isArchive(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false // whoever reads it says so
	}
	defer f.Close()
	head := make([]byte, 4<<10)
	n, _ := io.ReadFull(f, head) // a short file is as good
	return dossier.IsTree(head[:n])
}

// imported is what became of one file.
type imported struct {
	File    string     `json:"file"`
	Session session.ID `json:"session,omitempty"`
	Rows    int        `json:"rows"`
	Kind    string     `json:"kind,omitempty"`
	Created string     `json:"created,omitempty"`
	Closed  bool       `json:"closed"`
	Note    string     `json:"note,omitempty"`
	Error   string     `json:"error,omitempty"`
}

// archivesDir is where prune writes to in a store.
const archivesDir = "archives"

// archive returns the file that is meant. A session tells the name of its archive
// and no directory: it may be one of the store.
func (a *app) archive(name string) string {
	if _, err := os.Stat(name); err == nil || filepath.Base(name) != name {
		return name
	}
	kept := filepath.Join(a.config.Store.Value, archivesDir, name)
	if _, err := os.Stat(kept); err != nil {
		return name
	}
	return kept
}

func (a *app) importFiles(ctx context.Context, args, monitor []string) error {
	args = slices.Clone(args)
	for i := range args {
		args[i] = a.archive(args[i])
	}
	archives, others, err := importNames(args)
	if err != nil {
		return err
	}
	if len(archives)+len(others) == 0 {
		return fail(exitNotFound, "there are no session files in %s", strings.Join(args, ", "))
	}
	rows, err := a.importArchives(ctx, archives, monitor)
	if err == nil {
		var more []imported
		more, err = a.importSessions(ctx, others)
		rows = append(rows, more...)
	}
	if err != nil {
		return err
	}
	return a.importedRows(rows)
}

// importArchives brings archives back.
func (a *app) importArchives(ctx context.Context, names, monitor []string) (rows []imported, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	s, err := a.openStreams(ctx, toStore, monitor)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, name := range names {
		rows = append(rows, a.restoreFile(ctx, s.Conn, name)...)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// importSessions takes over files of OpenRath.
func (a *app) importSessions(ctx context.Context, names []string) (rows []imported, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	s, err := a.open(ctx, &node.Options{Idle: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.direct("import"); err != nil {
		return nil, err
	}
	for _, name := range names {
		rows = append(rows, s.importFile(ctx, name))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// importedRows tells what came in.
func (a *app) importedRows(rows []imported) error {
	bad := 0
	for _, r := range rows {
		if r.Error != "" {
			bad++
		}
	}
	done, err := emit(a, rows)
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
			cells[i] = []string{filepath.Base(r.File), string(r.Session), fmt.Sprint(r.Rows), state, r.Kind, term.Line(r.Note, 100)}
		}
		a.out.Rows([]string{"FILE", "SESSION", "ROWS", "STATE", "KIND", "NOTE"}, cells)
		for _, r := range rows {
			if r.Error != "" { // a cell of the table would cut it
				a.err.Println("refused: " + term.Line(r.Error, 1000))
			}
		}
	}
	if bad > 0 {
		return fail(exitPartial, "%d of %s could not be taken over", bad, view.Counted(int64(len(rows)), "file"))
	}
	return nil
}

func (s *system) importFile(ctx context.Context, name string) imported {
	out := imported{File: name}
	file, err := openrath.ReadFile(os.DirFS(filepath.Dir(name)), filepath.Base(name))
	if err != nil {
		out.Error = messages.Text(err)
		return out
	}
	out.Rows, out.Kind, out.Created, out.Closed = len(file.Rows), file.Header.Kind, file.Header.CreatedAt, file.Closed()
	var notes []string
	if file.Torn {
		notes = append(notes, "its last line was cut off")
	}
	if file.Reopened > 0 {
		notes = append(notes, fmt.Sprintf("taken up again %d times", file.Reopened))
	}
	if n := len(file.Other); n > 0 {
		notes = append(notes, view.Counted(int64(n), "unknown record"))
	}
	id, fresh, err := s.record(ctx, file)
	if err != nil {
		out.Error = messages.Text(err)
		return out
	}
	if !fresh {
		notes = append(notes, "was there already")
	}
	out.Session, out.Note = id, strings.Join(notes, ", ")
	return out
}

// record writes a file as a new session, or the rest of it if some of its rows are
// there: an import was cut off, or the session went on in OpenRath. fresh is false
// if all of it is there.
func (s *system) record(ctx context.Context, file *openrath.File) (id session.ID, fresh bool, err error) {
	// The same file makes the same session.
	key := session.Key{Tenant: s.Tenant(), ID: s.mint("openrath-" + file.Header.ID)}
	rows := slices.Collect(file.Session().Pending())
	n, at, err := s.takenOver(ctx, key, rows)
	if err != nil {
		return "", false, err
	}
	events := rows[n:]
	if at.Seq == 0 {
		opened, err := run.NewEvent(run.KindWriter, run.WriterOpened{Edition: run.Edition, Epoch: importEpoch, Incarnation: "import"})
		if err != nil {
			return "", false, err
		}
		events = append([]session.Event{opened, session.OpenedEvent(file.Opening())}, events...)
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i := range events {
		events[i].Time = now
	}
	for batch := range session.Batches(events) {
		at, err = s.log.Append(ctx, at, session.Commit{Key: key, Root: key.ID, Seq: at.Seq + 1, Epoch: importEpoch, Prev: at.Hash, Events: batch})
		if err != nil {
			return "", fresh, err
		}
		fresh = true
	}
	return key.ID, fresh, nil
}

// importEpoch is that of all commits of an import. Who uses the session has a higher
// one.
const importEpoch = 1

// takenOver returns how many rows of a file its session has, and where its log ends.
// It fails if the session has others, or went on here before all of them came in.
func (s *system) takenOver(ctx context.Context, k session.Key, rows []session.Event) (n int, at session.Position, err error) {
	for e, err := range s.log.Read(ctx, k, session.Position{}) {
		if err != nil {
			return 0, at, err
		}
		if e.Commit.Epoch != importEpoch {
			if n < len(rows) {
				err = fmt.Errorf("session %s went on here after %s of the file, which has %d; import it into another store", k.ID, view.Counted(int64(n), "row"), len(rows))
			}
			return n, e.At, err
		}
		at = e.At
		for _, ev := range e.Commit.Events {
			if ev.Kind != session.KindChunk || n == len(rows) {
				continue
			}
			if ev.Data != rows[n].Data {
				return 0, at, fmt.Errorf("session %s was imported from another file with the same id: their rows %d differ; import it into another store", k.ID, n)
			}
			n++
		}
	}
	return n, at, nil
}

// exportOpenRath returns a session as OpenRath reads it.
func exportOpenRath(v session.Session) ([]byte, error) {
	var created, closed time.Time
	for _, c := range v.Chunks() {
		t := c.Origin().Time
		if created.IsZero() {
			created = t
		}
		closed = t
	}
	var b bytes.Buffer
	err := openrath.Export(v, created, closed).Write(&b)
	return b.Bytes(), err
}
