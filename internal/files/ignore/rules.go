// Package ignore decides which paths of a directory are excluded, by the patterns of
// gitignore.
//
//	rules := new(ignore.Rules)
//	err := rules.Add("", gitignore)        // of the top
//	err = rules.Add("sub", gitignore)      // of a directory below
//	line, out := rules.Match("sub/x.log", false)
//
// The lines of all files become one list, equivalent to a single file at the top, which can
// be stored and parsed again. The package reads no files and does not depend on git.
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

// Rules is a list of patterns, of which the last match decides. The zero value excludes
// nothing. Concurrent reads are safe.
type Rules struct {
	lines    []string
	patterns []pattern
}

// Add appends the lines of a file in a directory: slash separated, relative, "" for the
// top. Add files from the top down, so that lower ones take precedence.
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

// Parse returns the rules from the output of Lines. Lines that Add would drop or rewrite
// are an error.
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

// Include appends lines that include the path of a file, whatever the earlier lines
// exclude. All other paths that they exclude in its parent directories stay excluded.
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

// Match reports whether a path is excluded, and the line that decides. It does not check
// the path's parents: a walk does not enter an excluded directory.
func (r *Rules) Match(path string, dir bool) (line string, out bool) {
	names := strings.Split(path, "/")
	for i, p := range slices.Backward(r.patterns) {
		if (dir || !p.dirOnly) && p.match(names) {
			return r.lines[i], !p.keep
		}
	}
	return "", false
}

// Excludes is Match for a path outside a walk: an excluded parent excludes the path, too.
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

// trim removes unescaped trailing white space; a comment becomes empty.
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

// below returns the equivalent of a line in dir for a file at the top, "" if it matches
// nothing.
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

// Outside converts the line of a file in a directory above the top to the equivalent line
// of a file at the top. down is the path from that directory to the top. ok is false if the
// line concerns other directories.
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
