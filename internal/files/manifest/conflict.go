package manifest

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
)

// ConflictKind is why two states of a path cannot both be taken.
type ConflictKind string

// The kinds of conflicts.
const (
	TextConflict   ConflictKind = "text"           // both changed the same lines
	BinaryConflict ConflictKind = "binary"         // both changed a file that is no text, or larger than 1 MiB
	BothAdded      ConflictKind = "both added"     // two files at a path where there was none
	DeleteConflict ConflictKind = "deleted"        // one side removed the path, the other changed it
	TypeConflict   ConflictKind = "type"           // a file, a directory and a link exclude each other
	ModeConflict   ConflictKind = "mode"           // both added the same file, one of them to be run
	LinkConflict   ConflictKind = "link"           // a link to two targets
	NameConflict   ConflictKind = "name"           // two names that some file system takes for one
	GitConflict    ConflictKind = "git repository" // both sides changed the repository, which is taken as a whole
)

// Choice is the resolution of a conflict.
type Choice string

// The choices. In a text, Ours and Theirs apply only to the conflicting lines. KeepBoth
// leaves ours at the path and puts theirs beside it, as "path.<name of the side>"; a path
// that one side removed is kept.
const (
	Undecided   Choice = "" // ours is at the path
	TakeOurs    Choice = "ours"
	TakeTheirs  Choice = "theirs"
	KeepBoth    Choice = "both"
	maxDetail          = 4 << 10 // bytes
	tooLongName        = "the name of the second one would be too long"
)

// Conflict is a path with incompatible changes of two sides, and its resolution.
type Conflict struct {
	Path   string       `json:"path"`
	Kind   ConflictKind `json:"kind"`
	Ours   string       `json:"ours"`             // the sides that changed it before
	Theirs string       `json:"theirs"`           // the side that is merged into them
	Choice Choice       `json:"choice,omitempty"` // "" if it is open
	By     string       `json:"by,omitempty"`     // the reason of the choice
	// Detail shows both sides, cut to 4 KiB.
	Detail string `json:"detail,omitempty"`
}

// String names the path, the sides and the resolution.
func (c Conflict) String() string {
	text := fmt.Sprintf("%s (%s): ", c.Path, c.Kind)
	switch c.Choice {
	case TakeOurs:
		text += c.Ours + " over " + c.Theirs
	case TakeTheirs:
		text += c.Theirs + " over " + c.Ours
	case KeepBoth:
		text += c.Ours + " and " + c.Theirs + " kept"
	default:
		return text + c.Theirs + " against " + c.Ours + " is open"
	}
	if c.By != "" {
		text += ", by " + c.By
	}
	return text
}

// marked shows the regions in conflict as git does.
func marked(regions []Region, ours, theirs string) string {
	var b strings.Builder
	line := 1
	for _, r := range regions {
		if r.Conflict {
			fmt.Fprintf(&b, "<<<<<<< %s (line %d)\n%s=======\n%s>>>>>>> %s\n", ours, line, whole(r.Ours), whole(r.Theirs), theirs)
			if b.Len() > maxDetail {
				break
			}
		}
		line += len(r.Ours)
	}
	return clipped(b.String())
}

// whole writes lines of which the last one may lack its newline.
func whole(lines []string) string {
	text := strings.Join(lines, "")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

func clipped(text string) string {
	if len(text) <= maxDetail {
		return text
	}
	return excerpt.Clip(text, maxDetail-len("…\n")) + "…\n"
}

// what describes the state of a path.
func (n *node) what() string {
	if n == nil {
		return "nothing"
	}
	switch n.Kind {
	case Dir:
		return "a directory"
	case Symlink:
		return "a link to " + n.Target
	}
	if n.Exec {
		return fmt.Sprintf("a file of %d bytes that may be run (%s)", n.Size, n.Digest.Short())
	}
	return fmt.Sprintf("a file of %d bytes (%s)", n.Size, n.Digest.Short())
}
