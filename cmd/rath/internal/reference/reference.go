package reference

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Topic documents names for the help.
const Topic = `Names of sessions, runs and versions:

  @last             the latest submitted run, or its session
  7f3a              a run or session, by the unique beginning of its id
  greetings         a session, by the name from its start
  7f3a:12           a session at a version
  7f3a#3            a row of a session, counted from 0
  RUN/2.0           a step of a run: here the first tool call of its third step
  slug.sh:7         a line of a file, after the last run
  @last:slug.sh:7   a line of a file, after a run or in a session
  7f3a:12:slug.sh:7 the same at a version
`

// Reference is a resolved name of the command line.
type Reference struct {
	Run     *messages.RunInfo // nil for a session that was named itself
	Session session.ID
	Version session.Version // zero for the newest
}

// Ref returns the session and version, of a tenant.
func (n Reference) Ref(t session.Tenant) session.Ref {
	return session.Ref{Key: session.Key{Tenant: t, ID: n.Session}, Version: n.Version}
}

// String returns "session:version".
func (n Reference) String() string {
	if n.Version == 0 {
		return string(n.Session)
	}
	return fmt.Sprintf("%s:%d", n.Session, n.Version)
}

// ofRun returns the reference of a run's end: the session and version of its result, or
// else its session.
func ofRun(r *messages.RunInfo) Reference {
	if r.Result != nil {
		return Reference{Run: r, Session: r.Result.Session, Version: r.Result.Version}
	}
	return Reference{Run: r, Session: r.Session}
}

// Resolve finds the session of a name: @last or another run, or a session by its id, a
// unique prefix of the id, or its name; with ":version".
func Resolve(ctx context.Context, s *app.System, name string) (Reference, error) {
	n, err := Lookup(ctx, s, name)
	if err == nil && n.Session == "" {
		err = app.Fail(app.ExitNotFound, "run %s has no session: it ended before its start (%s)", n.Run.Run, n.Run.State)
	}
	return n, err
}

// Lookup is Resolve, but a run that ended before it began is no error: its reference
// has no session.
func Lookup(ctx context.Context, s *app.System, name string) (Reference, error) {
	base, version, err := splitVersion(name)
	if err != nil {
		return Reference{}, err
	}
	n, err := find(ctx, s, base)
	if err == nil && version != 0 {
		n.Version = version
	}
	return n, err
}

// splitVersion splits ":12" off a name.
func splitVersion(name string) (base string, v session.Version, err error) {
	base, digits, ok := strings.Cut(name, ":")
	if !ok {
		return name, 0, nil
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 {
		return "", 0, app.Fail(app.ExitUsage, "%q: want a session and a version, such as %s:3", name, base)
	}
	return base, session.Version(n), nil
}

// Run resolves the name of a run; the name of a session resolves to its last run.
func Run(ctx context.Context, s *app.System, name string) (messages.RunInfo, error) {
	switch base, version, err := splitVersion(name); {
	case err != nil:
		return messages.RunInfo{}, err
	case version != 0:
		return messages.RunInfo{}, app.Fail(app.ExitUsage, "%q: this is about a run as a whole, which has no versions: name it as %s", name, base)
	}
	n, err := Lookup(ctx, s, name)
	if err != nil {
		return messages.RunInfo{}, err
	}
	if n.Run != nil {
		return *n.Run, nil
	}
	runs, err := s.ListRuns(ctx, client.RunsOptions{})
	if err != nil {
		return messages.RunInfo{}, err
	}
	for _, r := range runs { // the newest first
		if r.Session == n.Session || slices.Contains(r.Sessions, n.Session) {
			return r, nil
		}
	}
	return imported(ctx, s, n.Session)
}

// imported returns the last run whose home is a session, by the session's own records:
// the list of runs lacks a run that was imported under the id of another.
func imported(ctx context.Context, s *app.System, id session.ID) (messages.RunInfo, error) {
	g, root, err := Graph(ctx, s, id)
	if err != nil {
		return messages.RunInfo{}, err
	}
	for _, r := range slices.Backward(g.Records(session.Key{Tenant: s.Tenant(), ID: id})) {
		if r.Kind == messages.KindEnded {
			return messages.RunInfo{Run: r.Run, Session: id, Root: root.ID, State: run.State(r.State), Workflow: r.Workflow}, nil
		}
	}
	return messages.RunInfo{}, app.Fail(app.ExitNotFound, "no run worked on session %s", id)
}
