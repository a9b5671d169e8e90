package rules

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// commandPattern is a pattern of a simple command: words, each a pattern of [path.Match]
// without folders. A last word "*" matches any further words.
type commandPattern struct {
	words    []wordPattern
	programs []string // that the words name and that run others by their options
	rest     bool     // the last word is "*"
}

type wordPattern struct {
	text    string
	literal bool
}

func parseCommand(text string) (p commandPattern, err error) {
	if strings.ContainsAny(text, "'\"`$;|&<>()\\") {
		return p, fmt.Errorf("%q: want the words of one command without quotes", text)
	}
	words := strings.Fields(text)
	if n := len(words); n > 0 && words[n-1] == "*" {
		words, p.rest = words[:n-1], true
	}
	if len(words) == 0 {
		return p, fmt.Errorf("want a program, as in %q", "git status *")
	}
	for _, w := range words {
		one := wordPattern{w, !strings.ContainsAny(w, "*?[")}
		if _, err := path.Match(w, ""); err != nil {
			return p, fmt.Errorf("%q: %w", text, err)
		}
		if name := programOf(w); options[name] != nil {
			p.programs = append(p.programs, name)
		}
		p.words = append(p.words, one)
	}
	return p, nil
}

// allows returns an error for a pattern that must not allow commands: it leaves the program
// open which another one runs.
func (p *commandPattern) allows() error {
	program := p.words[0]
	if !program.literal {
		return errors.New("a rule that allows commands names the program")
	}
	if !runners[programOf(program.text)] || !p.rest {
		return nil
	}
	for _, w := range p.words[1:] {
		if w.literal && w.text[0] != '-' && !strings.Contains(w.text, "=") && strings.Trim(w.text, "0123456789smhd.") != "" {
			return nil
		}
	}
	return fmt.Errorf("%s runs any program that follows; name it in the pattern", program.text)
}

// matches matches a word, in which "/" is a letter as any other.
func (p *wordPattern) matches(text string) bool {
	if p.literal {
		return p.text == text
	}
	ok, _ := path.Match(strings.ReplaceAll(p.text, "/", "\x01"), strings.ReplaceAll(text, "/", "\x01"))
	return ok
}

// surely reports whether the pattern matches a command whatever the shell makes of it.
func (p *commandPattern) surely(c simple) bool {
	if first := &p.words[0]; first.literal && first.text != c[0].text {
		return false // as most
	}
	if len(c) < len(p.words) || len(c) > len(p.words) && !p.rest {
		return false
	}
	for i, w := range c {
		switch {
		case w.unread:
			return false
		case i < len(p.words):
			if w.globs || !p.words[i].matches(w.text) {
				return false
			}
			if p.words[i].literal {
				continue
			}
		case w.globs && (strings.HasPrefix(w.text, "-") || strings.IndexAny(w.text, "*?[") == 0):
			return false // the names of files may begin with a dash
		}
		for _, program := range p.programs { // covered by no literal word of the rule
			if runs(program, w.text) {
				return false
			}
		}
	}
	return true
}

// perhaps reports whether the pattern matches a command, whose program may have a path
// before its name. A pattern without a last "*" matches the command's first words.
func (p *commandPattern) perhaps(c simple) match {
	m := yes
	for i := range p.words {
		if i == len(c) {
			return no
		}
		w := &c[i]
		switch {
		case w.unread || w.globs:
			m = maybe
		case p.words[i].matches(w.text), i == 0 && w.name != "" && p.words[i].matches(w.name):
		default:
			return no
		}
	}
	return m
}

// matchPath reports whether a pattern of a path in the workspace matches. "**" matches any
// folders, and a pattern that ends in "/" all below a folder.
func matchPath(pattern, name string) bool {
	if strings.HasSuffix(pattern, "/") {
		pattern += "**"
	}
	return matchParts(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

func matchParts(patterns, names []string) bool {
	for len(patterns) > 0 {
		if patterns[0] == "**" {
			for i := range len(names) + 1 {
				if matchParts(patterns[1:], names[i:]) {
					return true
				}
			}
			return false
		}
		if len(names) == 0 {
			return false
		}
		if ok, _ := path.Match(patterns[0], names[0]); !ok {
			return false
		}
		patterns, names = patterns[1:], names[1:]
	}
	return len(names) == 0
}

// matchHost reports whether a pattern of a host matches: a name, or "*.example.com" for all
// names below it.
func matchHost(pattern, host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if below, ok := strings.CutPrefix(pattern, "*."); ok {
		return strings.HasSuffix(host, "."+below)
	}
	return pattern == "*" || pattern == host
}
