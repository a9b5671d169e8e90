package notebook

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rathcluster/rath/memory"
)

// Scope is the first part of a URI. The list is closed.
type Scope string

// The scopes.
const (
	User      Scope = "user"      // about the user of the agents
	Agent     Scope = "agent"     // an agent's knowledge about its work
	Session   Scope = "session"   // the notes of one session, whose id is the next part
	Resources Scope = "resources" // documents given to the agents
)

const (
	scheme       = "memory://"
	legacyScheme = "viking://" // still found in stores of OpenRath
	maxURI       = 1024
)

// URI is a valid name: a scope and a path of one or more parts, none of them empty, "." or
// "..". A name for List, Find or Delete may have no path, and the root has no scope.
type URI struct {
	Scope Scope
	Path  string // parts joined by "/"
}

// ParseURI parses a name for Write and Read: memory://scope/path. It treats viking:// as
// memory://. The error wraps ErrInvalidURI.
func ParseURI(s string) (URI, error) {
	u, err := ParseDir(s)
	if err != nil {
		return URI{}, err
	}
	if u.Path == "" {
		return URI{}, invalid(s, "it names no note: want memory://<scope>/<name>")
	}
	return u, nil
}

// String returns the canonical form.
func (u URI) String() string {
	if u.Path == "" {
		return scheme + string(u.Scope)
	}
	return scheme + string(u.Scope) + "/" + u.Path
}

// session returns the session id of a name with scope session.
func (u URI) session() string {
	if u.Scope != Session {
		return ""
	}
	id, _, _ := strings.Cut(u.Path, "/")
	return id
}

// ParseDir is ParseURI for names that may denote a whole scope or store.
func ParseDir(s string) (URI, error) {
	rest, ok := strings.CutPrefix(s, scheme)
	if !ok {
		rest, ok = strings.CutPrefix(s, legacyScheme)
	}
	switch {
	case !ok:
		return URI{}, invalid(s, "want memory://<scope>/<name>")
	case len(s) > maxURI:
		return URI{}, invalid(s[:40]+"...", fmt.Sprintf("%d bytes, want at most %d", len(s), maxURI))
	case !utf8.ValidString(s):
		return URI{}, invalid(s, "not valid UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return URI{}, invalid(s, "control character")
	case rest == "":
		return URI{}, nil
	}
	scope, path, more := strings.Cut(rest, "/")
	u := URI{Scope: Scope(scope), Path: path}
	switch u.Scope {
	case User, Agent, Session, Resources:
	default:
		return URI{}, invalid(s, "want one of the scopes user, agent, session, resources")
	}
	if !more || path == "" {
		return u, nil
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return URI{}, invalid(s, fmt.Sprintf("part %q", part))
		}
	}
	return u, nil
}

func invalid(uri, why string) error {
	return fmt.Errorf("%w %q: %s", memory.ErrInvalidURI, uri, why)
}

// Ancestors yields a canonical name and its ancestors up to the root.
func Ancestors(uri string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for at := uri; len(at) > len(scheme); {
			if !yield(at) {
				return
			}
			at = at[:max(strings.LastIndexByte(at, '/'), len(scheme))]
		}
		yield(scheme)
	}
}

// below reports whether uri is dir or below it. Both are canonical.
func below(uri string, dir URI) bool {
	if dir.Scope == "" {
		return true
	}
	rest, ok := strings.CutPrefix(uri, dir.String())
	return ok && (rest == "" || rest[0] == '/')
}

// NoteURI derives a note's name from the key of the step that writes it: the same key gives
// the same name, so a repeated step replaces its own note. The category may have several
// parts ("preferences/ui").
func NoteURI(scope Scope, category, key string) (string, error) {
	u, err := ParseURI(scheme + string(scope) + "/memories/" + category + "/" + hash16(key))
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

// hash16 returns 64 bits of SHA-256. In a store of a million notes, the probability of an
// accidental collision is below one in ten million.
func hash16(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
