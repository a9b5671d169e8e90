package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// answerer answers each verb of the queries.
type answerer struct {
	c *Conn
	*Queries
}

func limitOf(q wire.Query) int {
	if q.Limit == 0 {
		return pageRows
	}
	return q.Limit
}

func (a answerer) runs(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	h, err := a.c.Projections.History(ctx, t, q.After)
	if err != nil {
		return nil, err
	}
	o := project.Choice{States: q.States, Workflow: q.Workflow, Now: time.Now()}
	if q.Where != "" {
		if o.Where, err = lineage.ParseSelector(q.Where); err != nil {
			return nil, &strict.Error{Message: "query", Field: "where", Problem: messages.Text(err), Remedy: `write it like "state=failed and tool=grep"`}
		}
	}
	out := wire.Runs{Runs: []messages.RunInfo{}}
	if q.After == 0 {
		if out.Waiting, err = a.c.untaken(ctx, t); err != nil {
			return nil, err
		}
	}
	if q.All {
		ids := streams.KeySubject(streams.BucketAlias, translate.RunAliasKey(t, "*"))
		if out.Submitted, err = a.c.Streams.Capacity.Count(ctx, "KV_"+streams.BucketAlias, ids); err != nil {
			return nil, err
		}
	}
	var rows []project.Listed
	if top, _ := o.Where.Under(); top != "" {
		if rows, err = h.Below(ctx, top, o); err != nil {
			return nil, err
		}
		rows = rows[min(q.After, uint64(len(rows))):]
		for i := range rows {
			rows[i].At = q.After + uint64(i)
		}
		if n := limitOf(q); len(rows) > n {
			rows, out.Next = rows[:n], rows[n].At
		}
	} else {
		open, known := []session.ID(nil), false
		if o.OnlyOpen() {
			open, known = a.c.Dispatch.OpenSessions(ctx, t)
		}
		if known {
			rows, out.Next, err = h.Open(ctx, open, q.After, limitOf(q), o)
		} else {
			rows, out.Next, out.Behind, err = h.List(ctx, q.After, limitOf(q), o)
		}
		if err != nil {
			return nil, err
		}
		for i := range rows {
			rows[i].At++ // the position before which to continue
		}
	}
	room := pageRoom
	for i := range rows {
		info := project.InfoOf(rows[i].Graph, rows[i].Run)
		data, err := messages.Encode(info)
		if err != nil {
			return nil, err
		}
		if room -= len(data); room < 0 && i > 0 {
			out.Next = rows[i].At
			break
		}
		out.Runs = append(out.Runs, info)
	}
	slices.SortStableFunc(out.Runs, func(a, b messages.RunInfo) int {
		return cmp.Or(cmp.Compare(b.Submitted, a.Submitted), cmp.Compare(b.Run, a.Run))
	})
	return out, nil
}

// untaken returns how many tasks of a tenant no node has claimed. A delivered,
// unacknowledged task is in a log or soon will be; the consumer counts those for all
// tenants together, so the result is an upper bound.
func (c *Conn) untaken(ctx context.Context, t session.Tenant) (uint64, error) {
	tasks, err := c.Streams.Subjects(ctx, streams.StreamTasks, streams.PrefixTask+string(t)+".>")
	if err != nil {
		return 0, err
	}
	var n uint64
	for _, held := range tasks {
		n += held
	}
	if n == 0 {
		return 0, nil
	}
	consumer, err := c.Streams.Reconciler.LookQueue(ctx, streams.TasksQueue())
	if err != nil || consumer == nil { // no node was ever there
		return n, err
	}
	return min(n, consumer.CachedInfo().NumPending), nil
}

func (a answerer) run(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if q.Run == "" {
		return nil, missing("run", "send the id of a run, or "+messages.Last)
	}
	h, err := a.c.Projections.History(ctx, t, 0)
	if err != nil {
		return nil, err
	}
	if q.Run == messages.Last {
		return h.LastRun(ctx)
	}
	home, err := a.c.Logs.RunSession(ctx, t, q.Run)
	if err == nil {
		var root session.ID
		if root, err = a.c.Projections.RootOf(ctx, home); err == nil {
			g, err := h.Tree(ctx, root)
			if err != nil {
				return nil, err
			}
			if r, err := g.Run(t, q.Run); err == nil {
				return a.withDetails(ctx, home, project.InfoOf(g, r))
			}
		}
	}
	if err != nil && !errors.Is(err, session.ErrNotFound) && !errors.Is(err, run.ErrUnknownRun) {
		return nil, err
	}
	// Lineage follows the log, and a task that was refused has none.
	res, err := a.c.Projections.Result(ctx, t, q.Run)
	switch {
	case err == nil:
		return messages.RunInfo{
			Run: res.Run, State: res.State, Workflow: res.Workflow, Session: res.Session, Code: res.Code, Reason: res.Error,
			Attempt: res.Attempt, Usage: res.Usage, Ended: res.EndedMS,
		}, nil
	case errors.Is(err, run.ErrUnknownRun) && q.All:
		waits, failed := a.c.controls.taskWaits(ctx, t, q.Run)
		if failed != nil || waits {
			return messages.RunInfo{Run: q.Run, State: run.Queued}, failed
		}
	case errors.Is(err, run.ErrState):
		home, err := a.c.Logs.RunSession(ctx, t, q.Run)
		return messages.RunInfo{Run: q.Run, State: run.Queued, Session: home.ID}, err
	}
	return nil, err
}

// withDetails adds the details and schemas of the questions of a run that waits, from the
// log: lineage has their titles alone.
func (a answerer) withDetails(ctx context.Context, home session.Key, info messages.RunInfo) (messages.RunInfo, error) {
	if !slices.ContainsFunc(info.Waits, func(w messages.Wait) bool {
		return w.Kind == run.WaitApproval || w.Kind == run.WaitResponse || w.Kind == run.WaitMessage
	}) {
		return info, nil
	}
	g, err := a.Values.Recorded(ctx, home, info.Run)
	if err != nil {
		return info, err
	}
	if s := g.Record.Suspended; s != nil {
		for _, w := range s.For {
			if w.Detail != "" {
				if info.Details == nil {
					info.Details = map[run.Path]string{}
				}
				info.Details[w.Path] = w.Detail
			}
			if w.Schema != "" && json.Valid([]byte(w.Schema)) {
				if info.Schemas == nil {
					info.Schemas = map[run.Path]json.RawMessage{}
				}
				info.Schemas[w.Path] = json.RawMessage(w.Schema)
			}
		}
	}
	return info, nil
}

func (a answerer) result(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if err := oneRun(q); err != nil {
		return nil, err
	}
	if r, there, err := a.c.Projections.Stored(ctx, t, q.Run); there || err != nil {
		return r, err
	}
	// Waiting clients poll: a run that has not ended is reported without reading its log
	// from the beginning.
	if home, err := a.c.Logs.RunSession(ctx, t, q.Run); err == nil {
		if g, err := a.Values.Recorded(ctx, home, q.Run); err == nil && !g.State.Terminal() {
			return nil, project.NoResult(q.Run, g.State)
		}
	}
	return a.c.Projections.Result(ctx, t, q.Run)
}

// oneRun refuses a query that has to name a run and names none.
func oneRun(q wire.Query) error {
	switch q.Run {
	case "":
		return missing("run", "send the id of a run")
	case messages.Last:
		return &strict.Error{Message: "query", Field: "run", Problem: messages.Last + " is for the query run alone", Remedy: "ask that for the id, and send it"}
	}
	return nil
}

func missing(field, remedy string) error {
	return &strict.Error{Message: "query", Field: field, Problem: "it is missing", Remedy: remedy}
}

func (a answerer) session(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if q.Session == "" {
		return nil, missing("session", `send "session" or "session:version"`)
	}
	ref, err := session.ParseRef(t, q.Session)
	if err != nil {
		return nil, err
	}
	if ref.ID, err = a.c.Logs.ResolveSession(ctx, t, string(ref.ID), false); err != nil {
		return nil, err
	}
	var s session.Session
	if ref.Version == 0 {
		s, err = a.c.Logs.LinearizableLast(ctx, a.Values, ref.Key)
	} else {
		// A cached value does not show that its log was purged.
		if gone, ok := errors.AsType[*session.ArchivedError](a.Values.Archived(ctx, ref.Key)); ok && !gone.Fenced {
			return nil, gone
		}
		s, err = a.Values.At(ctx, ref)
	}
	if err != nil {
		return nil, err
	}
	a.Values.Keep(s) // the next page is of the same version
	out := messages.Session{
		Session: s.Key().ID, Version: s.Ref().Version, Root: s.Root(), Opened: s.Opening().Kind, Name: s.Opening().Name,
		Closed: s.Closing().State, Reason: s.Closing().Reason, Placement: s.Placement(), Usage: s.Usage(), Total: s.Len(),
		Chunks: []messages.Chunk{},
	}
	for l := range s.Parents() {
		out.Parents = append(out.Parents, messages.Ref{Session: l.ID, Version: l.Version, Commit: l.Seq, Hash: l.Hash.String()})
	}
	room := pageRoom
	from := int(min(q.After, uint64(s.Len())))
	for i, c := range s.Range(from, s.Len()) {
		row := messages.ChunkOf(i, c)
		room -= sizeOf(row)
		if len(out.Chunks) > 0 && (room < 0 || len(out.Chunks) >= limitOf(q)) {
			out.Next = uint64(i)
			break
		}
		out.Chunks = append(out.Chunks, row)
	}
	return out, nil
}

// sizeOf estimates the bytes of a row; text with many control characters takes
// more, for which pageRoom leaves room.
func sizeOf(c messages.Chunk) int {
	n := len(c.Text) + 512
	for _, call := range c.Calls {
		n += len(call.Args) + len(call.Name) + 64
	}
	return n
}

func (a answerer) graph(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	h, err := a.c.Projections.History(ctx, t, q.After)
	if err != nil {
		return nil, err
	}
	if q.Session == "" {
		roots, next, err := h.Roots(ctx, q.After, limitOf(q))
		return messages.Graph{Roots: roots, Next: next}, err
	}
	root, err := a.rootNamed(ctx, t, q.Session)
	if err != nil {
		return nil, err
	}
	g, err := h.Tree(ctx, root.ID)
	if err != nil {
		return nil, err
	}
	tree, err := g.Sessions(t, root.ID)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", q.Session, session.ErrNotFound)
	}
	out := messages.Graph{Root: root.ID}
	from := min(q.After, uint64(len(tree)))
	rows := tree[from:]
	if n := limitOf(q); len(rows) > n {
		rows, out.Next = rows[:n], from+uint64(n)
	}
	for _, s := range rows {
		out.Tree = append(out.Tree, translate.BranchOf(s))
	}
	out.Picture, err = picture(g, root, q)
	return out, err
}

func picture(g *lineage.Graph, root session.Key, q wire.Query) (string, error) {
	switch q.Format {
	case "":
		return "", nil
	case "text":
		return g.Tree(root, &lineage.TreeOptions{All: q.All})
	}
	p, err := g.Picture(root, nil)
	if err != nil {
		return "", err
	}
	if q.Format == "svg" {
		return p.SVG(), nil
	}
	return p.Mermaid(), nil
}

// rootNamed finds the root of the tree that a session, by name or id, is in.
func (a answerer) rootNamed(ctx context.Context, t session.Tenant, name string) (session.Key, error) {
	ref, err := session.ParseRef(t, name)
	if err != nil {
		return session.Key{}, err
	}
	if ref.ID, err = a.c.Logs.ResolveSession(ctx, t, string(ref.ID), false); err != nil {
		return session.Key{}, err
	}
	root, err := a.c.Projections.RootOf(ctx, ref.Key)
	return session.Key{Tenant: t, ID: root}, err
}

// lineage reads a page of the stream itself, so that a reader who continues from page to
// page misses no record.
func (a answerer) lineage(ctx context.Context, t session.Tenant, q wire.Query) (_ any, err error) {
	at := new(lineage.Cursor)
	if q.Cursor != messages.LineageEnd {
		if at, err = lineage.ParseCursor(q.Cursor); err != nil {
			return nil, &strict.Error{Message: "query", Field: "cursor", Problem: messages.Text(err), Remedy: "send the next of the page before, or the cursor of a record, as it came"}
		}
	}
	var root session.Key
	if q.Session != "" {
		if root, err = a.rootNamed(ctx, t, q.Session); err != nil {
			return nil, err
		}
		if err = a.c.Projections.CaughtUp(ctx); err != nil {
			return nil, err
		}
	}
	if q.Cursor == messages.LineageEnd {
		at, err := a.c.Projections.LineageEnd(ctx)
		return messages.LineagePage{Records: []messages.LineageRecord{}, Next: at.String()}, err
	}
	return a.c.Projections.LineagePage(ctx, project.LineageFilter(t, root.ID), at, limitOf(q), pageRoom)
}

func (a answerer) workflows(ctx context.Context, t session.Tenant, _ wire.Query) (any, error) {
	ws, err := conn.Retry(ctx, func(ctx context.Context) ([]messages.Workflow, error) { return a.c.Dispatch.Registry.Workflows(ctx) })
	return wire.Workflows{Workflows: dispatch.OfferedTo(ws, t)}, err
}

// nodes returns the nodes visible to the tenant: the shared ones and its own.
func (a answerer) nodes(ctx context.Context, t session.Tenant, _ wire.Query) (any, error) {
	ns, err := a.c.Nodes(ctx)
	ns = slices.DeleteFunc(ns, func(n messages.Node) bool {
		of, bound := messages.BoundTo(n.Incarnation)
		return bound && of != t
	})
	if a.Alive != nil {
		for i := range ns { // gossip has no news of nodes without it
			ns[i].Dead = ns[i].Gossip != "" && !a.Alive(ns[i].Incarnation)
		}
	}
	return wire.Nodes{Nodes: append([]messages.Node{}, ns...), Streams: a.c.Streams.Capacity.Room()}, err
}

// Queries answer a tenant's queries about its runs and sessions.
type Queries struct {
	// Values reads sessions.
	Values *journal.Values
	// Replay runs the code of a run against its journal; nil supports no replay.
	Replay func(ctx context.Context, home session.Key, id run.ID) (messages.Replay, error)
	// Live returns the progress of a run's execution, if Incarnation, this process,
	// executes it; nil for a process that executes no runs.
	Live        func(session.Tenant, run.ID) (live.Report, bool)
	Incarnation string
	// Alive reports whether an incarnation is alive, as actors.Options.Alive does; nil
	// detects no death.
	Alive func(incarnation string) bool
	// Memories opens the memories of tenants; nil has none.
	Memories Memories
	// Version of the program, as service discovery shows it: "1.2.3".
	Version string
}

// Memories opens the memories of tenants by their names.
type Memories func(ctx context.Context, t session.Tenant, name string) (memory.Store, error)

const (
	// pageRows is how many rows a page has without a number in the question.
	pageRows = 100
	// pageRoom is the size of the rows of a page in bytes, below the limit of a message.
	pageRoom = 640 << 10
)
