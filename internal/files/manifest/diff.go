package manifest

import "strings"

// ChangeKind is the kind of a change to a path.
type ChangeKind string

// The kinds of changes.
const (
	Added    ChangeKind = "added"
	Removed  ChangeKind = "removed"
	Modified ChangeKind = "modified" // other bytes, mode, target or kind
)

// Change is the difference of one path between two trees. The Entry of a tree without the
// path is zero.
type Change struct {
	Path   string
	Kind   ChangeKind
	Before Entry
	After  Entry
}

// Compare returns the changes from one tree to another, sorted by path.
func Compare(before, after *Tree) []Change {
	var changes []Change
	a, z := before.entries, after.entries
	for len(a) > 0 || len(z) > 0 {
		side := 0
		switch {
		case len(a) == 0:
			side = 1
		case len(z) == 0:
			side = -1
		default:
			side = strings.Compare(a[0].Path, z[0].Path)
		}
		switch {
		case side < 0:
			changes = append(changes, Change{Path: a[0].Path, Kind: Removed, Before: a[0]})
			a = a[1:]
		case side > 0:
			changes = append(changes, Change{Path: z[0].Path, Kind: Added, After: z[0]})
			z = z[1:]
		default:
			if a[0] != z[0] {
				changes = append(changes, Change{Path: a[0].Path, Kind: Modified, Before: a[0], After: z[0]})
			}
			a, z = a[1:], z[1:]
		}
	}
	return changes
}
