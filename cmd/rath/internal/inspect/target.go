package inspect

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// target is the argument of why and impact: a session, a run, a version or a row of a
// session, a step of a run, a tool call, a file or a line of one.
type target struct {
	text    string
	name    string          // of a session or run
	version session.Version // zero for the newest
	row     int             // of the session, -1 for none
	step    run.Path        // of the run
	path    string          // of a file
	line    int             // of the file, 0 for all of it
}

const targetForms = `want a session, a run, SESSION:VERSION, SESSION#ROW, RUN/STEP, the id of a tool call, FILE, FILE:LINE or SESSION:FILE:LINE`

// stepForm matches the path of a step: it begins with a number.
var stepForm = regexp.MustCompile(`^[0-9]+(\.[A-Za-z0-9_-]+)*$`)

// parseTarget parses a target. If a word may name more than one target, find tries the
// ids first.
func parseTarget(text string) (target, error) {
	t := target{text: text, row: -1}
	wrong := func() (target, error) {
		return target{}, app.Fail(app.ExitUsage, "%q: %s", text, targetForms)
	}
	if name, digits, ok := cutLast(text, "#"); ok && isName(name) {
		n, err := strconv.ParseUint(digits, 10, 31)
		if err != nil {
			return wrong()
		}
		t.name, t.row = name, int(n)
		return t, nil
	}
	if name, step, ok := strings.Cut(text, "/"); ok && isName(name) && stepForm.MatchString(step) {
		t.name, t.step, t.path = name, run.Path(step), path.Clean(text)
		return t, nil
	}
	rest, digits, ok := cutLast(text, ":")
	n, err := strconv.ParseUint(digits, 10, 31)
	switch {
	case text == "":
		return wrong()
	case !ok && isName(text):
		t.name = text
	case !ok:
		t.name, t.path = messages.Last, path.Clean(text)
	case rest == "" || strings.TrimLeft(digits, "-0") == "" || digits[0] == '-':
		return wrong()
	case err != nil: // NAME:FILE
		if t.name, t.path, ok = strings.Cut(text, ":"); !ok || !isName(t.name) {
			return wrong()
		}
		t.takeVersion()
	case isName(rest):
		t.name, t.version = rest, session.Version(n)
	default:
		t.line = int(n)
		if name, file, two := strings.Cut(rest, ":"); two {
			if name == "" || file == "" {
				return wrong()
			}
			t.name, t.path = name, file
			t.takeVersion()
		} else {
			t.name, t.path = messages.Last, path.Clean(rest)
		}
	}
	return t, nil
}

// takeVersion moves a version from the beginning of the path: "12:slug.sh".
func (t *target) takeVersion() {
	if version, more, ok := strings.Cut(t.path, ":"); ok {
		if v, err := strconv.ParseUint(version, 10, 63); err == nil && v > 0 {
			t.version, t.path = session.Version(v), more
		}
	}
	t.path = path.Clean(t.path)
}

func isName(s string) bool { return session.ValidID("session", strings.TrimPrefix(s, "@")) == nil }

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
