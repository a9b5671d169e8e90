package tool

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/internal/core/schema"
	"github.com/rathcluster/rath/internal/files/ignore"
	"github.com/rathcluster/rath/sandbox"
)

// Limits of Grep.
const (
	MaxPattern = 1000 // bytes of a regular expression
	MaxMatches = 1000 // matching lines, of which 100 are shown by default
	MaxContext = 20   // lines shown before and after a match

	shownMatches = 100
	maxShownLine = 300 // bytes
	grepStates   = 1 << 11
	grepTime     = 30 * time.Second
)

type grepArgs struct {
	Pattern    string `json:"pattern" jsonschema:"regular expression in RE2 syntax, matched with each line"`
	Path       string `json:"path,omitempty" jsonschema:"file, or directory to search with all below it"`
	Glob       string `json:"glob,omitempty" jsonschema:"search files of such names alone, as *.go or src/**/*.{ts,tsx}"`
	IgnoreCase bool   `json:"ignore_case,omitempty" jsonschema:"match letters of either case"`
	Context    int    `json:"context,omitempty" jsonschema:"lines to show before and after each match"`
	FilesOnly  bool   `json:"files_only,omitempty" jsonschema:"show the names of files alone"`
	Limit      int    `json:"limit,omitempty" jsonschema:"lines that match, or files, to show at most"`
}

func (in *grepArgs) names() []*string { return []*string{&in.Path} }

type grepBody struct {
	Text    string `json:"text"`    // name:line:text; name-line-text around a match
	Matches int    `json:"matches"` // the number of matching lines among those searched
	Files   int    `json:"files"`   // with such lines
	// Skipped is the number of files that were not searched: binary, too long or unreadable.
	Skipped   int    `json:"skipped,omitempty"`
	Truncated string `json:"truncated,omitempty"` // why there may be more
}

func grep() Tool {
	return builtin(Grep,
		"Searches files of the workspace for lines that match a regular expression. Binary files, and what .gitignore leaves out, are not searched.",
		ReadOnly, func(p map[string]*jsonschema.Schema) {
			p["pattern"].MinLength, p["pattern"].MaxLength = new(1), new(MaxPattern)
			p["path"].Default = []byte(`"."`)
			p["context"].Minimum, p["context"].Maximum = new(0.0), new(float64(MaxContext))
			p["limit"].Minimum, p["limit"].Maximum = new(1.0), new(float64(MaxMatches))
			p["limit"].Default = fmt.Appendf(nil, "%d", shownMatches)
		}, search)
}

func search(ctx context.Context, _ Call, sb sandbox.Sandbox, in grepArgs) (any, error) {
	re, err := lineExpression(in.Pattern, in.IgnoreCase)
	if err != nil {
		return nil, err
	}
	s := grepSearch{files: sb.Files(), re: re, in: in, limit: cmp.Or(in.Limit, shownMatches), until: time.Now().Add(grepTime)}
	in.Path = path.Clean(cmp.Or(in.Path, "."))
	if in.Glob != "" {
		if s.only, err = globRules(in.Glob); err != nil {
			return nil, err
		}
	}
	e, err := s.files.Stat(ctx, in.Path)
	if err != nil {
		return nil, pathFailure(in.Path, err)
	}
	if !e.Dir {
		s.one = true
		err = s.file(ctx, e)
	} else {
		w := walk{files: s.files, visit: func(e sandbox.Entry) error {
			if s.only != nil {
				if _, in := s.only.Match(strings.TrimPrefix(e.Path, in.Path+"/"), false); !in {
					return nil
				}
			}
			return s.file(ctx, e)
		}}
		err = w.from(ctx, in.Path)
		s.body.Skipped += w.passed
		if w.more {
			s.body.Truncated = fmt.Sprintf("%d files and directories were looked at: search a part of them by path or glob", MaxWalked)
		}
	}
	if err != nil && !errors.Is(err, errWalked) {
		return nil, err
	}
	s.body.Text = s.text.String()
	return s.body, nil
}

// lineExpression compiles an expression for matching lines.
func lineExpression(pattern string, ignoreCase bool) (*regexp.Regexp, error) {
	n, err := schema.States(pattern)
	if err == nil && n > grepStates {
		err = errors.New("it repeats too much")
	}
	if ignoreCase {
		pattern = "(?i)" + pattern
	}
	var re *regexp.Regexp
	if err == nil {
		re, err = regexp.Compile(pattern)
	}
	if err != nil {
		return nil, &Failure{
			Kind: InvalidArguments, Detail: clip(pattern, 200),
			Message: fmt.Sprintf("pattern: %v; write RE2 (no look-around, no back references), and a backslash before what stands for itself, as in \\( or \\[", err),
		}
	}
	return re, nil
}

// grepSearch is one search.
type grepSearch struct {
	files sandbox.Files
	re    *regexp.Regexp
	only  *ignore.Rules // for names of files; nil for all
	in    grepArgs
	limit int
	until time.Time
	one   bool // the call names the file
	read  int
	shown int
	text  strings.Builder
	body  grepBody
}

// file searches one file.
func (s *grepSearch) file(ctx context.Context, e sandbox.Entry) error {
	switch {
	case e.Size > MaxEdited && !s.one:
		s.body.Skipped++
		return nil
	case s.read > MaxScanned:
		return s.stop("%d MiB were searched: search a part of the files by path or glob", MaxScanned>>20)
	case time.Now().After(s.until):
		return s.stop("%v are over: search a part of the files by path or glob", grepTime)
	}
	data, err := s.open(ctx, e.Path)
	if err != nil {
		if s.one {
			return err
		}
		if ctx.Err() != nil || errors.Is(err, sandbox.ErrClosed) || errors.Is(err, sandbox.ErrLost) {
			return err
		}
		s.body.Skipped++
		return nil
	}
	s.read += len(data)
	return s.lines(ctx, e.Path, data)
}

// open reads a file that can be searched.
func (s *grepSearch) open(ctx context.Context, name string) ([]byte, error) {
	f, err := s.files.Open(ctx, name)
	if err != nil {
		return nil, pathFailure(name, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxEdited+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, pathFailure(name, err)
	}
	switch {
	case len(data) > MaxEdited:
		return nil, &Failure{Kind: TooLarge, Detail: name, Message: fmt.Sprintf("%q has more than %d MiB: use %s with grep", name, MaxEdited>>20, RunShellCommand)}
	case bytes.IndexByte(data, 0) >= 0:
		return nil, &Failure{Kind: NotText, Detail: name, Message: fmt.Sprintf("%q is binary (it holds a zero byte): use %s", name, RunShellCommand)}
	}
	return data, nil
}

// lines searches the lines of a file.
func (s *grepSearch) lines(ctx context.Context, name string, data []byte) error {
	var before [][]byte // lines that would be shown if the next matches
	after, last, first := 0, 0, true
	n := 0
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	for line := range bytes.Lines(data) {
		n++
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if n%1024 == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if time.Now().After(s.until) {
				return s.stop("%v are over: search a part of the files by path or glob", grepTime)
			}
		}
		if !s.re.Match(line) {
			if after > 0 {
				after--
				s.line(name, n, '-', line)
				last = n
			} else if s.in.Context > 0 {
				if before = append(before, line); len(before) > s.in.Context {
					before = before[1:]
				}
			}
			continue
		}
		if s.body.Matches++; first {
			s.body.Files++
		}
		if s.shown == s.limit || s.text.Len() > MaxShown {
			return s.stop("%d are shown: narrow the search, or raise limit", s.shown)
		}
		if s.in.FilesOnly {
			s.shown++
			s.text.WriteString(name + "\n")
			return nil
		}
		if s.shown++; s.in.Context > 0 && s.shown > 1 && (first || n-len(before) > last+1) {
			s.text.WriteString("--\n")
		}
		for i, b := range before {
			s.line(name, n-len(before)+i, '-', b)
		}
		s.line(name, n, ':', line)
		before, after, last, first = nil, s.in.Context, n, false
	}
	return nil
}

// line shows a line of a file.
func (s *grepSearch) line(name string, n int, sep byte, line []byte) {
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		name = fmt.Sprintf("%q", name)
	}
	fmt.Fprintf(&s.text, "%s%c%d%c%s\n", name, sep, n, sep, s.part(string(line)))
}

// part returns the shown form of a line. A long line is reduced to the part around its
// first match, with the numbers of characters before and after.
func (s *grepSearch) part(line string) string {
	if len(line) <= maxShownLine {
		return shown(line)
	}
	from := 0
	if at := s.re.FindStringIndex(line); at != nil {
		from = max(0, at[0]-(maxShownLine-min(at[1]-at[0], maxShownLine))/2)
	}
	from = min(from, len(line)-maxShownLine)
	to := from + maxShownLine
	for from > 0 && !utf8.RuneStart(line[from]) {
		from--
	}
	for to < len(line) && !utf8.RuneStart(line[to]) {
		to--
	}
	text := shown(line[from:to])
	if from > 0 {
		text = fmt.Sprintf("[... %d characters ...]%s", utf8.RuneCountInString(line[:from]), text)
	}
	if to < len(line) {
		text += fmt.Sprintf("[... %d characters ...]", utf8.RuneCountInString(line[to:]))
	}
	return text
}

// stop ends the search and records why there may be more matches.
func (s *grepSearch) stop(format string, args ...any) error {
	s.body.Truncated = fmt.Sprintf(format, args...)
	return errWalked
}

type globArgs struct {
	Pattern string `json:"pattern" jsonschema:"names of files, as **/*.go or src/*.{ts,tsx}; one without a slash is of files in any directory"`
	Path    string `json:"path,omitempty" jsonschema:"directory to look in, with all below it"`
}

func (in *globArgs) names() []*string { return []*string{&in.Path, &in.Pattern} }

type globBody struct {
	Files     []string `json:"files"`
	Skipped   int      `json:"skipped,omitempty"` // directories that cannot be listed
	Truncated string   `json:"truncated,omitempty"`
}

func glob() Tool {
	return builtin(Glob,
		"Finds files of the workspace by name, in the order of their names, at most 500. What .gitignore leaves out is not found.",
		ReadOnly, func(p map[string]*jsonschema.Schema) {
			p["pattern"].MinLength = new(1)
			p["path"].Default = []byte(`"."`)
		}, find)
}

func find(ctx context.Context, _ Call, sb sandbox.Sandbox, in globArgs) (any, error) {
	rules, err := globRules(in.Pattern)
	if err != nil {
		return nil, err
	}
	in.Path = path.Clean(cmp.Or(in.Path, "."))
	if e, err := sb.Files().Stat(ctx, in.Path); err == nil && !e.Dir {
		return nil, pathFailure(in.Path, fmt.Errorf("%w: no directory", sandbox.ErrPath))
	} else if errors.Is(err, fs.ErrNotExist) {
		return nil, pathFailure(in.Path, err)
	}
	body := globBody{Files: []string{}}
	w := walk{files: sb.Files()}
	w.visit = func(e sandbox.Entry) error {
		if _, in := rules.Match(strings.TrimPrefix(e.Path, in.Path+"/"), false); !in {
			return nil
		}
		if len(body.Files) == MaxEntries {
			body.Truncated = fmt.Sprintf("%d are shown: narrow the pattern, or look in a part of the directories by path", MaxEntries)
			return errWalked
		}
		body.Files = append(body.Files, e.Path)
		return nil
	}
	if err := w.from(ctx, in.Path); err != nil {
		return nil, err
	}
	if body.Skipped = w.passed; w.more {
		body.Truncated = fmt.Sprintf("%d files and directories were looked at: look in a part of them by path", MaxWalked)
	}
	return body, nil
}
