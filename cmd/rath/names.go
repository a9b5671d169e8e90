package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// named is what a name on the command line stands for.
type named struct {
	run     *messages.RunInfo // nil for a session that was named itself
	session session.ID
	version session.Version // zero for the newest
}

func (n named) ref(t session.Tenant) session.Ref {
	return session.Ref{Key: session.Key{Tenant: t, ID: n.session}, Version: n.version}
}

// String is "session:version".
func (n named) String() string {
	if n.version == 0 {
		return string(n.session)
	}
	return fmt.Sprintf("%s:%d", n.session, n.version)
}

// home is where a run ended: the session and version of its result, or its
// session.
func home(r *messages.RunInfo) named {
	if r.Result != nil {
		return named{run: r, session: r.Result.Session, version: r.Result.Version}
	}
	return named{run: r, session: r.Session}
}

// resolve finds the session that a name stands for: that of @last or of another
// run, or one by its id, the unique beginning of it, or its name; with ":version".
func (s *system) resolve(ctx context.Context, name string) (named, error) {
	n, err := s.lookUp(ctx, name)
	if err == nil && n.session == "" {
		err = fail(exitNotFound, "run %s has no session: it has ended before it began (%s)", n.run.Run, n.run.State)
	}
	return n, err
}

// lookUp is resolve for who can do with a run that ended before it began: it has
// no session.
func (s *system) lookUp(ctx context.Context, name string) (named, error) {
	base, version, err := splitVersion(name)
	if err != nil {
		return named{}, err
	}
	n, err := s.find(ctx, base)
	if err == nil && version != 0 {
		n.version = version
	}
	return n, err
}

// splitVersion cuts ":12" off a name.
func splitVersion(name string) (base string, v session.Version, err error) {
	base, digits, ok := strings.Cut(name, ":")
	if !ok {
		return name, 0, nil
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 {
		return "", 0, fail(exitUsage, "%q: want a session and a version, such as %s:3", name, base)
	}
	return base, session.Version(n), nil
}

func (s *system) find(ctx context.Context, name string) (named, error) {
	if name != messages.Last {
		if err := session.ValidID("session or run", name); err != nil {
			return named{}, &exitError{exitUsage, fmt.Errorf("%w; see \"help names\"", err)}
		}
	}
	r, err := s.Run(ctx, run.ID(name))
	switch {
	case err == nil && (r.Submitted > 0 || r.Workflow != "" || r.State.Terminal()):
		return home(&r), nil
	case err == nil: // the id is a session's
	case !errors.Is(err, run.ErrUnknownRun) && !errors.Is(err, session.ErrNotFound):
		return named{}, err
	case name == messages.Last:
		return named{}, fail(exitNotFound, "there is no run yet in tenant %s, so %s is nothing: start one with \"run\" or \"submit\"", s.Tenant(), name)
	}
	return s.byBeginning(ctx, name)
}

// beginning finds the runs and sessions whose ids begin so.
func (s *system) beginning(ctx context.Context, prefix string) ([]named, error) {
	runs, err := s.Runs(ctx, nil)
	if err != nil {
		return nil, err
	}
	var hits []named
	seen := map[session.ID]bool{}
	for i := range runs {
		seen[session.ID(runs[i].Run)] = true // a branch's run has the id of its session
	}
	for i := range runs {
		r := &runs[i]
		if strings.HasPrefix(string(r.Run), prefix) {
			hits = append(hits, home(r))
		}
		for _, id := range append(slices.Clone(r.Sessions), r.Session) {
			if strings.HasPrefix(string(id), prefix) && !seen[id] {
				seen[id] = true
				hits = append(hits, named{session: id})
			}
		}
	}
	roots, err := s.Roots(ctx, 0)
	if err != nil {
		return nil, err
	}
	for _, id := range roots {
		if strings.HasPrefix(string(id), prefix) && !seen[id] {
			seen[id] = true
			hits = append(hits, named{session: id})
		}
	}
	return hits, nil
}

// byBeginning finds the run or session of this id, else the session that was
// begun with this name, else the one whose id begins so. A name too long to be
// seen in its session's id is tried last.
func (s *system) byBeginning(ctx context.Context, prefix string) (named, error) {
	hits, err := s.beginning(ctx, prefix)
	if err != nil {
		return named{}, err
	}
	for _, h := range hits {
		if h.run == nil && string(h.session) == prefix || h.run != nil && string(h.run.Run) == prefix {
			return h, nil
		}
	}
	if whole := begun(prefix, hits); len(whole) == 1 {
		return whole[0], nil
	}
	// A task of this very id goes before runs that begin so.
	switch waits, err := s.TaskWaits(ctx, run.ID(prefix)); {
	case err != nil:
		return named{}, err
	case waits:
		return named{}, fail(exitConflict, "%w", waiting{run.ID(prefix)})
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		g, err := s.Graph(ctx, prefix, "")
		if err == nil && g.Root != "" {
			return named{session: g.Root}, nil
		}
		if r, err := s.Run(ctx, run.ID(prefix)); err == nil && r.Session != session.ID(prefix) {
			return home(&r), nil // its task was taken in between
		}
		also := ""
		if n, err := s.Waiting(ctx); err == nil && n > 0 {
			also = "; " + waitToBeTaken(n)
		}
		return named{}, fail(exitNotFound, "no run or session of tenant %s begins with %q; \"ps\" lists the runs%s", s.Tenant(), prefix, also)
	}
	return named{}, ambiguous(prefix, hits)
}

// waiting is the error of a name that is a task which no node has taken yet.
type waiting struct{ id run.ID }

func (w waiting) Error() string {
	return fmt.Sprintf("run %s has not begun: its task waits to be taken by a node; \"cancel %s\" ends it, all else goes once it has begun", w.id, w.id)
}

// begun returns the sessions whose ids were minted of this name and no longer
// one: "s1" is the whole name of s1-1-5, and the beginning of s10-1-0. There may
// be more than one, since who names a session may also write such an id himself.
func begun(name string, hits []named) []named {
	return slices.DeleteFunc(slices.Clone(hits), func(h named) bool {
		_, _, minted := h.session.Locate()
		place, found := strings.CutPrefix(string(h.session), name+"-")
		return h.run != nil || !minted || !found || strings.Count(place, "-") != 1
	})
}

// ambiguous says which ids begin alike.
func ambiguous(prefix string, hits []named) error {
	var ids []string
	for _, h := range hits[:min(len(hits), 5)] {
		if h.run != nil {
			ids = append(ids, "run "+string(h.run.Run))
		} else {
			ids = append(ids, "session "+string(h.session))
		}
	}
	if len(hits) > 5 {
		ids = append(ids, "...")
	}
	return fail(exitConflict, "%q is the beginning of %d ids: %s; give more of it", prefix, len(hits), strings.Join(ids, ", "))
}

// continued returns the session that a task is to work on: one that exists, by
// its id or name or else by the beginning of its id, or a new one of this name.
func (a *app) continued(ctx context.Context, s *system, t messages.Task) (string, error) {
	name := t.Session
	if name == "" || t.ForkOf != "" { // a branch is a new session
		return name, nil
	}
	if name == messages.Last {
		n, err := s.find(ctx, name)
		return string(n.session), err
	}
	if err := session.ValidID("session", name); err != nil {
		return "", &exitError{exitUsage, fmt.Errorf("--session: %w", err)}
	}
	switch there, err := s.exists(ctx, name); {
	case errors.Is(err, client.ErrNoAnswer):
		return name, nil // the node that takes the task finds out
	case err != nil || there:
		return name, err
	}
	hits, err := s.beginning(ctx, name)
	if err != nil {
		return "", err
	}
	var sessions []named // of which a run may be another hit
	for _, h := range hits {
		if h = (named{session: h.session}); strings.HasPrefix(string(h.session), name) && !slices.Contains(sessions, h) {
			sessions = append(sessions, h)
		}
	}
	switch len(sessions) {
	case 0:
		a.remark("new session %s", name)
		return name, nil
	case 1:
		a.remark("goes on with session %s", sessions[0].session)
		return string(sessions[0].session), nil
	}
	return "", ambiguous(name, sessions)
}

// origin returns the session and version that a task is to begin as a branch of:
// of a run or a session by any name that there is for one.
func (a *app) origin(ctx context.Context, s *system, t messages.Task) (string, error) {
	if t.ForkOf == "" {
		return "", nil
	}
	n, err := s.resolve(ctx, t.ForkOf)
	switch {
	case errors.Is(err, client.ErrNoAnswer):
		return t.ForkOf, nil // the node that takes the task finds out
	case err != nil:
		return "", fmt.Errorf("--fork-of: %w", err)
	}
	return n.String(), nil
}

// exists reports whether there is a session of this id or name.
func (s *system) exists(ctx context.Context, name string) (bool, error) {
	_, err := s.Lineage(ctx, name, 0, 1)
	if errors.Is(err, session.ErrNotFound) { // lineage follows the log
		_, err = s.Session(ctx, name)
	}
	if errors.Is(err, session.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// runOf resolves the name of a run; that of a session is its last run.
func (s *system) runOf(ctx context.Context, name string) (messages.RunInfo, error) {
	switch base, version, err := splitVersion(name); {
	case err != nil:
		return messages.RunInfo{}, err
	case version != 0:
		return messages.RunInfo{}, fail(exitUsage, "%q: this is about a run as a whole, which has no versions: name it as %s", name, base)
	}
	n, err := s.lookUp(ctx, name)
	if err != nil {
		return messages.RunInfo{}, err
	}
	if n.run != nil {
		return *n.run, nil
	}
	runs, err := s.Runs(ctx, nil)
	if err != nil {
		return messages.RunInfo{}, err
	}
	for _, r := range runs { // the newest first
		if r.Session == n.session || slices.Contains(r.Sessions, n.session) {
			return r, nil
		}
	}
	return messages.RunInfo{}, fail(exitNotFound, "no run worked on session %s", n.session)
}

// labels names the sessions of the tree that a session, by id or name, is part
// of, as pictures of it do: none where nothing can be read of it yet.
func (s *system) labels(ctx context.Context, name string) *lineage.Labels {
	if g, root, err := s.graph(ctx, session.ID(name)); err == nil {
		if l, err := g.Labels(root); err == nil {
			return l
		}
	}
	return &lineage.Labels{}
}

// graph reads the lineage of the tree that a session is part of.
func (s *system) graph(ctx context.Context, id session.ID) (*lineage.Graph, session.Key, error) {
	g := lineage.NewGraph()
	var root session.ID
	for after := uint64(0); ; {
		page, err := s.Lineage(ctx, string(id), after, 0)
		if err != nil {
			return nil, session.Key{}, err
		}
		for i := range page.Records {
			g.Add(page.Records[i].Record)
			root = page.Records[i].Record.Root
		}
		if after = page.Next; after >= page.Last || after == 0 {
			break
		}
	}
	if root == "" {
		return nil, session.Key{}, fail(exitNotFound, "session %s has no lineage yet", id)
	}
	return g, session.Key{Tenant: s.Tenant(), ID: root}, nil
}
