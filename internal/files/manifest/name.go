package manifest

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/rathcluster/rath/internal/files/filename"
)

// Fold returns the common form of all names that some file system treats as equal. It folds
// case, including letters that fold to several (APFS treats ß as ss), composed letters,
// characters that HFS+ ignores, and trailing dots and spaces, which Windows drops.
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

// IsGit reports whether some file system treats a name as git's own directory.
func IsGit(name string) bool {
	switch Fold(name) {
	case ".git", "git~1": // the second is its short name on Windows
		return true
	}
	return false
}

// CarriesGit reports whether a tree has git's own directory at its top: a copy that was
// imported for the commands. Its changes are never exported.
func (t *Tree) CarriesGit() bool {
	e, ok := t.Lookup(".git")
	return ok && e.Kind == Dir
}

// InGit reports whether a path is ".git", or lies in it.
func InGit(path string) bool { return path == ".git" || strings.HasPrefix(path, ".git/") }
