package reference

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Continued returns the session that a task is to work on: an existing one, by its id
// or name or else by the beginning of its id, or a new one of this name.
func Continued(ctx context.Context, a *app.App, s *app.System, t messages.Task) (string, error) {
	name := t.Session
	if name == "" || t.ForkOf != "" { // a branch is a new session
		return name, nil
	}
	if name == messages.Last {
		n, err := Lookup(ctx, s, name)
		return string(n.Session), err
	}
	if err := session.ValidID("session", name); err != nil {
		return "", app.WithCode(app.ExitUsage, fmt.Errorf("--session: %w", err))
	}
	switch there, err := exists(ctx, s, name); {
	case errors.Is(err, client.ErrNoAnswer):
		return name, nil // the node that takes the task finds out
	case err != nil || there:
		return name, err
	}
	hits, err := beginning(ctx, s, name)
	if err != nil {
		return "", err
	}
	var sessions []Reference // the sessions among the hits
	for _, h := range hits {
		if h.Run != nil && (string(h.Run.Run) == name || beginsDrawn(name, string(h.Run.Run))) && string(h.Session) != name {
			return "", isRun(name, h)
		}
		if h = (Reference{Session: h.Session}); strings.HasPrefix(string(h.Session), name) && !slices.Contains(sessions, h) {
			sessions = append(sessions, h)
		}
	}
	switch len(sessions) {
	case 0:
		a.Remark("new session %s", name)
		return name, nil
	case 1:
		a.Remark("continues session %s", sessions[0].Session)
		return string(sessions[0].Session), nil
	}
	return "", ambiguous(name, sessions)
}

// shortID is the least number of characters of a run's id that tables show.
const shortID = 12

// beginsDrawn reports whether a name is a prefix, as tables show it, of a generated run
// id. The name of a session can also be a prefix of an id that a person chose.
func beginsDrawn(name, id string) bool {
	drawn := len(id) == 20 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
	return drawn && len(name) >= shortID && strings.HasPrefix(id, name)
}

// isRun rejects a run where a session is wanted: a new session of that name would lack
// the run's work.
func isRun(name string, h Reference) error {
	if h.Session == "" {
		return app.Fail(app.ExitUsage, "--session: %s is a run that has no session; leave --session out", name)
	}
	return app.Fail(app.ExitUsage, "--session: %s is a run; continue its session: --session %s", name, h.Session)
}

// Origin returns the session and version of which a task is to begin a branch, from any
// name of a run or a session.
func Origin(ctx context.Context, a *app.App, s *app.System, t messages.Task) (string, error) {
	if t.ForkOf == "" {
		return "", nil
	}
	n, err := Resolve(ctx, s, t.ForkOf)
	switch {
	case errors.Is(err, client.ErrNoAnswer):
		return t.ForkOf, nil // the node that takes the task finds out
	case err != nil:
		return "", fmt.Errorf("--fork-of: %w", err)
	}
	return n.String(), nil
}

// exists reports whether there is a session of this id or name.
func exists(ctx context.Context, s *app.System, name string) (bool, error) {
	_, err := s.Lineage.Page(ctx, name, "", 1)
	if errors.Is(err, session.ErrNotFound) { // lineage follows the log
		_, err = s.Sessions.Get(ctx, name)
	}
	if errors.Is(err, session.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
