package manifest

import "slices"

// Region is a run of lines in a three-way merge, in the base and on both sides.
type Region struct {
	Base, Ours, Theirs []string
	// Conflict: both sides changed these lines, and not in the same way.
	Conflict bool
}

// Merged returns the lines of a region that is no conflict.
func (r Region) Merged() []string {
	if slices.Equal(r.Ours, r.Base) {
		return r.Theirs
	}
	return r.Ours
}

// Merge3 merges two texts derived from a base, by lines. The regions cover all three texts,
// in order. As in git, adjacent changes of two sides conflict unless their results are
// equal. Merge3 is a pure function, and finds the same regions with the sides swapped.
func Merge3(base, ours, theirs []string) []Region {
	a, z := changed(DiffLines(base, ours)), changed(DiffLines(base, theirs))
	var out []Region
	b, o, t := 0, 0, 0 // up to where the texts are covered
	for len(a) > 0 || len(z) > 0 {
		// The next change begins a region; every change that touches it belongs to it.
		from := len(base)
		if len(a) > 0 {
			from = a[0].from
		}
		if len(z) > 0 {
			from = min(from, z[0].from)
		}
		to, na, nz := from, 0, 0
		for grown := true; grown; {
			grown = false
			if na < len(a) && a[na].from <= to {
				to, na, grown = max(to, a[na].to), na+1, true
			}
			if nz < len(z) && z[nz].from <= to {
				to, nz, grown = max(to, z[nz].to), nz+1, true
			}
		}
		same := from - b
		if same > 0 {
			out = append(out, Region{Base: base[b:from], Ours: ours[o : o+same], Theirs: theirs[t : t+same]})
		}
		endO, endT := o+same+to-from, t+same+to-from
		for _, c := range a[:na] {
			endO += c.grows
		}
		for _, c := range z[:nz] {
			endT += c.grows
		}
		r := Region{Base: base[from:to], Ours: ours[o+same : endO], Theirs: theirs[t+same : endT]}
		r.Conflict = na > 0 && nz > 0 && !slices.Equal(r.Ours, r.Theirs)
		out = append(out, r)
		b, o, t, a, z = to, endO, endT, a[na:], z[nz:]
	}
	if b < len(base) {
		out = append(out, Region{Base: base[b:], Ours: ours[o:], Theirs: theirs[t:]})
	}
	return out
}

// change replaces the lines [from, to) of the base on one side; grows is the net number of
// lines added.
type change struct{ from, to, grows int }

// changed joins edits that follow on each other.
func changed(edits []Edit) []change {
	var out []change
	open := false
	for _, e := range edits {
		if e.Op == ' ' {
			open = false
			continue
		}
		if !open {
			out, open = append(out, change{from: e.OldFrom, to: e.OldFrom}), true
		}
		c := &out[len(out)-1]
		c.to = e.OldTo
		c.grows += e.NewTo - e.NewFrom - (e.OldTo - e.OldFrom)
	}
	return out
}
