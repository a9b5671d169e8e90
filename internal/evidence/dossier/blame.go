package dossier

import (
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/files/manifest"
)

// blame follows files through the heads.
type blame struct {
	t     *timeline
	files map[string]*blamed
}

// blamed is the history of one file. A line of now has its index in base, or the steps
// that added it.
type blamed struct {
	base    []string
	now     []manifest.Traced[origin]
	removed map[int][]int // steps that removed a line of base
	steps   []int         // that touched the path
	last    []int         // the last of them
	why     string        // the reason if no lines can be shown
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
	for i, text := range f.base {
		f.now = append(f.now, manifest.Traced[origin]{Text: text, By: origin{base: i}})
	}
	b.files[c.Path] = f
	return nil
}

// replay applies every head to the files. If the manifest of a head is missing, its steps
// share the blame with the steps of the next head.
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

// step applies the next content of one file.
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
	f.now = manifest.Trace(f.now, now, origin{-1, steps}, func(l manifest.Traced[origin]) {
		if l.By.base >= 0 {
			f.removed[l.By.base] = steps
		}
	})
	return nil
}

// change returns the final change of a file. room is the number of lines that may still
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
	hidden := false
	for _, h := range manifest.Hunks(f.base, manifest.Texts(f.now)) {
		added, removed := h.Changed()
		out.Add, out.Remove = out.Add+added, out.Remove+removed
		if *room -= len(h.Lines); *room < 0 {
			hidden = true
			continue
		}
		out.Hunks = append(out.Hunks, f.hunk(&h))
	}
	if hidden {
		out.Note = strings.TrimPrefix(out.Note+"; its further changes are not shown", "; ")
	}
	return out
}

func (f *blamed) hunk(of *manifest.Hunk) Hunk {
	h := Hunk{Header: of.Header()}
	old, now := max(of.OldStart-1, 0), max(of.NewStart-1, 0) // indexes, unused for a side without lines
	for _, line := range of.Lines {
		l := Line{Op: string(line.Op), Text: plain(line.Text)}
		var steps []int
		switch line.Op {
		case '-':
			if steps = f.removed[old]; steps == nil {
				steps = f.last
			}
		case '+':
			if steps = f.last; f.now[now].By.base < 0 {
				steps = f.now[now].By.steps
			}
		}
		if line.Op != '+' {
			old++
			l.Old = old
		}
		if line.Op != '-' {
			now++
			l.New = now
		}
		if line.NoEOL {
			l.Text += " ⟦no newline at the end⟧"
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
	return h
}
