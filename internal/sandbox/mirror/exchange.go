package mirror

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// If a process there changes files during a transfer, the mirror scans again.
const (
	exchangeTries = 10
	exchangePause = 20 * time.Millisecond
)

// exchange synchronizes both sides where both may have changed. m.mu is held.
func (m *Mirror) exchange(ctx context.Context) error {
	for try := 1; ; try++ {
		var mine, theirs difference
		var mineErr, theirsErr error
		var looks sync.WaitGroup
		looks.Go(func() { mine, mineErr = m.look(ctx, m.here) })
		theirs, theirsErr = m.look(ctx, m.there)
		looks.Wait()
		if err := cmp.Or(theirsErr, mineErr); err != nil {
			return err
		}
		mine.win(&theirs)
		if err := m.transfer(ctx, m.there, m.here, theirs); err != nil {
			return err
		}
		err := m.transfer(ctx, m.here, m.there, mine)
		if err == nil || try == exchangeTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(exchangePause):
		}
	}
}

// paths returns the changed paths. The value is true for a changed directory, which both
// sides can create without conflict.
func (d *difference) paths() map[string]bool {
	m := make(map[string]bool, len(d.remove)+len(d.changed))
	for _, e := range d.changed {
		m[e.Path] = e.Kind == Dir
	}
	for _, p := range d.remove {
		m[p] = false
	}
	return m
}

// win resolves conflicts in favor of d. Two changed paths conflict if they are equal or one
// lies below the other. Below the upper one, win drops the changes of both sides, and makes
// d replace the other side's entries by its own.
func (d *difference) win(other *difference) {
	mine, theirs := d.paths(), other.paths()
	var both []string
	against := func(these, those map[string]bool) {
		for p, dir := range these {
			for q := p; q != "."; q = path.Dir(q) {
				if dirToo, changed := those[q]; changed && !(dirToo && (dir || q != p)) {
					both = append(both, q)
				}
			}
		}
	}
	against(mine, theirs)
	against(theirs, mine)
	if len(both) == 0 {
		return
	}
	slices.Sort(both)
	top := both[:0]
	for _, p := range both {
		if !slices.ContainsFunc(top, func(t string) bool { return below(p, t) }) {
			top = append(top, p)
		}
	}
	in := func(p string) bool {
		return slices.ContainsFunc(top, func(t string) bool { return below(p, t) })
	}
	for _, x := range []*difference{d, other} {
		x.remove = slices.DeleteFunc(x.remove, in)
		x.changed = slices.DeleteFunc(x.changed, func(e Entry) bool { return in(e.Path) })
	}
	for _, e := range d.list {
		if in(e.Path) {
			d.changed = append(d.changed, e)
		}
	}
	d.remove = append(d.remove, top...)
	slices.Sort(d.remove)
	slices.SortFunc(d.changed, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
}

// below reports whether a path equals top or lies below it.
func below(p, top string) bool { return p == top || strings.HasPrefix(p, top+"/") }
