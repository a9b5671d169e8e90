package workspace

import (
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/rathcluster/rath/internal/files/manifest"
)

// gitHooks holds the programs that git runs, except those that end with .sample.
const (
	gitHooks = ".git/hooks"
	gitHook  = "a git hook"
)

// never returns the kind of a name that no workspace exchanges with a user's directory, ""
// for any other name.
func never(name string) string {
	name = foldName(name)
	if !strings.ContainsAny(name, "._~") { // most names need no lookup in the table
		return ""
	}
	for _, p := range theGuard().never {
		if p.matches(name) {
			return p.what
		}
	}
	return ""
}

// guard finds the protected paths.
type guard struct {
	never   []protectedPath
	all     []protectedPath            // of the others
	literal map[string][]protectedPath // patterns without * in the last name, by that name
	globs   []protectedPath            // the rest
}

// protectedPath is one pattern of Protected.
type protectedPath struct {
	what  string
	names []string
}

// theGuard is made once: the table does not change.
var theGuard = sync.OnceValue(func() *guard {
	g := &guard{literal: map[string][]protectedPath{}}
	for _, kind := range Protected {
		for _, pattern := range kind.Patterns {
			p := protectedPath{kind.What, strings.Split(pattern, "/")}
			switch last := path.Base(pattern); {
			case kind.Never:
				g.never = append(g.never, p)
				continue
			case strings.Contains(last, "*"):
				g.globs = append(g.globs, p)
			default:
				g.literal[last] = append(g.literal[last], p)
			}
			g.all = append(g.all, p)
		}
	}
	return g
})

// matches reports whether the pattern matches the last of the folded names, with those
// before it.
func (p protectedPath) matches(names ...string) bool {
	before := len(names) - len(p.names)
	if before < 0 {
		return false
	}
	for i, pattern := range p.names {
		if name := names[before+i]; name != pattern && !matchName(pattern, name) && !isShort(pattern, name) {
			return false
		}
	}
	return true
}

func matchName(pattern, name string) bool {
	if !strings.Contains(pattern, "*") {
		return false
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// shortName is a name of eight and three characters as Windows makes them: for GIT~1 it opens
// .git.
var shortName = regexp.MustCompile(`^([^.~]{1,6})~([0-9]{1,6})(?:\.([^.]{0,3}))?$`)

// isShort reports whether name could be a Windows short name of a name that pattern
// matches.
func isShort(pattern, name string) bool {
	if !strings.Contains(name, "~") {
		return false
	}
	m := shortName.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	base, ext := strings.TrimLeft(pattern, "."), ""
	if i := strings.LastIndexByte(base, '.'); i >= 0 {
		base, ext = base[:i], base[i+1:]
	}
	return shortPart(strings.ReplaceAll(base, ".", ""), m[1], 7-len(m[2]), true) && shortPart(ext, m[3], 3, false)
}

// shortPart reports whether a part of a short name, cut after most characters, could derive
// from this part of a pattern. With hashed, it could also be two characters and four digits
// of a hash.
func shortPart(pattern, part string, most int, hashed bool) bool {
	pattern, _, open := strings.Cut(pattern, "*")
	if hashed && len(part) == 6 && strings.HasPrefix(pattern, part[:2]) && strings.Trim(part[2:], "0123456789abcdef") == "" {
		return true
	}
	if len(pattern) >= most {
		return part == pattern[:most]
	}
	return part == pattern || open && strings.HasPrefix(part, pattern)
}

// ProtectedAs returns the kind of a path that is Protected, such as "configuration of CI",
// or lies in git's hooks. It returns "" for any other path, and for a path that no
// workspace exchanges.
func ProtectedAs(path string) string { return newFinder().what(path) }

// finder classifies many paths of one tree and caches the result of each directory.
type finder struct {
	guard *guard
	dirs  map[string]string
}

func newFinder() finder {
	return finder{theGuard(), map[string]string{".": "", "/": ""}}
}

// what returns the kind of a path that is protected, or lies below a protected path; "" for
// any other path.
func (f finder) what(p string) string {
	dir := path.Dir(p)
	is, ok := f.dirs[dir]
	if !ok {
		is = f.what(dir)
		f.dirs[dir] = is
	}
	if is != "" {
		return is
	}
	return f.guard.own(p)
}

// own is finder.what for a path whose parents are not protected.
func (g *guard) own(p string) string {
	names := foldNames(p)
	last := names[len(names)-1]
	if len(names) > 2 && names[len(names)-2] == "hooks" && names[len(names)-3] == ".git" && path.Ext(last) != ".sample" {
		return gitHook
	}
	candidates := [2][]protectedPath{g.literal[last], g.globs}
	if strings.Contains(p, "~") {
		candidates = [2][]protectedPath{g.all, nil}
	}
	for _, some := range candidates {
		for _, c := range some {
			if c.matches(names...) {
				return c.what
			}
		}
	}
	return ""
}

// foldNames returns the names of a path, each folded.
func foldNames(p string) []string {
	names := strings.Split(p, "/")
	for i, n := range names {
		names[i] = foldName(n)
	}
	return names
}

// foldName is manifest.Fold of a name without its stream: on Windows, the part after a
// colon names a stream of the file.
func foldName(name string) string {
	if main, _, ok := strings.Cut(name, ":"); ok && main != "" {
		name = main
	}
	return manifest.Fold(name)
}

// whatLink is finder.what for a symbolic link. A link in place of a directory that holds
// protected paths, such as .github, would redirect them to another directory.
func (f finder) whatLink(p string) string {
	if is := f.what(p); is != "" {
		return is
	}
	names := foldNames(p)
	hooks := protectedPath{gitHook, strings.Split(gitHooks, "/")}
	for _, c := range append([]protectedPath{hooks}, f.guard.all...) {
		for n := len(c.names) - 1; n > 0; n-- {
			if (protectedPath{c.what, c.names[:n]}).matches(names...) {
				return c.what
			}
		}
	}
	if hooks.matches(names...) {
		return gitHook
	}
	return ""
}
