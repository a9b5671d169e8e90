package dossier

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"unicode/utf8"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/messages"
)

// Changes are the differences in the files between the beginning and the end of the run,
// along the home session and the branches that it adopted.
type Changes struct {
	Before blob.Digest
	After  blob.Digest
	Files  []FileChange
	More   int // number of unlisted files
	Add    int // lines of the listed files
	Remove int
	Note   string // the reason if no files can be shown
}

// FileChange is one path.
type FileChange struct {
	Path   string
	Kind   manifest.ChangeKind
	Note   string // "new, 120 B", or why no lines are shown
	Steps  []int  // of the timeline that changed the path, in order
	Hunks  []Hunk
	Add    int
	Remove int
}

// Hunk is a group of changed lines with context.
type Hunk struct {
	Header string // "@@ -1,4 +1,6 @@"
	Steps  []int  // that made its changes
	Lines  []Line
}

// Line is one line of a hunk.
type Line struct {
	Op   string // " ", "+" or "-"
	Old  int    // number, 0 for none
	New  int
	Text string
	Step int // that added or removed it; 0 for an unchanged line
}

// Limits of the shown changes. They are part of the layout.
const (
	maxShownFile = 512 << 10 // bytes of a file compared line by line
	maxFiles     = 100
	maxHunkLines = 3000 // of all files together
)

// move is a change of the head of the files.
type move struct {
	head  blob.Digest
	steps []int // of the timeline; empty if no step made it
	ours  bool  // made by the run
}

// moves returns the changes that led to the head of the home session's files: through
// the sessions it was forked from, and through the branches whose files it adopted.
func (t *timeline) moves() ([]move, error) {
	records, err := t.graph.Heads(t.a.home, 0)
	if err != nil {
		return nil, err
	}
	out := make([]move, len(records))
	for i := range records {
		r := &records[i]
		out[i] = move{steps: t.movedBy(r), ours: t.a.runs[r.Run]}
		if out[i].head, err = blob.ParseDigest(r.Head); err != nil {
			return nil, fail(Inconsistent, r.Session, r.Commit, "head %q: %v", r.Head, err)
		}
	}
	return out, nil
}

// movedBy finds the line of the timeline that moved a head.
func (t *timeline) movedBy(r *messages.Record) []int {
	if at, ok := t.index[stepRef{r.Session, r.Step}]; ok && t.a.runs[r.Run] {
		return []int{at}
	}
	for _, s := range t.f.Steps {
		if s.Session == r.Session && s.Commit == r.Commit && s.Kind == "placed" {
			return []int{s.N}
		}
	}
	return nil
}

// changes compares the files at the beginning and at the end, and finds the step that
// changed each line by replaying the heads in between.
func (t *timeline) changes() error {
	ch := &t.f.Changes
	moves, err := t.moves()
	if err != nil {
		return err
	}
	if len(moves) == 0 {
		ch.Note = "The run worked on no files."
		return nil
	}
	first := 0 // the last head before the run's own, or else the first
	for i, m := range moves {
		if !m.ours {
			first = i
		}
	}
	moves = moves[first:]
	ch.Before, ch.After = moves[0].head, moves[len(moves)-1].head
	if ch.Before == ch.After {
		ch.Note = "The files are the same at the beginning and at the end."
		return nil
	}
	before, why, err := t.tree(ch.Before)
	if err != nil {
		return err
	}
	after, whyAfter, err := t.tree(ch.After)
	if err != nil {
		return err
	}
	if before == nil || after == nil {
		ch.Note = "The files cannot be compared: " + cmp.Or(why, whyAfter) + "."
		return nil
	}
	net := withFiles(manifest.Compare(before, after))
	if len(net) > maxFiles {
		ch.More = len(net) - maxFiles
		net = net[:maxFiles]
	}
	b := blame{t: t, files: map[string]*blamed{}}
	for _, c := range net {
		if err := b.begin(c); err != nil {
			return err
		}
	}
	if err := b.replay(before, moves[1:]); err != nil {
		return err
	}
	room := maxHunkLines
	for _, c := range net {
		file := b.files[c.Path].change(c, &room)
		ch.Add, ch.Remove = ch.Add+file.Add, ch.Remove+file.Remove
		ch.Files = append(ch.Files, file)
	}
	return nil
}

// withFiles removes directories that were added or removed with a file in them.
func withFiles(all []manifest.Change) []manifest.Change {
	parents := map[string]bool{}
	for _, c := range all {
		for p := path.Dir(c.Path); p != "." && !parents[p]; p = path.Dir(p) {
			parents[p] = true
		}
	}
	return slices.DeleteFunc(all, func(c manifest.Change) bool {
		return parents[c.Path] && (c.Kind == manifest.Added && c.After.Kind == manifest.Dir || c.Kind == manifest.Removed && c.Before.Kind == manifest.Dir)
	})
}

// tree reads the manifest of a head, or returns nil and the reason if it is missing.
func (t *timeline) tree(head blob.Digest) (*manifest.Tree, string, error) {
	if head.IsZero() {
		return &manifest.Tree{}, "", nil
	}
	tree, err := manifest.Read(head, func(d blob.Digest) ([]byte, error) {
		data, why, err := t.a.shelf(d)
		if err == nil && why != "" {
			err = notThere(why)
		}
		return data, err
	})
	why, gone := errors.AsType[notThere](err)
	switch {
	case err == nil:
		if t.a.packed != nil {
			t.a.packed(tree)
		}
		return tree, "", nil
	case errors.Is(err, manifest.ErrMalformed):
		return nil, "", fail(Blob, "", 0, "blob %s is no manifest of files: %v", head, err)
	case !gone:
		return nil, "", err
	}
	t.left = append(t.left, fmt.Sprintf("the list of files at head %s: %s", head.Short(), string(why)))
	return nil, string(why), nil
}

// notThere is the reason for a missing blob.
type notThere string

func (why notThere) Error() string { return string(why) }

// text reads a file as lines; why is the reason if they cannot be shown.
func (t *timeline) text(e manifest.Entry) (lines []string, why string, err error) {
	switch {
	case e.Kind == manifest.Symlink:
		return []string{"link to " + e.Target}, "", nil
	case e.Kind != manifest.File:
		return nil, "", nil
	case e.Size > maxShownFile:
		return nil, "too large to compare", nil
	case e.Size == 0:
		return nil, "", nil
	}
	data, why, err := t.a.shelf(e.Digest)
	switch {
	case err != nil:
		return nil, "", err
	case why != "":
		t.left = append(t.left, fmt.Sprintf("the file %q, blob %s: %s", one(e.Path, 200), e.Digest.Short(), why))
		return nil, why, nil
	case !utf8.Valid(data) || slices.Contains(data, 0):
		return nil, "not text", nil
	}
	return manifest.SplitLines(data), "", nil
}
