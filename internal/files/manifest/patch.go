package manifest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/filename"
)

// Bounds of a Patch.
const (
	patchContext = 3       // unchanged lines shown around a change
	maxText      = 1 << 20 // bytes of a file that is compared line by line
)

// FileDiff is the difference of one path. Text files have Hunks; Binary or Large marks
// other files.
type FileDiff struct {
	Path   string
	Kind   ChangeKind
	Before Entry // zero if added
	After  Entry // zero if removed
	Binary bool  // holds NUL or is not UTF-8
	Large  bool  // more than 1 MiB
	Hunks  []Hunk
}

// Hunk is a run of changed lines with the unchanged ones around them. Starts
// count from 1; a side without lines starts at the line before, as in diff(1).
type Hunk struct {
	OldStart, OldLines int
	NewStart, NewLines int
	Lines              []Line
}

// Line is one line of a hunk.
type Line struct {
	Op    byte   // ' ' both, '-' only before, '+' only after
	Text  string // without its newline
	NoEOL bool   // the file ends here without a newline
}

// Patch returns the differences between the files of heads a and z, sorted by path. Added
// and removed directories are included, without hunks. It omits changes in a repository
// that a carries, see CarriesGit.
func Patch(ctx context.Context, b blob.Store, a, z blob.Digest) ([]FileDiff, error) {
	if a == z {
		return nil, nil
	}
	before, err := Load(ctx, b, a)
	if err != nil {
		return nil, err
	}
	after, err := Load(ctx, b, z)
	if err != nil {
		return nil, err
	}
	changes := Compare(before, after)
	b = NewFiles(b, before, after)
	diffs := make([]FileDiff, 0, len(changes))
	git := before.CarriesGit()
	for _, c := range changes {
		if git && InGit(c.Path) {
			continue
		}
		d := FileDiff{Path: c.Path, Kind: c.Kind, Before: c.Before, After: c.After}
		if c.Before.Digest != c.After.Digest || c.Before.Target != c.After.Target {
			if err := d.compare(ctx, b); err != nil {
				return nil, err
			}
		}
		diffs = append(diffs, d)
	}
	return diffs, nil
}

// compare fills the hunks. As in git, a link's text is its target, and a directory has no
// text.
func (d *FileDiff) compare(ctx context.Context, b blob.Store) error {
	var sides [2][]byte
	for i, e := range []Entry{d.Before, d.After} {
		if e.Kind == Symlink {
			sides[i] = []byte(e.Target)
		}
		if e.Kind != File {
			continue
		}
		if e.Size > maxText {
			d.Large = true
			return nil
		}
		data, err := content(ctx, b, e)
		if err != nil {
			return err
		}
		if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
			d.Binary = true
			return nil
		}
		sides[i] = data
	}
	d.Hunks = Hunks(SplitLines(sides[0]), SplitLines(sides[1]))
	return nil
}

func content(ctx context.Context, b blob.Store, e Entry) ([]byte, error) {
	rc, err := b.Get(ctx, e.Digest)
	if err != nil {
		return nil, fmt.Errorf("workspace: read %q: %w", e.Path, err)
	}
	defer rc.Close()
	data, err := io.ReadAll(io.LimitReader(rc, e.Size+1))
	if err == nil && int64(len(data)) != e.Size {
		err = fmt.Errorf("%w: the manifest says %d bytes", ErrMalformed, e.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("workspace: read %q: %w", e.Path, err)
	}
	return data, nil
}

// SplitLines keeps the newlines, so a last line without a newline differs from one with it.
func SplitLines(data []byte) []string {
	var lines []string
	for l := range bytes.Lines(data) {
		lines = append(lines, string(l))
	}
	return lines
}

// Hunks returns the differences between the lines of a and z, which are in the form of
// SplitLines.
func Hunks(a, z []string) []Hunk {
	var out []Hunk
	edits := DiffLines(a, z)
	for i := 0; i < len(edits); {
		if edits[i].Op == ' ' {
			i++
			continue
		}
		// Changes with little between them share a hunk.
		last := i
		for j := i + 1; j < len(edits); j++ {
			if edits[j].Op != ' ' {
				last = j
			} else if edits[j].OldTo-edits[j].OldFrom > 2*patchContext {
				break
			}
		}
		before := min(patchContext, edits[i].OldFrom)
		after := min(patchContext, len(a)-edits[last].OldTo)
		h := Hunk{
			OldStart: edits[i].OldFrom - before, NewStart: edits[i].NewFrom - before,
			OldLines: edits[last].OldTo + after - (edits[i].OldFrom - before),
			NewLines: edits[last].NewTo + after - (edits[i].NewFrom - before),
		}
		h.add(' ', a[h.OldStart:edits[i].OldFrom])
		for _, o := range edits[i : last+1] {
			if o.Op == '+' {
				h.add('+', z[o.NewFrom:o.NewTo])
			} else {
				h.add(o.Op, a[o.OldFrom:o.OldTo])
			}
		}
		h.add(' ', a[edits[last].OldTo:edits[last].OldTo+after])
		if h.OldLines > 0 {
			h.OldStart++
		}
		if h.NewLines > 0 {
			h.NewStart++
		}
		out = append(out, h)
		i = last + 1
	}
	return out
}

func (h *Hunk) add(op byte, lines []string) {
	for _, l := range lines {
		text, eol := strings.CutSuffix(l, "\n")
		h.Lines = append(h.Lines, Line{Op: op, Text: text, NoEOL: !eol})
	}
}

// Changed counts the lines that the hunk adds and removes.
func (h *Hunk) Changed() (added, removed int) {
	for i := range h.Lines {
		switch h.Lines[i].Op {
		case '+':
			added++
		case '-':
			removed++
		}
	}
	return added, removed
}

// Changed counts the lines that the hunks add and remove.
func (d *FileDiff) Changed() (added, removed int) {
	for i := range d.Hunks {
		a, r := d.Hunks[i].Changed()
		added, removed = added+a, removed+r
	}
	return added, removed
}

// Header returns the line that a unified diff has before the hunk.
func (h *Hunk) Header() string {
	return fmt.Sprintf("@@ -%s +%s @@", span(h.OldStart, h.OldLines), span(h.NewStart, h.NewLines))
}

// WriteUnified writes the hunks of differences in the unified format of git apply, and a
// line of text for each path without hunks.
func WriteUnified(w io.Writer, diffs []FileDiff) error {
	out := bufio.NewWriter(w)
	for _, d := range diffs {
		d.write(out)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("workspace: write patch: %w", err)
	}
	return nil
}

// write relies on the sticky error of the bufio.Writer.
func (d *FileDiff) write(w *bufio.Writer) {
	before, after := d.Before, d.After
	if before.Kind == Dir {
		before = Entry{}
	}
	if after.Kind == Dir {
		after = Entry{}
	}
	if before == after {
		fmt.Fprintf(w, "# %s directory %s\n", d.Kind, quote("", d.Path))
		return
	}
	old, now := quote("a/", d.Path), quote("b/", d.Path)
	fmt.Fprintf(w, "diff --git %s %s\n", old, now)
	switch was, is := mode(before), mode(after); {
	case before.Kind == "":
		fmt.Fprintf(w, "new file mode %s\n", is)
		old = "/dev/null"
	case after.Kind == "":
		fmt.Fprintf(w, "deleted file mode %s\n", was)
		now = "/dev/null"
	case was != is:
		fmt.Fprintf(w, "old mode %s\nnew mode %s\n", was, is)
	}
	switch {
	case d.Binary:
		fmt.Fprintf(w, "Binary files %s and %s differ\n", old, now)
	case d.Large:
		fmt.Fprintf(w, "# more than %d bytes, not compared line by line\n", maxText)
	}
	if len(d.Hunks) > 0 {
		fmt.Fprintf(w, "--- %s\n+++ %s\n", old, now)
	}
	for _, h := range d.Hunks {
		fmt.Fprintln(w, h.Header())
		for _, l := range h.Lines {
			fmt.Fprintf(w, "%c%s\n", l.Op, l.Text)
			if l.NoEOL {
				fmt.Fprintln(w, `\ No newline at end of file`)
			}
		}
	}
}

func span(start, n int) string {
	if n == 1 {
		return fmt.Sprint(start)
	}
	return fmt.Sprintf("%d,%d", start, n)
}

// mode is how git calls the kind of an entry.
func mode(e Entry) string {
	switch {
	case e.Kind == Symlink:
		return "120000"
	case e.Exec:
		return "100755"
	}
	return "100644"
}

// octal writes a name that is not UTF-8 as git does.
func octal(name string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(name) {
		switch {
		case c == '"' || c == '\\':
			b.WriteString("\\" + string(rune(c)))
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// quote writes a path as git does: unchanged, or in quotes if it would be ambiguous.
func quote(prefix, path string) string {
	if raw := filename.Raw(path); raw != path {
		return octal(prefix + raw)
	}
	for _, r := range path {
		if r < ' ' || r == '"' || r == '\\' || r == 0x7f {
			return fmt.Sprintf("%q", prefix+path)
		}
	}
	return prefix + path
}
