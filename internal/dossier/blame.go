package dossier

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/manifest"
)

// blame follows files through the heads.
type blame struct {
	t     *timeline
	files map[string]*blamed
}

// blamed is one file on its way. own says for each line of now the index that
// it had in base, or which steps added it.
type blamed struct {
	base    []string
	now     []string
	own     []origin
	removed map[int][]int // steps that removed a line of base
	steps   []int         // that touched the path
	last    []int         // the last of them
	why     string        // no lines can be shown
}

type origin struct {
	base  int // index of the line in base, -1 for an added one
	steps []int
}

func (b *blame) begin(c manifest.Change) error {
	f := &blamed{removed: map[int][]int{}}
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
func (b *blame) replay(tree *manifest.Tree, moves []move) error {
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
		for _, c := range manifest.Compare(tree, next) {
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
func (b *blame) step(f *blamed, next manifest.Entry, steps []int) error {
	for _, s := range steps {
		if !slices.Contains(f.steps, s) {
			f.steps = append(f.steps, s)
		}
	}
	f.last = steps
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

// change says how a file differs in the end. room is how many lines may still
// be shown.
func (f *blamed) change(c manifest.Change, room *int) FileChange {
	out := FileChange{Path: one(c.Path, 300), Kind: c.Kind, Steps: f.steps}
	slices.Sort(out.Steps)
	size := func(e manifest.Entry) string {
		switch e.Kind {
		case manifest.Dir:
			return "directory"
		case manifest.Symlink:
			return "link to " + one(e.Target, 200)
		}
		text := bytesOf(e.Size)
		if e.Exec {
			text += ", executable"
		}
		return text
	}
	switch c.Kind {
	case manifest.Added:
		out.Note = "new, " + size(c.After)
	case manifest.Removed:
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
