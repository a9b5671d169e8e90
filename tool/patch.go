package tool

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Limits of a patch.
const (
	MaxPatch      = 1 << 20 // bytes
	MaxPatchFiles = 100
	maxHunks      = 1000 // hunks and their header lines
	maxCompared   = 50e6 // lines, to find where the hunks apply
)

// The control lines of a patch.
const (
	patchBegin  = "*** Begin Patch"
	patchEnd    = "*** End Patch"
	patchAdd    = "*** Add File: "
	patchDelete = "*** Delete File: "
	patchUpdate = "*** Update File: "
	patchMove   = "*** Move to: "
	patchLast   = "*** End of File"
)

// PatchedFiles returns the names of files in the control lines of a patch, which may be
// malformed: those that it writes, and those that it only removes.
func PatchedFiles(patch string) (written, removed []string) {
	for line := range strings.Lines(patch) {
		line = strings.TrimSpace(line)
		for _, head := range []string{patchUpdate, patchAdd, patchMove, patchDelete} {
			name, ok := strings.CutPrefix(line, head)
			switch name = strings.TrimSpace(name); {
			case ok && head == patchDelete:
				removed = append(removed, name)
			case ok:
				written = append(written, name)
			}
		}
	}
	return written, removed
}

// filePatch is the part of a patch that changes one file.
type filePatch struct {
	verb  string // patchAdd, patchDelete or patchUpdate
	path  string
	to    string // its new name; "" keeps it
	text  string // the contents of an added file
	hunks []hunk
	again bool // the next hunk is of a section of its own
}

// hunk is a change within a file.
type hunk struct {
	at      int      // its first line in the patch
	headers []string // lines of the file that precede it
	lines   []string // with ' ', '-' or '+' before each
	last    bool     // it is at the end of the file
	first   bool     // the search for it starts at the beginning of the file
}

// unifiedHeader matches the header of a unified diff's hunk. Models invent its numbers.
var unifiedHeader = regexp.MustCompile(`^-\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)$`)

// patchError returns the error of a malformed patch.
func patchError(line int, format string, args ...any) error {
	return &Failure{Kind: InvalidArguments, Message: fmt.Sprintf("line %d of the patch: ", line) + fmt.Sprintf(format, args...)}
}

// The lines around a patch that models copy from shells and documents: a code fence, and a
// command with a here-document.
var (
	patchFence   = regexp.MustCompile("^(?:```|~~~)[\\w-]*$")
	patchHeredoc = regexp.MustCompile(`^(?:(?:apply_patch|applypatch)\s*)?<<-?\s*['"]?(\w+)['"]?$`)
)

// unwrapped returns the lines of a patch without such lines around it. It keeps any other
// text, which is an error: a command before the patch, such as cd, would change its
// meaning.
func unwrapped(lines []string) []string {
	words := map[string]bool{}
	for ; len(lines) > 0; lines = lines[1:] {
		line := strings.TrimSpace(lines[0])
		if m := patchHeredoc.FindStringSubmatch(line); m != nil {
			words[m[1]] = true
		} else if line != "" && !patchFence.MatchString(line) {
			break
		}
	}
	for ; len(lines) > 0; lines = lines[:len(lines)-1] {
		if line := strings.TrimSpace(lines[len(lines)-1]); line != "" && !words[line] && !patchFence.MatchString(line) {
			break
		}
	}
	return lines
}

// parsePatch parses the format that begins with "*** Begin Patch". dir is the path of the
// workspace for commands; file names may begin with it.
func parsePatch(dir, text string) ([]*filePatch, error) {
	if len(text) > MaxPatch {
		return nil, &Failure{Kind: TooLarge, Message: fmt.Sprintf("the patch has %d bytes, at most %d are taken: send it in parts", len(text), MaxPatch)}
	}
	lines := unwrapped(strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n"))
	if len(lines) == 0 || strings.TrimSpace(lines[0]) != patchBegin || strings.TrimSpace(lines[len(lines)-1]) != patchEnd {
		return nil, &Failure{Kind: InvalidArguments, Message: `the patch does not begin with "` + patchBegin + `" and end with "` + patchEnd +
			`"; between them stand "` + patchUpdate + `NAME", then "@@" and lines that begin with a blank, - or +; "` + patchAdd + `NAME", then lines that begin with +; "` + patchDelete + `NAME"`}
	}
	p := patchReader{dir: dir, lines: lines[:len(lines)-1], n: 1}
	for p.n < len(p.lines) {
		if err := p.section(); err != nil {
			return nil, err
		}
	}
	if len(p.all) == 0 {
		return nil, &Failure{Kind: InvalidArguments, Message: "the patch names no file"}
	}
	return p.all, nil
}

// patchReader reads line after line.
type patchReader struct {
	dir   string
	lines []string
	n     int // the next
	all   []*filePatch
	hunks int // number of hunks and header lines
}

// name returns the name of a file as the workspace has it.
func (p *patchReader) name(text string) string {
	return within(p.dir, path.Clean(strings.TrimSpace(text)))
}

// section parses the section of one file.
func (p *patchReader) section() error {
	line := p.lines[p.n]
	at := p.n + 1
	for _, verb := range []string{patchAdd, patchDelete, patchUpdate} {
		name, ok := strings.CutPrefix(line, verb)
		if !ok {
			continue
		}
		if strings.TrimSpace(name) == "" {
			return patchError(at, "there is no name after %q", strings.TrimSpace(verb))
		}
		p.n++
		f, err := p.file(at, verb, p.name(name))
		if err != nil {
			return err
		}
		switch verb {
		case patchAdd:
			return p.added(f)
		case patchUpdate:
			return p.updated(f, at)
		}
		return nil
	}
	if strings.TrimSpace(line) == "" {
		p.n++
		return nil
	}
	return patchError(at, "%q: want %q, %q or %q and a name", clip(line, 80), strings.TrimSpace(patchUpdate), strings.TrimSpace(patchAdd), strings.TrimSpace(patchDelete))
}

// file returns the filePatch of a file, which several update sections may share.
func (p *patchReader) file(at int, verb, name string) (*filePatch, error) {
	for _, f := range p.all {
		if f.path != name && f.to != name {
			continue
		}
		if verb == patchUpdate && f.verb == patchUpdate && f.to == "" {
			f.again = true
			return f, nil
		}
		return nil, patchError(at, "%q is named twice", name)
	}
	if len(p.all) == MaxPatchFiles {
		return nil, &Failure{Kind: TooLarge, Message: fmt.Sprintf("the patch is of more than %d files: send it in parts", MaxPatchFiles)}
	}
	f := &filePatch{verb: verb, path: name}
	p.all = append(p.all, f)
	return f, nil
}

func (p *patchReader) added(f *filePatch) error {
	var b strings.Builder
	for ; p.n < len(p.lines) && !strings.HasPrefix(p.lines[p.n], "*** "); p.n++ {
		text, ok := strings.CutPrefix(p.lines[p.n], "+")
		if !ok {
			return patchError(p.n+1, "each line of the file %q that is added begins with +", f.path)
		}
		b.WriteString(text + "\n")
	}
	f.text = b.String()
	return nil
}

func (p *patchReader) updated(f *filePatch, at int) error {
	if p.n < len(p.lines) {
		if to, ok := strings.CutPrefix(p.lines[p.n], patchMove); ok {
			f.to = p.name(to)
			for _, other := range p.all {
				if other.path == f.to || other != f && other.to == f.to {
					return patchError(p.n+1, "%q is named twice", f.to)
				}
			}
			p.n++
		}
	}
	had := len(f.hunks)
	var headers []string
	open := false // the last hunk takes lines
	start := func() *hunk {
		if !open {
			p.hunks++
			f.hunks = append(f.hunks, hunk{at: p.n + 1, headers: headers, first: f.again})
			headers, open, f.again = nil, true, false
		}
		return &f.hunks[len(f.hunks)-1]
	}
	for ; p.n < len(p.lines); p.n++ {
		line := p.lines[p.n]
		switch {
		case line == patchLast:
			start().last = true
			open = false
			continue
		case strings.HasPrefix(line, "*** "):
			return p.hunksOf(f, had, at)
		case line == "@@" || strings.HasPrefix(line, "@@ "):
			header := strings.TrimPrefix(strings.TrimPrefix(line, "@@"), " ")
			if m := unifiedHeader.FindStringSubmatch(header); m != nil {
				header = m[1]
			}
			if header = strings.TrimSuffix(header, " @@"); strings.TrimSpace(header) != "" {
				headers = append(headers, header)
				p.hunks++
			}
			open = false
			continue
		case line == "":
			line = " " // models leave the blank of an empty line out
		}
		if c := line[0]; c != ' ' && c != '+' && c != '-' {
			return patchError(p.n+1, "%q begins with neither a blank, - nor +", clip(line, 80))
		}
		h := start()
		h.lines = append(h.lines, line)
	}
	return p.hunksOf(f, had, at)
}

// hunksOf ends the section of a file.
func (p *patchReader) hunksOf(f *filePatch, had, at int) error {
	if p.hunks > maxHunks {
		return &Failure{Kind: TooLarge, Detail: f.path, Message: fmt.Sprintf("the patch has more than %d hunks and lines after @@: send it in parts", maxHunks)}
	}
	for i := had; i < len(f.hunks); i++ {
		h := &f.hunks[i]
		// An empty line before the next section is no line of the file.
		for n := len(h.lines); n > 0 && h.lines[n-1] == " " && p.lines[h.at+n-2] == ""; n-- {
			h.lines = h.lines[:n-1]
		}
		if len(h.lines) == 0 {
			return patchError(h.at, "the hunk holds no line")
		}
	}
	if len(f.hunks) == had && f.to == "" {
		return patchError(at, "there is no hunk for %q", f.path)
	}
	return nil
}

// lineText is a line of a file and its line ending.
type lineText struct{ text, end string }

// linesAs splits a text into its lines.
func linesAs(text string) (lines []lineText) {
	for line := range strings.Lines(text) {
		body := strings.TrimSuffix(line, "\n")
		end := line[len(body):]
		if bare, ok := strings.CutSuffix(body, "\r"); ok && end != "" {
			body, end = bare, "\r\n"
		}
		lines = append(lines, lineText{body, end})
	}
	return lines
}

// patched returns text with the hunks applied, and the numbers of lines added and removed.
func (f *filePatch) patched(text string, by *finder) (after string, added, removed int, err error) {
	text, marked := strings.CutPrefix(text, byteOrderMark)
	lines := linesAs(text)
	end, open := "\n", len(lines) > 0 && lines[len(lines)-1].end == ""
	if n := strings.Count(text, "\r\n"); n > 0 && 2*n >= strings.Count(text, "\n") {
		end = "\r\n"
	}
	cursor := 0
	for i := range f.hunks {
		h := &f.hunks[i]
		if h.first {
			cursor = 0
		}
		at, err := h.find(f.path, i+1, lines, cursor, by)
		if err != nil {
			return "", 0, 0, err
		}
		var out []lineText
		from := at
		for _, line := range h.lines {
			switch line[0] {
			case ' ':
				out = append(out, lines[from])
				from++
			case '-':
				from++
				removed++
			case '+':
				body := line[1:]
				if marked && at == 0 && len(out) == 0 {
					body = strings.TrimPrefix(body, byteOrderMark)
				}
				out = append(out, lineText{body, end})
				added++
			}
		}
		lines = slices.Replace(lines, at, from, out...)
		cursor = at + len(out)
	}
	var b strings.Builder
	if marked {
		b.WriteString(byteOrderMark)
	}
	for i, l := range lines {
		b.WriteString(l.text)
		if i == len(lines)-1 && open {
			break // the file had no end of its last line, and has none
		}
		b.WriteString(cmp.Or(l.end, end))
	}
	if b.Len() > MaxEdited {
		return "", 0, 0, &Failure{Kind: TooLarge, Detail: f.path, Message: fmt.Sprintf("%q would have %d bytes, at most %d are written", f.path, b.Len(), MaxEdited)}
	}
	return b.String(), added, removed, nil
}

// find returns the index of the first line at or after from where the hunk applies.
func (h *hunk) find(name string, n int, lines []lineText, from int, by *finder) (int, error) {
	miss := func(format string, args ...any) error {
		return &Failure{Kind: Mismatch, Detail: name, Message: fmt.Sprintf("hunk %d of %q (line %d of the patch) ", n, name, h.at) + fmt.Sprintf(format, args...) + "; no file was changed"}
	}
	for _, header := range h.headers {
		at, err := by.seek(name, lines, []string{header}, from, 1)
		if err != nil {
			return 0, err
		}
		if len(at) == 0 {
			return 0, miss("is behind a line %q, which is not there from line %d on", clip(header, 200), from+1)
		}
		from = at[0] + 1
	}
	var old []string
	for _, line := range h.lines {
		if line[0] != '+' {
			body := line[1:]
			if len(old) == 0 {
				body = strings.TrimPrefix(body, byteOrderMark)
			}
			old = append(old, body)
		}
	}
	if len(old) == 0 {
		if len(h.headers) > 0 {
			return from, nil
		}
		return len(lines), nil
	}
	if h.last {
		from = max(from, len(lines)-len(old))
	}
	at, err := by.seek(name, lines, old, from, maxShownLines)
	switch {
	case err != nil:
		return 0, err
	case len(at) == 0 && h.last:
		return 0, miss("is not at the end of the file, which it says it is: %q", clip(strings.Join(old, "\n"), 400))
	case len(at) == 0:
		return 0, miss("does not fit: from line %d on these lines are not there, read the file again: %q", from+1, clip(strings.Join(old, "\n"), 400))
	case len(at) > 1 && len(h.headers) == 0:
		for i := range at {
			at[i]++
		}
		return 0, miss(`fits at lines %s: give it more lines around the change, or "@@" with a line before it`, listed(at))
	}
	return at[0], nil
}

// plain replaces typographic characters, which models substitute, by ASCII ones.
var plain = strings.NewReplacer("\u2010", "-", "\u2011", "-", "\u2012", "-", "\u2013", "-", "\u2014", "-", "\u2212", "-",
	"\u2018", "'", "\u2019", "'", "\u201a", "'", "\u201b", "'", "\u201c", `"`, "\u201d", `"`, "\u201e", `"`, "\u201f", `"`, "\u00a0", " ", "\u202f", " ", "\u3000", " ")

// finder finds lines in files. It stops when its context is done or after a number of
// comparisons.
type finder struct {
	ctx  context.Context
	left int // comparisons
}

// newFinder returns the finder of a patch.
func newFinder(ctx context.Context) *finder { return &finder{ctx, maxCompared} }

// spend counts one comparison and returns an error at the limit.
func (f *finder) spend(name string) error {
	f.left--
	switch {
	case f.left < 0:
		return &Failure{Kind: TooLarge, Detail: name, Message: fmt.Sprintf("where the patch applies to %q takes too long to find: send it in parts, with fewer lines that the file holds often; no file was changed", name)}
	case f.left%(1<<14) == 0:
		return f.ctx.Err()
	}
	return nil
}

// seek returns at most most positions at or after from where the lines old occur. It
// compares the lines exactly, then without trailing white space, then without surrounding
// white space and with plain characters, then as models see a file that is not UTF-8.
func (f *finder) seek(name string, lines []lineText, old []string, from, most int) (at []int, err error) {
	if err := f.ctx.Err(); err != nil {
		return nil, err
	}
	for _, as := range []func(string) string{
		func(s string) string { return s },
		func(s string) string { return strings.TrimRight(s, " \t\r") },
		func(s string) string { return plain.Replace(strings.TrimSpace(s)) },
		func(s string) string { return shown(strings.TrimSpace(s)) },
	} {
		want := make([]string, len(old))
		for i, s := range old {
			want[i] = as(s)
		}
		for i := from; i+len(want) <= len(lines) && len(at) < most; i++ {
			j := 0
			for j < len(want) {
				if err := f.spend(name); err != nil {
					return nil, err
				}
				if as(lines[i+j].text) != want[j] {
					break
				}
				j++
			}
			if j == len(want) {
				at = append(at, i)
			}
		}
		if len(at) > 0 {
			return at, nil
		}
	}
	return nil, nil
}
