package reference

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func find(ctx context.Context, s *app.System, name string) (Reference, error) {
	if name != messages.Last {
		if err := session.ValidID("session or run", name); err != nil {
			return Reference{}, app.WithCode(app.ExitUsage, fmt.Errorf("%w; see \"help names\"", err))
		}
	}
	r, err := s.Runs.Get(ctx, run.ID(name))
	switch {
	case err == nil && (r.Submitted > 0 || r.Workflow != "" || r.State.Terminal()):
		return ofRun(&r), nil
	case err == nil && r.Session != "" && r.Session != session.ID(name): // lineage lacks it
		held, err := exists(ctx, s, string(r.Session))
		if err == nil && !held {
			err = app.Fail(app.ExitConflict, "%w", WaitingError{r.Run, s.Hint("cancel", name)})
		}
		return ofRun(&r), err
	case err == nil: // the id is a session's
	case !errors.Is(err, run.ErrUnknownRun) && !errors.Is(err, session.ErrNotFound):
		return Reference{}, err
	case name == messages.Last:
		return Reference{}, app.Fail(app.ExitNotFound, "tenant %s has no run yet, so %s names none: start one with %q or %q", s.Tenant(), name, s.Hint("run"), s.Hint("submit", "agent"))
	}
	return byBeginning(ctx, s, name)
}

// beginning finds the runs and sessions whose ids begin with prefix.
func beginning(ctx context.Context, s *app.System, prefix string) ([]Reference, error) {
	runs, err := s.ListRuns(ctx, client.RunsOptions{})
	if err != nil {
		return nil, err
	}
	var hits []Reference
	seen := map[session.ID]bool{}
	for i := range runs {
		seen[session.ID(runs[i].Run)] = true // a branch's run has the id of its session
	}
	for i := range runs {
		r := &runs[i]
		if strings.HasPrefix(string(r.Run), prefix) {
			hits = append(hits, ofRun(r))
		}
		for _, id := range append(slices.Clone(r.Sessions), r.Session) {
			if strings.HasPrefix(string(id), prefix) && !seen[id] {
				seen[id] = true
				hits = append(hits, Reference{Session: id})
			}
		}
	}
	roots, err := s.Sessions.Roots(ctx, 0)
	if err != nil {
		return nil, err
	}
	for _, id := range roots {
		if strings.HasPrefix(string(id), prefix) && !seen[id] {
			seen[id] = true
			hits = append(hits, Reference{Session: id})
		}
	}
	return hits, nil
}

// byBeginning finds the run or session of this id, else the session that was started
// with this name, else the one whose id begins with it. It tries a name too long to be
// visible in its session's id last.
func byBeginning(ctx context.Context, s *app.System, prefix string) (Reference, error) {
	hits, err := beginning(ctx, s, prefix)
	if err != nil {
		return Reference{}, err
	}
	for _, h := range hits {
		if h.Run == nil && string(h.Session) == prefix || h.Run != nil && string(h.Run.Run) == prefix {
			return h, nil
		}
	}
	if whole := begun(prefix, hits); len(whole) == 1 {
		return whole[0], nil
	}
	// A task with exactly this id takes precedence over runs whose ids begin with it.
	switch waits, err := s.Runs.Waits(ctx, run.ID(prefix)); {
	case err != nil:
		return Reference{}, err
	case waits:
		return Reference{}, app.Fail(app.ExitConflict, "%w", WaitingError{run.ID(prefix), s.Hint("cancel", prefix)})
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		if found, err := inTrees(ctx, s, prefix); found != "" || err != nil {
			return Reference{Session: found}, err
		}
		if r, err := s.Runs.Get(ctx, run.ID(prefix)); err == nil && r.Session != session.ID(prefix) {
			return ofRun(&r), nil // its task was taken in between
		}
		also := ""
		if _, n, err := s.Fleet.Tasks(ctx); err == nil && n > 0 {
			also = "; " + WaitingTasks(n)
		}
		return Reference{}, app.Fail(app.ExitNotFound, "no run or session of tenant %s begins with %q; %q lists the runs%s", s.Tenant(), prefix, s.Hint("ps"), also)
	}
	return Reference{}, ambiguous(prefix, hits)
}

// manyTrees bounds the trees, the newest first, that are searched for a session on
// which no run worked, by the beginning of its id.
const manyTrees = 200

// inTrees finds a session inside of a tree: by its id, by a name too long to be seen in the
// id, or by the beginning of the id; "" if there is none.
func inTrees(ctx context.Context, s *app.System, name string) (session.ID, error) {
	if g, err := s.Lineage.Graph(ctx, name, ""); err == nil && g.Root != "" {
		if slices.ContainsFunc(g.Tree, func(b messages.GraphSession) bool { return b.Session == session.ID(name) }) {
			return session.ID(name), nil
		}
		return g.Root, nil
	}
	roots, err := s.Sessions.Roots(ctx, manyTrees)
	if err != nil {
		return "", err
	}
	var hits []Reference
	for _, root := range roots {
		g, err := s.Lineage.Graph(ctx, string(root), "")
		if err != nil {
			return "", err
		}
		for _, b := range g.Tree {
			if strings.HasPrefix(string(b.Session), name) {
				hits = append(hits, Reference{Session: b.Session})
			}
		}
	}
	switch len(hits) {
	case 0:
		return "", nil
	case 1:
		return hits[0].Session, nil
	}
	return "", ambiguous(name, hits)
}

// WaitingError is the error of a name that is the id of a waiting task.
type WaitingError struct {
	Run    run.ID
	Cancel string // the command that ends it
}

func (w WaitingError) Error() string {
	return fmt.Sprintf("run %s has not started: its task waits for a node; %q cancels it, other commands work after its start", w.Run, w.Cancel)
}

// begun returns the sessions whose ids were minted of this name and of no longer one:
// "s1" is the whole name of s1-1-5, and the beginning of s10-1-0. There may be several,
// since the name of a session may itself have the form of such an id.
func begun(name string, hits []Reference) []Reference {
	return slices.DeleteFunc(slices.Clone(hits), func(h Reference) bool {
		_, _, minted := h.Session.Locate()
		place, found := strings.CutPrefix(string(h.Session), name+"-")
		return h.Run != nil || !minted || !found || strings.Count(place, "-") != 1
	})
}

// ambiguous returns an error that lists ids with the same prefix.
func ambiguous(prefix string, hits []Reference) error {
	var ids []string
	for _, h := range hits[:min(len(hits), 5)] {
		if h.Run != nil {
			ids = append(ids, "run "+string(h.Run.Run))
		} else {
			ids = append(ids, "session "+string(h.Session))
		}
	}
	if len(hits) > 5 {
		ids = append(ids, "...")
	}
	return app.Fail(app.ExitConflict, "%q is the beginning of %d ids: %s; give more of it", prefix, len(hits), strings.Join(ids, ", "))
}

// WaitingTasks describes the number of tasks that no node has taken.
func WaitingTasks(n uint64) string {
	if n == 1 {
		return "1 task waits to be taken by a node"
	}
	return view.Counted(int64(n), "task") + " wait to be taken by a node"
}
