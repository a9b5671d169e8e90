package manifest

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/rathcluster/rath/internal/files/filename"
)

// Fold returns the one form of all names that some file system takes for the same: case,
// also of letters that fold to several (APFS takes ß for ss), the ways to compose a letter,
// characters that HFS+ ignores, and the dots and spaces at the end that Windows drops.
func Fold(name string) string {
	name = filename.Raw(name) // no character hides in an escape
	if strings.IndexFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		name = strings.ToLower(name)
	} else {
		name = strings.Map(func(r rune) rune {
			switch {
			case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
				return -1
			}
			return unicode.ToLower(unicode.ToUpper(r))
		}, norm.NFC.String(name))
		name = norm.NFC.String(cases.Fold().String(name))
	}
	if short := strings.TrimRight(name, ". "); short != "" {
		return short
	}
	return name
}

// IsGit reports whether some file system takes a name for git's own directory.
func IsGit(name string) bool {
	switch Fold(name) {
	case ".git", "git~1": // the second is its short name on Windows
		return true
	}
	return false
}

// CarriesGit reports whether a tree has git's own directory at its top: it came with the
// files, as a copy for their commands, and what becomes of it belongs to nothing outside.
func (t *Tree) CarriesGit() bool {
	e, ok := t.Lookup(".git")
	return ok && e.Kind == Dir
}

// InGit reports whether a path is ".git", or lies in it.
func InGit(path string) bool { return path == ".git" || strings.HasPrefix(path, ".git/") }
