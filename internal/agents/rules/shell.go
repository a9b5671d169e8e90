package rules

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"

	"github.com/rathcluster/rath/internal/core/excerpt"
)

// simple is a simple command: a program and its arguments, without their quotes.
type simple []word

// word is a word of a simple command.
type word struct {
	text string
	name string // of a program with a path
	// globs is set if the shell replaces the word by names of files that match it.
	globs bool
	// unread is set if the text is not the whole word: the shell expands a part of it.
	unread bool
}

// line is a command line as far as it can be read.
type line struct {
	commands []simple
	unsure   string // why the commands are not all that the shell executes; "" if they are
}

// notAllowed adds to a reason why a line is not allowed: the part that cannot be read, or
// the first command that no rule covers.
func (l *line) notAllowed(covered []bool) string {
	if l.unsure != "" {
		return ": " + l.unsure
	}
	for i, c := range l.commands {
		if covered == nil || !covered[i] {
			return ": " + excerpt.Clip(c.String(), 80)
		}
	}
	return ""
}

// String returns the words without their quotes.
func (c simple) String() string {
	words := make([]string, len(c))
	for i, w := range c {
		words[i] = w.text
	}
	return strings.Join(words, " ")
}

// maxLine bounds a command line in bytes. A longer one is not read.
const maxLine = 32 << 10

// read reads a command line by the grammars of POSIX and of bash: /bin/sh is one or the
// other, and a line which they read differently is not sure.
func read(text string) line {
	if len(text) > maxLine {
		return line{unsure: fmt.Sprintf("the command is longer than %d bytes", maxLine)}
	}
	if i := strings.IndexFunc(text, odd); i >= 0 {
		return line{unsure: fmt.Sprintf("the command has the character %q", []rune(text[i:])[0])}
	}
	posix, bash := readAs(text, syntax.LangPOSIX), readAs(text, syntax.LangBash)
	if posix.unsure == "" && !slices.EqualFunc(posix.commands, bash.commands, slices.Equal) {
		posix.unsure = "shells read the command differently"
	}
	if len(bash.commands) > len(posix.commands) {
		posix.commands = bash.commands // for the rules that ask and refuse
	}
	return posix
}

// odd reports whether a character is invisible, or looks like a blank that is none.
func odd(r rune) bool {
	return r == unicode.ReplacementChar || r > unicode.MaxASCII && (unicode.IsSpace(r) || !unicode.IsPrint(r)) || r < ' ' && r != '\n' && r != '\t'
}

func readAs(text string, lang syntax.LangVariant) (l line) {
	file, err := syntax.NewParser(syntax.Variant(lang)).Parse(strings.NewReader(text), "")
	if err != nil {
		return line{unsure: "the command does not parse"}
	}
	unsure := func(reason string) {
		if l.unsure == "" {
			l.unsure = reason
		}
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case nil, *syntax.File, *syntax.Stmt, *syntax.BinaryCmd, *syntax.Subshell, *syntax.Block, *syntax.IfClause, *syntax.Comment:
		case *syntax.Word, *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted:
		case *syntax.CallExpr:
			if len(n.Assigns) > 0 {
				unsure("the command sets a variable")
			}
			if c := simpleOf(n); len(c) > 0 {
				l.commands = append(l.commands, c)
			}
		case *syntax.Redirect:
			if !harmless(n) {
				unsure("the command redirects " + n.Op.String())
			}
		case *syntax.Assign:
			unsure("the command sets a variable")
		case *syntax.CmdSubst, *syntax.ProcSubst:
			unsure("the command has a substitution")
		case *syntax.ParamExp, *syntax.ArithmExp:
			unsure("the command has a variable")
		default:
			unsure("the command has more than simple commands")
		}
		return true
	})
	if len(l.commands) == 0 {
		unsure("the command runs no program")
	}
	return l
}

// harmless reports whether a redirection neither reads nor writes a file.
func harmless(r *syntax.Redirect) bool {
	if r.Word == nil {
		return false
	}
	to := r.Word.Lit()
	switch r.Op {
	case syntax.DplOut:
		return to == "1" || to == "2"
	case syntax.RdrOut, syntax.AppOut:
		return to == "/dev/null"
	case syntax.RdrIn:
		return to == "/dev/null"
	}
	return false
}

func simpleOf(c *syntax.CallExpr) (out simple) {
	for _, w := range c.Args {
		out = append(out, wordOf(w))
	}
	if len(out) > 0 && strings.Contains(out[0].text, "/") {
		out[0].name = path.Base(out[0].text)
	}
	return out
}

// wordOf removes the quotes of a word.
func wordOf(w *syntax.Word) (out word) {
	var b strings.Builder
	for i, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			out.literal(&b, part.Value, i == 0)
		case *syntax.SglQuoted:
			out.unread = out.unread || part.Dollar
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			out.unread = out.unread || part.Dollar
			for _, inner := range part.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					out.unread = true
					continue
				}
				b.WriteString(unescape(lit.Value, "$`\"\\"))
			}
		default:
			out.unread = true
		}
	}
	out.text = b.String()
	return out
}

// literal adds an unquoted part.
func (w *word) literal(b *strings.Builder, text string, first bool) {
	plain := withoutEscapes(text)
	w.globs = w.globs || strings.ContainsAny(plain, "*?[")
	w.unread = w.unread || strings.Contains(plain, "{") || first && strings.HasPrefix(plain, "~") || strings.ContainsAny(plain, "$`")
	b.WriteString(unescape(text, ""))
}

// withoutEscapes removes the escaped characters.
func withoutEscapes(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			i++
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// unescape removes the backslashes before the characters of a set, or before all of them
// for an empty set.
func unescape(text, set string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && (set == "" || strings.IndexByte(set, text[i+1]) >= 0 || text[i+1] == '\n') {
			if i++; text[i] == '\n' {
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
