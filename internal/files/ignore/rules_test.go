package ignore_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/files/ignore"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestMatch compares with the results of git check-ignore for these files and paths. A path
// that ends with a slash is a directory.
func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string // ignore files by directory
		out   string
		in    string
	}{
		{"a name", map[string]string{"": "foo\n"}, "foo foo/ a/foo a/b/foo/ foo/x", "food afoo a/food"},
		{"of the top", map[string]string{"": "/foo\n"}, "foo foo/x", "a/foo"},
		{"a path", map[string]string{"": "a/foo\n"}, "a/foo", "b/a/foo foo"},
		{"a directory", map[string]string{"": "foo/\n"}, "foo/ foo/x a/foo/", "foo a/foo"},
		{"a star", map[string]string{"": "*.log\n"}, "x.log a/y.log .log", "x.log2 log"},
		{"a star stays in its directory", map[string]string{"": "a/*.c\n"}, "a/x.c", "a/b/x.c"},
		{"two stars before", map[string]string{"": "**/foo/x\n"}, "foo/x a/foo/x a/b/foo/x", "foo/y x"},
		{"two stars behind", map[string]string{"": "a/**\n"}, "a/x a/b/x a/b/", "a/ a b/x"},
		{"two stars between", map[string]string{"": "a/**/z\n"}, "a/z a/b/z a/b/c/z", "z b/a/z"},
		{"two stars in a name", map[string]string{"": "a/b**c\n"}, "a/bc a/bxxc", "a/b/c"},
		{"all but one", map[string]string{"": "*\n!keep\n"}, "x a/ a/keep", "keep"},
		{"a parent that is out", map[string]string{"": "a/\n!a/keep\n"}, "a/ a/keep", "keep"},
		{"all below but one", map[string]string{"": "a/*\n!a/keep\n"}, "a/x", "a/ a/keep"},
		{"comments and space", map[string]string{"": "# foo\n\nbar  \n\\#x\n\\!y\ntrail\\ \n"}, "bar #x !y trail\\_", "foo x y trail"},
		{"classes", map[string]string{"": "[a-c].x\n[!a-z].y\n[[:digit:]].z\n"}, "a.x c.x 1.y 7.z", "d.x a.y a.z"},
		{"not whole", map[string]string{"": "[a\nb\\\n"}, "", "[a a b b\\"},
		{"line ends", map[string]string{"": "\xef\xbb\xbffoo\r\nbar\r\n"}, "foo bar", "baz"},
		{"a file below", map[string]string{"sub": "foo\n/top\nx/y\n"}, "sub/foo sub/a/foo sub/top sub/x/y", "foo top sub/a/top x/y"},
		{"a file below decides", map[string]string{"": "*.log\n", "sub": "!keep.log\n"}, "keep.log sub/x.log", "sub/keep.log"},
		{"a directory with a star", map[string]string{"a*": "x\n"}, "a*/x", "ab/x"},
		{"one sign", map[string]string{"": "?.x\n"}, "a.x", ".x ab.x"},
	} {
		rules := rulesOf(t, tt.files)
		again, err := ignore.Parse(rules.Lines())
		if err != nil || !slices.Equal(again.Lines(), rules.Lines()) {
			t.Errorf("%s: lines %q are read as %v, %v", tt.name, rules.Lines(), again, err)
			continue
		}
		for _, r := range []*ignore.Rules{rules, again} {
			check(t, tt.name, r, tt.out, true)
			check(t, tt.name, r, tt.in, false)
		}
	}
}

func check(t *testing.T, name string, r *ignore.Rules, paths string, want bool) {
	t.Helper()
	for p := range strings.FieldsSeq(paths) {
		p, dir := strings.CutSuffix(p, "/")
		p = strings.ReplaceAll(p, `\_`, " ")
		if line, out := r.Excludes(p, dir); out != want {
			t.Errorf("%s: %q is out: %v, by %q", name, p, out, line)
		}
	}
}

func rulesOf(t testing.TB, files map[string]string) *ignore.Rules {
	t.Helper()
	r := new(ignore.Rules)
	dirs := []string{}
	for d := range files {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs)
	for _, d := range dirs {
		must.Do(t, r.Add(d, []byte(files[d])))
	}
	return r
}

// TestOutside reads files that lie above the top.
func TestOutside(t *testing.T) {
	for line, want := range map[string]string{
		"foo": "foo", "!foo/": "!foo/", "/a/b/foo": "/foo", "a/b/x/*.c": "/x/*.c", "a/*/foo/": "/foo/", "**/foo": "**/foo",
		"a/**/z": "**/z", "!/a/b/keep": "!/keep", "/foo": "", "a/c/foo": "", "/a/b": "", "/a": "", "# x": "", "": "",
	} {
		if got, ok := ignore.Outside("a/b", line); got != want || ok != (want != "") {
			t.Errorf("%q is %q, %v below a/b, want %q", line, got, ok, want)
		}
	}
}

// TestManyStars takes no time that grows with the number of stars.
func TestManyStars(t *testing.T) {
	r := rulesOf(t, map[string]string{"": strings.Repeat("*a", 1000) + "\n" + strings.Repeat("**/a/", 500) + "b\n"})
	start := time.Now()
	r.Excludes(strings.Repeat("a", 255), false)
	r.Excludes(strings.Repeat("a/", 1000)+"c", false)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestTooMany(t *testing.T) {
	r := new(ignore.Rules)
	if err := r.Add("", []byte(strings.Repeat("x\n", ignore.MaxLines+1))); err != ignore.ErrTooMany {
		t.Errorf("too many lines: %v", err)
	}
	if _, err := ignore.Parse([]string{strings.Repeat("x", 5000)}); err != ignore.ErrTooMany {
		t.Errorf("a long line: %v", err)
	}
	for _, bad := range []string{"", "# x", "x ", "a\nb"} {
		if _, err := ignore.Parse([]string{bad}); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// FuzzRules parses the stored rules again and gets the same results, for a path below a
// directory, too.
func FuzzRules(f *testing.F) {
	f.Add("*.log\n!keep\na/**/b\n[a-\n\\", "a/b/c", "sub")
	f.Fuzz(func(t *testing.T, file, path, dir string) {
		r := new(ignore.Rules)
		if len(file) > 1000 || len(path) > 200 || r.Add("", []byte(file)) != nil {
			return
		}
		again, err := ignore.Parse(r.Lines())
		if err != nil {
			t.Fatalf("%q: %v", r.Lines(), err)
		}
		for _, isDir := range []bool{true, false} {
			a, outA := r.Excludes(path, isDir)
			b, outB := again.Excludes(path, isDir)
			if a != b || outA != outB {
				t.Fatalf("%q: %q %v, read again %q %v", path, a, outA, b, outB)
			}
			if dir == "" || strings.ContainsAny(dir, "\x00/\r\n") || path == "" || path[0] == '/' {
				continue
			}
			below := new(ignore.Rules)
			if below.Add(dir, []byte(file)) != nil {
				continue
			}
			if _, out := below.Excludes(dir+"/"+path, isDir); out != outA {
				t.Fatalf("%q is out: %v, below %q %v by %q", path, outA, dir, out, below.Lines())
			}
		}
	})
}
