package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/rathcluster/rath/internal/files/ignore"
	"github.com/rathcluster/rath/sandbox"
)

// MaxWalked is the maximum number of files and directories that Grep and Glob visit.
const MaxWalked = 20_000

// maxIgnoreFile is the maximum number of bytes read of a .gitignore.
const maxIgnoreFile = 256 << 10

// errWalked ends a walk early.
var errWalked = errors.New("tool: walked far enough")

// walk visits the files of a workspace in the order of their names, except .git and files
// that .gitignore excludes.
type walk struct {
	files  sandbox.Files
	rules  ignore.Rules
	visit  func(sandbox.Entry) error // errWalked ends the walk
	seen   int
	passed int  // directories that cannot be listed
	more   bool // there are more than MaxWalked
}

// from visits the files below dir, even if .gitignore excludes dir itself.
func (w *walk) from(ctx context.Context, dir string) error {
	dir = path.Clean(dir)
	for i := range len(dir) {
		if dir[i] == '/' {
			w.ignored(ctx, dir[:i])
		}
	}
	if dir != "." {
		w.ignored(ctx, ".")
	}
	list, err := w.files.List(ctx, dir)
	if err != nil {
		return pathFailure(dir, err)
	}
	if err := w.in(ctx, dir, list); err != nil && !errors.Is(err, errWalked) {
		return err
	}
	return nil
}

// ignored reads the .gitignore of a directory, if it has one.
func (w *walk) ignored(ctx context.Context, dir string) {
	f, err := w.files.Open(ctx, path.Join(dir, ".gitignore"))
	if err != nil {
		return
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile))
	if err != nil {
		return
	}
	if dir == "." {
		dir = ""
	}
	_ = w.rules.Add(dir, data) // lines beyond the limit exclude no file
}

// in visits the entries of a directory.
func (w *walk) in(ctx context.Context, dir string, list []sandbox.Entry) error {
	for _, e := range list {
		if e.Name == ".gitignore" && !e.Dir {
			w.ignored(ctx, dir)
		}
	}
	for _, e := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.Dir && e.Name == ".git" {
			continue
		}
		if _, out := w.rules.Match(e.Path, e.Dir); out {
			continue
		}
		if w.seen++; w.seen > MaxWalked {
			w.more = true
			return errWalked
		}
		if !e.Dir {
			if err := w.visit(e); err != nil {
				return err
			}
			continue
		}
		below, err := w.files.List(ctx, e.Path)
		switch {
		case errors.Is(err, sandbox.ErrClosed), errors.Is(err, sandbox.ErrLost):
			return sandboxFailure("the files", err)
		case err != nil:
			w.passed++
			continue
		}
		if err := w.in(ctx, e.Path, below); err != nil {
			return err
		}
	}
	return nil
}

// globRules compiles a pattern for names of files: it has the syntax of .gitignore, and
// {a,b} means a or b.
func globRules(pattern string) (*ignore.Rules, error) {
	refuse := func(why string) (*ignore.Rules, error) {
		return nil, &Failure{Kind: InvalidArguments, Detail: clip(pattern, 200), Message: fmt.Sprintf("pattern %q %s", clip(pattern, 200), why)}
	}
	switch {
	case strings.TrimSpace(pattern) != pattern || pattern == "" || strings.ContainsAny(pattern, "\n\r\x00"):
		return refuse("is empty, or has white space around it: want one such as **/*.go")
	case strings.HasPrefix(pattern, "!"):
		return refuse("begins with !: name what to find, not what to leave out")
	case strings.HasSuffix(pattern, "/"):
		return refuse("ends with a slash: only files are found; add **")
	case strings.HasPrefix(pattern, "/") || pattern == ".." || strings.HasPrefix(pattern, "../"):
		return refuse("leaves the workspace: want one relative to path")
	}
	all, ok := braces(strings.TrimPrefix(pattern, "./"))
	if !ok {
		return refuse(fmt.Sprintf("stands for more than %d patterns, or is too long", maxBraces))
	}
	rules := new(ignore.Rules)
	for _, one := range all {
		if strings.HasPrefix(one, "#") || strings.HasPrefix(one, "!") {
			one = `\` + one
		}
		if err := rules.Add("", []byte(one)); err != nil {
			return refuse("is too long")
		}
	}
	return rules, nil
}

// maxBraces is the maximum number of patterns that one pattern with braces expands to.
const maxBraces = 64

// braces expands a pattern with {a,b}.
func braces(pattern string) (all []string, ok bool) {
	open := strings.IndexByte(pattern, '{')
	if open < 0 || len(pattern) > 1000 {
		return []string{pattern}, len(pattern) <= 1000
	}
	depth, from := 0, open+1
	var words []string
	for i := open; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '{':
			depth++
		case c == ',' && depth == 1:
			words = append(words, pattern[from:i])
			from = i + 1
		case c == '}':
			if depth--; depth > 0 {
				continue
			}
			words = append(words, pattern[from:i])
			for _, w := range words {
				some, ok := braces(pattern[:open] + w + pattern[i+1:])
				if all = append(all, some...); !ok || len(all) > maxBraces {
					return nil, false
				}
			}
			return all, true
		}
	}
	return []string{pattern}, true // an unclosed brace is literal
}
