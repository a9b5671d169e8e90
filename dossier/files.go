package dossier

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// Changes is how the files differ between the beginning of the run and its
// end, on the line of the home session and of what it adopted.
type Changes struct {
	Before blob.Digest
	After  blob.Digest
	Files  []FileChange
	More   int    // files that are not listed
	Note   string // why nothing can be shown
}

// FileChange is one path.
type FileChange struct {
	Path   string
	Kind   workspace.ChangeKind
	Note   string // "new, 120 B", or why no lines are shown
	Steps  []int  // of the timeline that changed the path, in their order
	Hunks  []Hunk
	Add    int
	Remove int
}

// Hunk is a group of changed lines with what stands around them.
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
	Step int // that added or removed it; 0 for a line that was kept
}

// Bounds of what is shown of changes. They are part of the layout.
const (
	maxShownFile = 512 << 10 // bytes of a file that is compared line by line
	maxFiles     = 100
	maxHunkLines = 3000 // of all files together
	around       = 3    // unchanged lines around changed ones
)

// move is a change of the head of the files.
type move struct {
	head  blob.Digest
	steps []int // of the timeline; empty where no step made it
	ours  bool  // made by the run
}

// moves returns how the head of a session's files came to be what it is at a
// commit and version: through the sessions that it was forked from, and
// through the branch whose files it adopted.
func (t *teller) moves(c *chain, n uint64, limit session.Version) []move {
	var out []move
	version := session.Version(0)
	if o, ok := c.opening(); ok && len(o.Parents) == 1 && o.Kind != session.OpenMerge && o.Kind != session.OpenImport {
		l := o.Parents[0]
		out = t.moves(t.a.byID[l.ID], l.Seq, l.Version)
		if o.Kind != session.OpenCompress {
			version = l.Version
		}
	}
	for i := range n {
		for _, e := range c.events[i] {
			if session.IsContent(e.Kind) {
				if limit != 0 && i+1 == n && version >= limit {
					return out
				}
				version++
			}
			head := blob.Digest{}
			switch p := e.payload.(type) {
			case session.Chunk:
				head = p.Origin().Placement.Head
			case session.Placement:
				head = p.Head
			case session.Join:
				if p.Placement.Backend == "" {
					continue
				}
				head = p.Placement.Head
				for _, part := range p.Parents {
					from := t.a.byID[part.Link.ID]
					s, err := t.a.named(c, i+1, part.Link)
					if err == nil && s.placement == p.Placement {
						out = t.moves(from, part.Link.Seq, part.Link.Version)
						break
					}
				}
			}
			if head.IsZero() || len(out) > 0 && out[len(out)-1].head == head {
				continue
			}
			out = append(out, move{head, t.movedBy(c, i+1, e), t.a.runs[runOf(e)]})
		}
	}
	return out
}

// movedBy finds the line of the timeline that moved a head.
func (t *teller) movedBy(c *chain, n uint64, e event) []int {
	path := ""
	if ch, ok := e.payload.(session.Chunk); ok {
		path = ch.Origin().Step
	} else if id, p, ok := strings.Cut(e.Batch, "/"); ok && t.a.runs[run.ID(id)] {
		path = p
	}
	if at, ok := t.index[spot{c.key.ID, run.Path(path)}]; ok {
		return []int{at}
	}
	for _, s := range t.f.Steps {
		if s.Session == c.key.ID && s.Commit == n && s.Kind == "placed" {
			return []int{s.N}
		}
	}
	return nil
}

// changes compares the files at the beginning and at the end, and finds for
// each line the step that changed it by replaying the heads in between.
func (t *teller) changes() error {
	ch := &t.f.Changes
	home := t.a.logs[0]
	moves := t.moves(home, home.last(), 0)
	if len(moves) == 0 {
		ch.Note = "The run worked on no files."
		return nil
	}
	first := 0 // the last head that is not the run's own, or else its first
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
		ch.Note = "The files cannot be compared: " + or(why, whyAfter) + "."
		return nil
	}
	net := workspace.Compare(before, after)
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
		ch.Files = append(ch.Files, b.files[c.Path].change(c, &room))
	}
	return nil
}

// tree reads the manifest of a head; nil, and why, if it is not there.
func (t *teller) tree(head blob.Digest) (*workspace.Tree, string, error) {
	if head.IsZero() {
		return &workspace.Tree{}, "", nil
	}
	data, why, err := t.a.shelf(head)
	if err != nil {
		return nil, "", err
	}
	if why == "" {
		tree, err := workspace.Decode(data)
		if err != nil {
			return nil, "", fail(Blob, "", 0, "blob %s is no manifest of files: %v", head, err)
		}
		return tree, "", nil
	}
	t.left = append(t.left, fmt.Sprintf("the list of files at head %s: %s", head.Short(), why))
	return nil, why, nil
}

// text reads a file as lines; why says what stands against showing them.
func (t *teller) text(e workspace.Entry) (lines []string, why string, err error) {
	switch {
	case e.Kind == workspace.Symlink:
		return []string{"link to " + e.Target}, "", nil
	case e.Kind != workspace.File:
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
	return split(string(data)), "", nil
}

// blame follows files through the heads.
type blame struct {
	t     *teller
	files map[string]*blamed
}

// blamed is one file on its way. own says for each line of now the index that
// it had in base, or who added it.
type blamed struct {
	base    []string
	now     []string
	own     []origin
	removed map[int][]int // steps that removed a line of base
	steps   []int         // that touched the path
	last    []int         // the last of them
	entry   workspace.Entry
	why     string // no lines can be shown
}

type origin struct {
	base  int // index of the line in base, -1 for an added one
	steps []int
}

func (b *blame) begin(c workspace.Change) error {
	f := &blamed{removed: map[int][]int{}, entry: c.Before}
	var err error
	if f.base, f.why, err = b.t.text(c.Before); err != nil {
		return err
	}
	f.now = f.base
	for i := range f.base {
		f.own = append(f.own, origin{base: i})
	}
	b.files[c.Path] = f
	return nil
}

// replay takes the files through every head. Where the list of files at a head
// is not there, its steps share the blame with those of the next one.
func (b *blame) replay(tree *workspace.Tree, moves []move) error {
	var steps []int
	for _, m := range moves {
		steps = append(steps, m.steps...)
		next, why, err := b.t.tree(m.head)
		if err != nil {
			return err
		}
		if why != "" {
			continue
		}
		for _, c := range workspace.Compare(tree, next) {
			if f := b.files[c.Path]; f != nil {
				if err := b.step(f, c.After, steps); err != nil {
					return err
				}
			}
		}
		tree, steps = next, nil
	}
	return nil
}

// step takes one file to its next content.
func (b *blame) step(f *blamed, next workspace.Entry, steps []int) error {
	for _, s := range steps {
		if !slices.Contains(f.steps, s) {
			f.steps = append(f.steps, s)
		}
	}
	f.last, f.entry = steps, next
	now, why, err := b.t.text(next)
	if err != nil {
		return err
	}
	if why != "" {
		f.why = why
	}
	var own []origin
	for _, e := range compare(f.now, now) {
		switch e.op {
		case ' ':
			own = append(own, f.own[e.old])
		case '+':
			own = append(own, origin{-1, steps})
		case '-':
			if o := f.own[e.old]; o.base >= 0 {
				f.removed[o.base] = steps
			}
		}
	}
	f.now, f.own = now, own
	return nil
}

// change tells how a file differs in the end. room is how many lines may still
// be shown.
func (f *blamed) change(c workspace.Change, room *int) FileChange {
	out := FileChange{Path: one(c.Path, 300), Kind: c.Kind, Steps: f.steps}
	slices.Sort(out.Steps)
	size := func(e workspace.Entry) string {
		switch e.Kind {
		case workspace.Dir:
			return "directory"
		case workspace.Symlink:
			return "link to " + one(e.Target, 200)
		}
		text := bytesOf(e.Size)
		if e.Exec {
			text += ", executable"
		}
		return text
	}
	switch c.Kind {
	case workspace.Added:
		out.Note = "new, " + size(c.After)
	case workspace.Removed:
		out.Note = "removed, " + size(c.Before)
	default:
		if a, z := size(c.Before), size(c.After); a != z {
			out.Note = a + " to " + z
		}
	}
	if f.why != "" {
		out.Note = strings.TrimPrefix(out.Note+"; "+f.why, "; ")
		return out
	}
	edits := compare(f.base, f.now)
	for _, e := range edits {
		switch e.op {
		case '+':
			out.Add++
		case '-':
			out.Remove++
		}
	}
	for _, h := range hunks(edits) {
		if *room -= len(h); *room < 0 {
			out.Note = strings.TrimPrefix(out.Note+"; its further changes are not shown", "; ")
			break
		}
		out.Hunks = append(out.Hunks, f.hunk(h))
	}
	return out
}

// hunks groups changed lines with what stands around them.
func hunks(edits []edit) [][]edit {
	var out [][]edit
	end := 0 // of the last hunk
	for i := 0; i < len(edits); i++ {
		if edits[i].op == ' ' {
			continue
		}
		from := max(i-around, end)
		to, quiet := i+1, 0
		for j := i + 1; j < len(edits) && quiet <= 2*around; j++ {
			if edits[j].op == ' ' {
				quiet++
				continue
			}
			to, quiet = j+1, 0
		}
		end = min(to+around, len(edits))
		out = append(out, edits[from:end])
		i = end - 1
	}
	return out
}

func (f *blamed) hunk(edits []edit) Hunk {
	var h Hunk
	var olds, news int
	for _, e := range edits {
		l := Line{Op: string(e.op)}
		var steps []int
		switch e.op {
		case '-':
			if steps = f.removed[e.old]; steps == nil {
				steps = f.last
			}
			l.Old, l.Text = e.old+1, f.base[e.old]
			olds++
		case '+':
			if o := f.own[e.new]; o.base < 0 {
				steps = o.steps
			} else {
				steps = f.last
			}
			l.New, l.Text = e.new+1, f.now[e.new]
			news++
		default:
			l.Old, l.New, l.Text = e.old+1, e.new+1, f.now[e.new]
			olds++
			news++
		}
		if text, ends := strings.CutSuffix(l.Text, "\n"); ends {
			l.Text = plain(text)
		} else {
			l.Text = plain(text) + " ⟦no newline at the end⟧"
		}
		l.Text = clip(l.Text, maxText)
		for _, s := range steps {
			l.Step = s
			if !slices.Contains(h.Steps, s) {
				h.Steps = append(h.Steps, s)
			}
		}
		h.Lines = append(h.Lines, l)
	}
	slices.Sort(h.Steps)
	h.Header = fmt.Sprintf("@@ -%s +%s @@", span(edits[0].old, olds), span(edits[0].new, news))
	return h
}

// span writes a range of lines as diffs do.
func span(start, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return fmt.Sprint(start + 1)
	}
	return fmt.Sprintf("%d,%d", start+1, n)
}
