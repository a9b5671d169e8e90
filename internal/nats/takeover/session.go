package takeover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/openrath"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// SessionOf returns the session of a file of OpenRath: the same file makes the same
// session. home returns the session of a run of that id.
func SessionOf(t session.Tenant, home func(session.Tenant, run.ID) session.ID, file *openrath.File) session.Key {
	return session.Key{Tenant: t, ID: home(t, run.ID(idPrefix+file.Header.ID))}
}

// idPrefix is before the ids of OpenRath.
const idPrefix = "openrath-"

// Session imports a file of OpenRath, with the key that SessionOf returns. The writer of
// its commits is the user who requested it. Of the parents in the file, those that exist
// here become its parents: it joins the tree of the first one.
func Session(ctx context.Context, log commitlog.Log, t session.Tenant, home func(session.Tenant, run.ID) session.ID, file *openrath.File, by string) (messages.Imported, error) {
	k := SessionOf(t, home, file)
	out := messages.Imported{Rows: len(file.Rows), Kind: file.Header.Kind, Created: file.Header.CreatedAt, Closed: file.Closed()}
	var notes []string
	if file.Torn {
		notes = append(notes, "its last line was truncated")
	}
	if file.Reopened > 0 {
		notes = append(notes, fmt.Sprintf("taken up again %d times", file.Reopened))
	}
	if n := len(file.Other); n > 0 {
		notes = append(notes, view.Counted(int64(n), "unknown record"))
	}
	values := journal.NewValues(log)
	opening, root, err := opening(ctx, values, k, home, file)
	if err != nil {
		return out, err
	}
	source, left, err := file.Source()
	if err != nil {
		return out, err
	}
	opening.Source = source
	fresh, err := record(ctx, log, k, root, opening, file, by)
	if err != nil {
		return out, err
	}
	if s, err := values.At(ctx, session.Ref{Key: k}); err != nil {
		return out, err
	} else if missing := len(parentsOf(file)) - len(s.Opening().Parents); missing > 0 {
		notes = append(notes, "without "+view.Counted(int64(missing), "parent"))
	}
	if left > 0 {
		notes = append(notes, view.Counted(int64(left), "record")+" too large to keep")
	}
	if !fresh {
		notes = append(notes, "was there already")
	}
	out.Session, out.Note = k.ID, strings.Join(notes, ", ")
	return out, nil
}

// maxParents is the maximum number of imported parents of a session.
const maxParents = 256

// parentsOf are the parents that a file names, each once.
func parentsOf(file *openrath.File) (all []string) {
	seen := map[string]bool{file.Header.ID: true}
	for _, id := range file.Header.Parents {
		if !seen[id] && len(all) < maxParents {
			all = append(all, id)
		}
		seen[id] = true
	}
	return all
}

// opening returns the opening of a file's session, with the root of its tree.
func opening(ctx context.Context, values *journal.Values, k session.Key, home func(session.Tenant, run.ID) session.ID, file *openrath.File) (o session.Opening, root session.ID, err error) {
	o = session.Opening{Kind: session.OpenImport, Name: file.Header.ID}
	for _, id := range parentsOf(file) {
		if session.ValidID("run", idPrefix+id) != nil {
			continue
		}
		parent, err := values.At(ctx, session.Ref{Key: session.Key{Tenant: k.Tenant, ID: home(k.Tenant, run.ID(idPrefix+id))}})
		if errors.Is(err, session.ErrNotFound) || isArchived(err) {
			continue
		}
		if err != nil {
			return o, "", fmt.Errorf("parent %.80s: %w", id, err)
		}
		if link, ok := parent.Link(); ok {
			o.Parents, root = append(o.Parents, link), cmp.Or(root, parent.Root())
		}
	}
	return o, cmp.Or(root, k.ID), nil
}

func isArchived(err error) bool {
	_, is := errors.AsType[*session.ArchivedError](err)
	return is
}

// record writes a file as a new session, or the rest of it if some of its rows exist: an
// import was cut off, or the session continued in OpenRath. fresh is false if all rows
// exist.
func record(ctx context.Context, log commitlog.Log, key session.Key, root session.ID, opening session.Opening, file *openrath.File, by string) (fresh bool, err error) {
	rows := slices.Collect(file.Session().Pending())
	n, at, begun, err := takenOver(ctx, log, key, rows)
	if err != nil {
		return false, err
	}
	events := rows[n:]
	if at.Seq == 0 {
		opened, err := journal.NewEvent(journal.KindWriter, journal.WriterOpened{Edition: journal.Edition, Epoch: importEpoch, Incarnation: by})
		if err != nil {
			return false, err
		}
		events = append([]session.Event{opened, session.OpenedEvent(opening)}, events...)
	}
	root = cmp.Or(begun, root)
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i := range events {
		events[i].Time = now
	}
	for batch := range commitlog.Batches(events) {
		at, err = log.Append(ctx, at, commitlog.Commit{Key: key, Root: root, Seq: at.Seq + 1, Epoch: importEpoch, Prev: at.Hash, Events: batch})
		if err != nil {
			return fresh, err
		}
		fresh = true
	}
	return fresh, nil
}

// importEpoch is the epoch of all commits of an import. A node that uses the session has a
// higher one.
const importEpoch = 1

// takenOver returns how many rows of a file its session has, where its log ends, and its
// root. It fails if the session has other rows, or continued here before all of them were
// imported.
func takenOver(ctx context.Context, log commitlog.Log, k session.Key, rows []session.Event) (n int, at commitlog.Position, root session.ID, err error) {
	for e, err := range log.Read(ctx, k, commitlog.Position{}) {
		if err != nil {
			return 0, at, "", err
		}
		if e.Commit.Epoch != importEpoch {
			root = e.Commit.Root
			if n < len(rows) {
				err = fmt.Errorf("session %s went on here after %s of the file, which has %d; import it into another store", k.ID, view.Counted(int64(n), "row"), len(rows))
			}
			return n, e.At, root, err
		}
		at, root = e.At, e.Commit.Root
		for _, ev := range e.Commit.Events {
			if ev.Kind != session.KindChunk || n == len(rows) {
				continue
			}
			if ev.Data != rows[n].Data {
				return 0, at, "", fmt.Errorf("session %s was imported from another file with the same id: their rows %d differ; import it into another store", k.ID, n)
			}
			n++
		}
	}
	return n, at, root, nil
}
