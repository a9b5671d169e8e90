// Package filename writes the names of files as UTF-8, also those that are not.
//
// A tree, a record and JSON hold text, and the names of files on Unix are bytes. [Escape]
// gives any name one form in UTF-8, and [Raw] gives the name back: each byte b that is not
// UTF-8 stands as the character U+EF00+b of a private use area. The bytes of such a character in a
// name are escaped too, so that no two names have one form.
package filename

import (
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"
)

// The characters that stand for bytes 0x80 to 0xff.
const (
	first = 0xef80
	last  = 0xefff
)

// bytewise: file systems of this system have names that are not UTF-8.
const bytewise = runtime.GOOS != "windows" && runtime.GOOS != "darwin" && runtime.GOOS != "ios"

func special(r rune) bool { return r >= first && r <= last }

// Escape returns a name or path of this system as text. On systems whose names are text
// already it is that name.
func Escape(name string) string {
	if !bytewise || utf8.ValidString(name) && strings.IndexFunc(name, special) < 0 {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && n == 1 || special(r) {
			for _, c := range []byte(name[i : i+n]) {
				b.WriteRune(0xef00 + rune(c))
			}
		} else {
			b.WriteString(name[i : i+n])
		}
		i += n
	}
	return b.String()
}

// Raw returns the bytes of a name or path that Escape returned on a system with such names.
func Raw(name string) string {
	if strings.IndexFunc(name, special) < 0 {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		if special(r) {
			b.WriteByte(byte(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Local returns a slash separated path of a tree as this system has it. What cannot be a
// local path is an error, as of filepath.Localize.
func Local(path string) (string, error) {
	if _, err := filepath.Localize(path); err != nil { // it takes text alone
		return "", err
	}
	return FromSlash(path), nil
}

// FromSlash is filepath.FromSlash of a path that may be escaped, for one that was checked.
func FromSlash(path string) string {
	if bytewise {
		path = Raw(path)
	}
	return filepath.FromSlash(path)
}
