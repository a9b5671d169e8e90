// Package ignore says by the patterns of gitignore which paths of a directory are left
// out of it.
//
//	rules := new(ignore.Rules)
//	err := rules.Add("", gitignore)        // of the top
//	err = rules.Add("sub", gitignore)      // of a directory below
//	line, out := rules.Match("sub/x.log", false)
//
// The lines of all files become one list, as one file at the top would have them, so
// that they can be kept with what they left out and read again. The package reads no
// file and knows nothing of git.
package ignore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of rules: a walk asks each line about each path.
const (
	MaxLines = 2048
	maxLine  = 4096 // bytes
)

// ErrTooMany is returned for more than MaxLines lines, or one that is too long.
var ErrTooMany = fmt.Errorf("ignore: more than %d lines of patterns, or one of more than %d bytes", MaxLines, maxLine)

// Rules is a list of patterns, of which the last one that matches decides. The zero
// value leaves nothing out. It may be read by several goroutines at once.
type Rules struct {
	lines    []string
	patterns []pattern
}

// Add appends the lines of a file that lies in a directory: slash separated, relative,
// "" for the top. Files are added from the top down, so that those below decide.
func (r *Rules) Add(dir string, file []byte) error {
	for line := range bytes.Lines(bytes.TrimPrefix(file, []byte("\xef\xbb\xbf"))) {
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if !utf8.Valid(line) || bytes.IndexByte(line, 0) >= 0 {
			continue // it matches no path that a workspace can hold
		}
		if text := below(dir, trim(string(line))); text != "" {
			if err := r.add(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// Parse returns the rules of lines that Lines returned. Other lines are an error:
// those that Add would drop or write in another way.
func Parse(lines []string) (*Rules, error) {
	r := new(Rules)
	for _, line := range lines {
		if !utf8.ValidString(line) || strings.ContainsAny(line, "\x00\n") || line == "" || trim(line) != line {
			return nil, fmt.Errorf("ignore: %q is no line of patterns", line)
		}
		if err := r.add(line); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// add appends one line.
func (r *Rules) add(line string) error {
	if n := len(r.lines); n >= MaxLines || len(line) > maxLine {
		return ErrTooMany
	}
	r.lines = append(r.lines, line)
	r.patterns = append(r.patterns, compile(line))
	return nil
}

// Include appends the lines by which a path of a file comes in, whatever the lines before
// them say. All else in the directories above it that they left out stays out.
func (r *Rules) Include(path string) error {
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if _, out := r.Match(path[:i], true); out {
			dir := "/" + escape(path[:i])
			if err := errors.Join(r.add("!"+dir+"/"), r.add(dir+"/*")); err != nil {
				return err
			}
		}
	}
	if _, out := r.Match(path, false); out {
		return r.add("!/" + escape(path))
	}
	return nil
}

// Len returns the number of lines.
func (r *Rules) Len() int { return len(r.lines) }

// Lines returns the lines that Parse reads. The caller owns the slice.
func (r *Rules) Lines() []string { return slices.Clone(r.lines) }

// Match reports whether a path is left out, and the line that says so. The parents of
// the path are not looked at: a walk does not come below a directory that is out.
func (r *Rules) Match(path string, dir bool) (line string, out bool) {
	names := strings.Split(path, "/")
	for i, p := range slices.Backward(r.patterns) {
		if (dir || !p.dirOnly) && p.match(names) {
			return r.lines[i], !p.keep
		}
	}
	return "", false
}

// Excludes is Match for a path that no walk came to: also a parent that is out leaves
// the path out.
func (r *Rules) Excludes(path string, dir bool) (line string, out bool) {
	for i := range len(path) {
		if path[i] == '/' {
			if line, out := r.Match(path[:i], true); out {
				return line, true
			}
		}
	}
	return r.Match(path, dir)
}

// trim removes white space at the end that is not escaped; a comment is empty.
func trim(line string) string {
	if strings.HasPrefix(line, "#") {
		return ""
	}
	for strings.HasSuffix(line, " ") {
		rest := strings.TrimSuffix(line, " ")
		if slashes := len(rest) - len(strings.TrimRight(rest, `\`)); slashes%2 == 1 {
			break
		}
		line = rest
	}
	return line
}

// below returns the line as a file at the top would have it, "" if it matches nothing.
func below(dir, line string) string {
	mark := ""
	if rest, ok := strings.CutPrefix(line, "!"); ok {
		mark, line = "!", rest
	}
	if line == "" || line == "/" {
		return ""
	}
	if dir == "" {
		return mark + line
	}
	dir = "/" + escape(dir)
	if strings.HasPrefix(line, "/") {
		return mark + dir + line
	}
	if strings.Contains(strings.TrimSuffix(line, "/"), "/") {
		return mark + dir + "/" + line
	}
	return mark + dir + "/**/" + line
}

// Outside returns the line of a file in a directory above the top as a file at the
// top would have it: down leads from that directory to the top. ok is false for a
// line that is about other directories.
func Outside(down, line string) (string, bool) {
	line = trim(strings.TrimSuffix(line, "\r"))
	rest, keep := strings.CutPrefix(line, "!")
	if rest == "" || rest == "/" {
		return "", false
	}
	mark := ""
	if keep {
		mark = "!"
	}
	if !strings.Contains(strings.TrimSuffix(rest, "/"), "/") {
		return line, true // of any directory
	}
	p, names := compile(rest), strings.Split(down, "/")
	for i := range p.parts {
		switch {
		case p.parts[i] == "**":
			return mark + strings.Join(p.parts[i:], "/") + p.slash(), true
		case i == len(names):
			return mark + "/" + strings.Join(p.parts[i:], "/") + p.slash(), true
		case !glob(p.parts[i], names[i]):
			return "", false
		}
	}
	return "", false // it is about a directory on the way, or leaves the top out as a whole
}
