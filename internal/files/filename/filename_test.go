package filename_test

import (
	"testing"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/files/filename"
)

// FuzzEscape: any name has one form in UTF-8, which Raw reverses.
func FuzzEscape(f *testing.F) {
	for _, name := range []string{"a", "caf\xe9.txt", "é", "\xff\xfe", "\uefe9", "a\xee\xbf\xa9\x80", "\ufffd", "\xc3", "d\xe9/\xe9"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		text := filename.Escape(name)
		if !utf8.ValidString(text) {
			if utf8.ValidString(name) || filename.Raw(text) == name { // where names are text, one that is not stays
				return
			}
			t.Errorf("%q has the form %q", name, text)
		}
		if back := filename.Raw(text); back != name && text != name {
			t.Errorf("%q has the form %q and comes back as %q", name, text, back)
		}
		if utf8.ValidString(name) && name != "" && text != name && filename.Raw(name) == name {
			t.Errorf("%q is text and has the form %q", name, text)
		}
	})
}
