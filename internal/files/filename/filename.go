// Package filename represents the names of files as UTF-8, including names that are not.
//
// A tree, a record and JSON hold text, and the names of files on Unix are bytes. [Escape]
// maps any name to one form in UTF-8, and [Raw] reverses it: each byte b that is not UTF-8
// becomes the character U+EF00+b of a private use area. The bytes of such a character in a
// name are escaped too, so no two names share a form.
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

// Escape returns a name or path of this system as text. On systems with text names it
// returns the name unchanged.
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

// Local converts a slash separated path of a tree to a path of this system. A path that is
// not local is an error, as of filepath.Localize.
func Local(path string) (string, error) {
	if _, err := filepath.Localize(path); err != nil { // it accepts only text
		return "", err
	}
	return FromSlash(path), nil
}

// FromSlash is filepath.FromSlash for a checked path that may be escaped.
func FromSlash(path string) string {
	if bytewise {
		path = Raw(path)
	}
	return filepath.FromSlash(path)
}
