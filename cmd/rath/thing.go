package main

import (
	"context"
	"errors"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// thing is what why and impact are asked about: a session, a run, a version or
// a row of a session, a step of a run, a tool call, a file or a line of one.
type thing struct {
	text    string
	name    string          // of a session or run
	version session.Version // zero for the newest
	row     int             // of the session, -1 for none
	step    run.Path        // of the run
	path    string          // of a file
	line    int             // of the file, 0 for all of it
}

const thingForms = `want a session, a run, SESSION:VERSION, SESSION#ROW, RUN/STEP, the id of a tool call, FILE, FILE:LINE or SESSION:FILE:LINE`

// stepForm is what a path of a step looks like: it begins with a number.
var stepForm = regexp.MustCompile(`^[0-9]+(\.[A-Za-z0-9_-]+)*$`)

// parseThing reads what a person named. Of a word that may be more than one
// thing, find tries the ids first.
func parseThing(text string) (thing, error) {
	t := thing{text: text, row: -1}
	wrong := func() (thing, error) {
		return thing{}, fail(exitUsage, "%q: %s", text, thingForms)
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
func (t *thing) takeVersion() {
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

// found is a thing in the graph.
type found struct {
	thing
	named
	graph *lineage.Graph
	run   *messages.RunInfo // of a run, or of a step
	call  *lineage.Record   // of a tool call that was named by its id
}

// find resolves what a thing is named by, and reads the graph: of its tree or,
// with all, of the whole tenant.
func (s *system) findThing(ctx context.Context, t thing, all bool) (*found, error) {
	f := &found{thing: t}
	var err error
	f.named, err = s.resolve(ctx, t.name)
	f.run = f.named.run
	if err != nil && codeOf(err) == exitNotFound {
		other, otherErr := s.otherwise(ctx, t, all)
		switch {
		case otherErr != nil:
			return nil, otherErr
		case other == nil:
			return nil, err
		}
		return other, nil
	}
	if err != nil {
		return nil, err
	}
	if t.version > 0 {
		f.named.version = t.version
	}
	if t.step != "" {
		r, err := s.runOf(ctx, t.name)
		if err != nil {
			return nil, err
		}
		f.run, f.named.session = &r, r.Session
		f.path = ""
	}
	if f.graph, err = s.graphOf(ctx, f.named.session, all); err == nil && t.step != "" {
		f.inBranch(s.Tenant())
	}
	return f, err
}

// inBranch looks for a step that the run has not in its branches, whose steps
// replay tells with those of the run: they are runs of their own.
func (f *found) inBranch(t session.Tenant) {
	if _, err := f.graph.Step(t, f.run.Run, f.step); !errors.Is(err, lineage.ErrNotFound) {
		return
	}
	all := f.graph.Select(t, nil, time.Now())
	within := map[run.ID]bool{f.run.Run: true}
	for again := true; again; { // branches of branches
		again = false
		for _, r := range all {
			if r.BranchOf == nil || within[r.ID] || !within[r.BranchOf.Run] {
				continue
			}
			within[r.ID], again = true, true
			if _, err := f.graph.Step(t, r.ID, f.step); err == nil {
				info := messages.RunInfoOf(r)
				f.run, f.named.session = &info, info.Session
				return
			}
		}
	}
}

// otherwise tries what a name may stand for that is no id: a file, or a tool
// call. It returns nil for nothing.
func (s *system) otherwise(ctx context.Context, t thing, all bool) (*found, error) {
	switch {
	case t.step != "": // a file "dir/7"
		return s.lastFile(ctx, thing{text: t.text, path: t.path, row: -1}, all)
	case t.row >= 0 || t.path != "" || t.name == messages.Last:
		return nil, nil
	case t.version > 0: // "Makefile:7"
		return s.lastFile(ctx, thing{text: t.text, path: t.name, line: int(t.version), row: -1}, all)
	}
	g, err := s.graphOf(ctx, "", true)
	if err != nil {
		return nil, err
	}
	calls := g.Calls(s.Tenant(), t.name)
	if len(calls) > 1 {
		var steps []string
		for _, c := range calls[:min(len(calls), 5)] {
			steps = append(steps, string(c.Run)+"/"+string(c.Step))
		}
		return nil, fail(exitConflict, "%d tool calls have the id %s, which models give: %s; name one by its step", len(calls), t.name, strings.Join(steps, ", "))
	}
	if len(calls) == 1 {
		c := calls[0]
		return &found{thing: t, named: named{session: c.Session}, graph: g, call: &c, run: &messages.RunInfo{Run: c.Run}}, nil
	}
	return s.lastFile(ctx, thing{text: t.text, path: t.name, row: -1}, all)
}

// lastFile looks for a file as the last run left it; nil if there is no run, or
// no such file to look for.
func (s *system) lastFile(ctx context.Context, t thing, all bool) (*found, error) {
	if s.log == nil {
		return nil, nil
	}
	t.name = messages.Last
	f, err := s.findThing(ctx, t, all)
	if err == nil {
		var changes []lineage.HeadChange
		if changes, err = f.graph.Heads(f.ref(s.Tenant()).Key, f.named.version); err == nil && !view.HoldsFile(ctx, s.blobs(s.Tenant()), changes, t.path) {
			return nil, nil
		}
	}
	if err != nil && codeOf(err) == exitNotFound {
		return nil, nil // what the name is not is told by its own error
	}
	return f, err
}

// graphOf reads the lineage of the tree that a session is part of or, with all,
// of everything in the tenant.
func (s *system) graphOf(ctx context.Context, id session.ID, all bool) (*lineage.Graph, error) {
	if !all {
		g, _, err := s.graph(ctx, id)
		return g, err
	}
	g := lineage.NewGraph()
	err := s.recorded(ctx, "", 0, func(r *messages.LineageRecord) error {
		g.Add(r.Record)
		return nil
	})
	return g, err
}

// chunkOf returns the session and version that made a row.
func (s *system) chunkOf(ctx context.Context, f *found) (session.Ref, error) {
	v, err := s.Session(ctx, f.named.String())
	if err != nil {
		return session.Ref{}, err
	}
	if f.row >= len(v.Chunks) {
		return session.Ref{}, fail(exitNotFound, "session %s has %s, counted from 0: there is no row %d", v.Session, view.Counted(int64(len(v.Chunks)), "row"), f.row)
	}
	c := &v.Chunks[f.row]
	id := c.Session
	if id == "" {
		id = v.Session
	}
	return session.Ref{Key: session.Key{Tenant: s.Tenant(), ID: id}, Version: c.Version}, nil
}
